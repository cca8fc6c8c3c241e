"""Is a set of rules sound? What a rule's own file cannot show: whether a cause can be told by its own findings."""

from __future__ import annotations

from latdoctor.diagnosis.answer import CONFIRMED
from latdoctor.diagnosis.judge import FIRED
from latdoctor.diagnosis.network import Network
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rules import Cause, RuleSet
from latdoctor.errors import Problem
from latdoctor.evidence.comparing import LN_MAX


def lint(rules: RuleSet) -> tuple[Problem, ...]:
    """Everything unsound about `rules`, with its place."""
    problems = []
    for cause in rules.causes:
        reached = confidence_alone(cause, rules)
        if reached < CONFIRMED:
            problems.append(
                Problem(
                    cause.where, f"{cause.id} reaches only {reached:.0%} on its specific findings alone, 90 % is due"
                )
            )
    return tuple(problems)


def confidence_alone(cause: Cause, rules: RuleSet) -> float:
    """P(cause) when its specific findings hold at full strength and nothing else is known."""
    own = [rules.finding[name] for name in cause.expects if rules.finding[name].specific]
    checks = [
        Check(
            id=finding.id,
            status=FIRED,
            says=finding.says,
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
