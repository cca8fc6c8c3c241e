"""Whether a workload was broken before a change, and is whole after it: `verify.repair` of a playbook.

A wrong image, a probe that is too strict or a quota may hurt no request, because the other Pods carry the load. The
right change then lowers no latency. It is verified by the fault: that was there all the time, and is gone and stays so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN
from latdoctor.remediation.observation import (
    ConditionResult,
    Observation,
    evaluate_all,
    evaluate_any,
    evaluate_mechanism,
)
from latdoctor.remediation.playbook import Repair

_STRICTEST = (FAILS, UNKNOWN, HOLDS)
_FIRED = "fired"


def broken_before(repair: Repair | None, before: Sequence[Observation]) -> tuple[str, ...]:
    """The findings of `repair` that fired in each window before the change: a fault, and no moment of a rollout.

    None where the workload was complete nevertheless: then the fault is over.
    """
    if repair is None or not any(_is_incomplete(repair, one) for one in before):
        return ()
    return tuple(name for name in repair.broken if all(one.findings.get(name) == _FIRED for one in before))


def _is_incomplete(repair: Repair, window: Observation) -> bool:
    return all(evaluate_any(one, window, {}).status == HOLDS for one in repair.incomplete)


def whole_in_all(repair: Repair, windows: Sequence[Observation]) -> Iterator[ConditionResult]:
    """Each item of `whole` in the window where it is least so: an average would hide a Pod that ends now and then."""
    for item in repair.whole:
        results = (evaluate_mechanism(item, one, {}) for one in windows)
        yield min(results, key=lambda one: _STRICTEST.index(one.status))


def may_be_shown(repair: Repair | None, before: Sequence[Observation]) -> bool:
    """Whether a repair could be verified: something was broken, and whether anything gets worse can be measured."""
    if repair is None or not broken_before(repair, before):
        return False
    results = (evaluate_all(one, before[-1], before[-1].values) for one in repair.not_worse)
    return all(one.status != UNKNOWN for one in results)
