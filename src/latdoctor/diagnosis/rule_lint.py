"""Checks over a whole set of rules: whether each cause can be identified by its own findings."""

from __future__ import annotations

from dataclasses import replace

from latdoctor.conditions.evaluator import LN_MAX
from latdoctor.diagnosis.evaluate import FIRED
from latdoctor.diagnosis.noisy_or import Network
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rule_schema import Cause, RuleSet
from latdoctor.diagnosis.verdict import CONFIRMED
from latdoctor.errors import Problem

_USUAL_WEIGHT, _USUAL_LEAK = 0.9, 0.02  # of a good specific finding
_MOST_MISSING = 3


def lint(rules: RuleSet) -> tuple[Problem, ...]:
    """Everything unsound about `rules`, with its place."""
    problems = []
    for cause in (one for one in rules.causes if not one.disabled):
        reached = confidence_alone(cause, rules)
        if reached < CONFIRMED:
            what = f"{cause.id} reaches only {reached:.0%} on its specific findings alone, {CONFIRMED:.0%} is due"
            problems.append(Problem(cause.where, f"{what}: {_remedy(cause, rules)}"))
    return tuple(problems)


def _remedy(cause: Cause, rules: RuleSet) -> str:
    """What would make the cause sound: how many findings of the usual kind, expected by no other cause."""
    like = next(rules.finding[name] for name in cause.expects if rules.finding[name].specific)
    for count in range(1, _MOST_MISSING + 1):
        more = tuple(replace(like, id=f"{like.id}.{number}", leak=_USUAL_LEAK) for number in range(count))
        expecting = replace(cause, expects={**cause.expects, **{finding.id: _USUAL_WEIGHT for finding in more}})
        causes = tuple(expecting if known.id == cause.id else known for known in rules.causes)
        reached = confidence_alone(expecting, RuleSet((*rules.findings, *more), causes))
        if reached >= CONFIRMED:
            findings = "one more specific finding" if count == 1 else f"{count} more specific findings"
            return (
                f"let it expect {findings} that no other cause expects ({_USUAL_WEIGHT:.0%} with a leak of "
                f"{_USUAL_LEAK:.0%} would reach {reached:.0%})"
            )
    return "let it expect specific findings that no other cause expects, with a smaller leak"


def confidence_alone(cause: Cause, rules: RuleSet) -> float:
    """P(cause) when its specific findings hold at full strength and nothing else is known."""
    own = [rules.finding[name] for name in cause.expects if rules.finding[name].specific]
    checks = [
        Check(
            id=finding.id,
            status=FIRED,
            message=finding.message,
            tier=finding.tier,
            kind=finding.kind,
            severity=finding.severity,
            required=finding.required,
            subjects=(),
            ln_lambda=LN_MAX,
            atoms=(),
        )
        for finding in own
    ]
    return Network.of(rules, checks).probability(cause.id)
