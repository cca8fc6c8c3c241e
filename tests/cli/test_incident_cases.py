"""Each incident's files alone lead to its cause, at its level, and to no wrong one."""

from __future__ import annotations

import pytest

from latdoctor.diagnosis import rule_loader
from tests.cli.incident_cases import NONE, IncidentCase, incident_cases
from tests.cli.running import diagnosed

CASES = incident_cases()
CAUSES = rule_loader.shipped().cause


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_files_of_an_incident_lead_to_its_cause(case: IncidentCase) -> None:
    answer = diagnosed(*case.arguments[1:])
    named = [one["id"] for one in answer["causes"] if one["named"]]
    assert named[:1] == ([] if case.cause == NONE else [case.cause])
    assert case.expected.level in ("", answer["verdict"]["level"])
    assert not set(case.expected.never) & set(named)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_speaks_of_known_causes(case: IncidentCase) -> None:
    assert {case.cause, *case.expected.never} - {NONE} <= CAUSES.keys()
