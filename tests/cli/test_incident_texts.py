"""Incidents as people paste them: every file is read, and no cause is named that the text does not show.

How many are answered right is measured by `python -m bench.incident_texts`; a wrong cause is worse than none.
"""

from __future__ import annotations

import pytest
from bench.incident_texts import HELD_OUT, TUNED, IncidentText, Outcome, incident_texts

from latdoctor.diagnosis import rule_loader
from tests.cli.running import diagnosed

CASES = [*incident_texts(TUNED), *incident_texts(HELD_OUT)]
KNOWN = rule_loader.shipped().cause


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_no_forbidden_cause_is_named(case: IncidentText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.folder)
    answer = diagnosed(*case.arguments)
    assert case.judged(answer) not in (Outcome.FORBIDDEN_NAMED, Outcome.UNREAD)
    if case.first == "none":
        assert [cause["id"] for cause in answer["causes"] if cause["named"]] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_forbidden_cause_is_no_accepted_one(case: IncidentText) -> None:
    assert not case.never & set(case.first.removeprefix("any-of:").split(","))
