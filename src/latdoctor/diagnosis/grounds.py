"""Which findings point at a cause, and which rule it out: what holds where it is told, not on a neighbour alone."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.diagnosis.judge import FIRED
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rules import GROUNDING, Cause, RuleSet
from latdoctor.evidence.model import kind_of


def grounding(cause: Cause, rules: RuleSet, checks: Mapping[str, Check]) -> tuple[str, ...]:
    """The specific findings that hold and that `cause` expects. `checks` are by id."""
    return tuple(
        name
        for name, weight in cause.expects.items()
        if weight >= GROUNDING and rules.finding[name].specific and _holds(name, checks)
    )


def ruled_out_by(cause: Cause, rules: RuleSet, checks: Mapping[str, Check]) -> tuple[str, ...]:
    """The findings that rule `cause` out. `checks` are by id.

    A replica that has just started tells nothing of how the one beside it makes its batches. What holds on something of
    another kind (a host, an allocator) counts for all that may run on it or use it; where nothing points at the cause,
    everything that holds counts.
    """
    told_on = {subject for name in grounding(cause, rules, checks) for subject in checks[name].subjects}
    fired = (name for name in cause.rules_out if _holds(name, checks))
    return tuple(name for name in fired if all(_covers(checks[name].subjects, one) for one in told_on))


def _holds(name: str, checks: Mapping[str, Check]) -> bool:
    return name in checks and checks[name].status == FIRED


def _covers(subjects: tuple[str, ...], told_on: str) -> bool:
    """Whether what holds on `subjects` bears on `told_on`: on itself, or on something of another kind."""
    return any(one == told_on or kind_of(one) != kind_of(told_on) for one in subjects)
