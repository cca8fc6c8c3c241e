"""What one look says of a condition, for the journal and for people."""

from __future__ import annotations

import pytest

from latdoctor.remediation.observation import ConditionResult


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(error.ratio > 5% and error.ratio > 1.5 x before); where that is not known, error.ratio > 5%", False),
        ("error.ratio > 5%", False),
        ("arrival.rate within 20% of before", True),
    ],
)
def test_what_was_seen_tells_its_condition_only_where_it_must(text: str, told: bool) -> None:
    judged = ConditionResult(text, "fails", "error.ratio is 1 %, wanted > 5%")
    assert judged.summary.startswith(text) is told
