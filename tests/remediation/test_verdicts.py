"""What a run is called: its outcome together with its reason."""

from __future__ import annotations

import pytest

from latdoctor.remediation.run_result import Outcome, Reason, Verdict, verdict_of

CASES = [
    (Outcome.VERIFIED, Reason.VERIFIED, Verdict.SUCCEEDED),
    (Outcome.PENDING, Reason.UNPROVEN, Verdict.PROOF_PENDING),
    (Outcome.ROLLED_BACK, Reason.NO_IMPROVEMENT, Verdict.NO_EFFECT),
    (Outcome.ROLLED_BACK, Reason.UNPROVEN, Verdict.INCONCLUSIVE),
    (Outcome.ROLLED_BACK, Reason.NOT_OBSERVED, Verdict.INCONCLUSIVE),
    (Outcome.ROLLED_BACK, Reason.ABORT_CONDITION, Verdict.ROLLED_BACK),
    (Outcome.ROLLED_BACK, Reason.CHANGE_LOST, Verdict.SUPERSEDED),
    (Outcome.REFUSED, Reason.MODIFIED_BY_OTHER_CLIENT, Verdict.SUPERSEDED),
    (Outcome.INCOMPLETE, Reason.NO_IMPROVEMENT, Verdict.HELD),
    (Outcome.INCOMPLETE, Reason.CHANGE_LOST, Verdict.HELD),
    (Outcome.HELD, None, Verdict.HELD),
    (Outcome.REFUSED, Reason.COOLDOWN, Verdict.REFUSED),
    (Outcome.FAILED, Reason.ERROR, Verdict.FAILED),
]


@pytest.mark.parametrize(("outcome", "code", "verdict"), CASES)
def test_verdict_says_what_became_of_a_run(outcome: Outcome, code: Reason | None, verdict: Verdict) -> None:
    assert verdict_of(outcome, code) is verdict


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("code", [None, *Reason])
def test_every_outcome_has_a_verdict(outcome: Outcome, code: Reason | None) -> None:
    assert verdict_of(outcome, code) in Verdict
