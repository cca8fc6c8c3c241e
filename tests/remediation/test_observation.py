"""The result of a condition on one observation."""

from __future__ import annotations

import pytest

from latdoctor.remediation.observation import ConditionResult


@pytest.mark.parametrize(
    ("text", "included"),
    [
        ("(error.ratio > 5% and error.ratio > 1.5 x before); where that is not known, error.ratio > 5%", False),
        ("error.ratio > 5%", False),
        ("arrival.rate within 20% of before", True),
    ],
)
def test_summary_includes_the_condition_only_if_needed(text: str, included: bool) -> None:
    result = ConditionResult(text, "fails", "error.ratio is 1 %, wanted > 5%")
    assert result.summary.startswith(text) is included
