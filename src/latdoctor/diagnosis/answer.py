"""The answer (why) and the verdict (how bad), kept apart: a service can be sick of nothing we know, or well with a
condition that does not hurt it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from latdoctor.diagnosis.account import account, contributions, rival_name
from latdoctor.diagnosis.judge import CLEAR, FIRED, NOT_APPLICABLE, NOT_EVALUATED
from latdoctor.diagnosis.network import Network
from latdoctor.diagnosis.result import Answer, Check, RankedCause, Tier, Verdict
from latdoctor.diagnosis.rules import GROUNDING, SEVERITIES, Cause, RuleSet

CONFIRMED = 0.9
LIKELY = 0.6
LISTED = 0.02  # less probable causes are left out of the report unless something specific points at them
MAX_LISTED = 10
SUSPECTED = 0.2  # a grounded critical cause at least this probable keeps a service from being called healthy

HURTING, NOT_HURTING, HARM_UNSEEN = "hurting", "present, not hurting", "harm not seen"


def rank(rules: RuleSet, network: Network, checks: Sequence[Check]) -> tuple[RankedCause, ...]:
    """The causes worth listing: named first, then by probability, then severity, then id."""
    by_id = {check.id: check for check in checks}
    probabilities = {name: network.probability(name) for name in network.causes}
    grounded = {name for name, cause in network.causes.items() if _grounds(cause, rules, by_id)}
    ranked = sorted(
        (name for name in probabilities if probabilities[name] >= LISTED),
        key=lambda name: (
            not (probabilities[name] >= LIKELY and name in grounded),
            -probabilities[name],
            -SEVERITIES.index(network.causes[name].severity),
            name,
        ),
    )
    return tuple(_ranked(network.causes[name], rules, network, checks) for name in ranked[:MAX_LISTED])


def _grounds(cause: Cause, rules: RuleSet, checks: Mapping[str, Check]) -> tuple[str, ...]:
    """The specific findings that hold and that this cause expects: without one it is not named."""
    return tuple(
        name
        for name, weight in cause.expects.items()
        if weight >= GROUNDING and rules.finding[name].specific and checks[name].status == FIRED
    )


def _ranked(cause: Cause, rules: RuleSet, network: Network, checks: Sequence[Check]) -> RankedCause:
    by_id = {check.id: check for check in checks}
    probability = network.probability(cause.id)
    grounded = bool(_grounds(cause, rules, by_id))
    named = grounded and probability >= LIKELY
    of = account(cause.id, network, checks)
    expected = [by_id[name] for name in cause.expects]
    fired = [check for check in expected if check.status == FIRED]
    own = [check for check in fired if rules.finding[check.id].specific]
    against = [check.id for check in expected if check.status == CLEAR]
    against += [name for name in cause.rules_out if by_id[name].status == FIRED]
    return RankedCause(
        id=cause.id,
        title=cause.title,
        tier=cause.tier,
        severity=cause.severity,
        status=cause.status,
        probability=round(probability, 4),
        confidence="confirmed" if named and probability >= CONFIRMED else "likely" if named else "candidate",
        named=named,
        grounded=grounded,
        standing=_standing(checks),
        subjects=tuple(dict.fromkeys(subject for check in own for subject in check.subjects)),
        evidence_for=tuple(check.id for check in sorted(fired, key=lambda check: -cause.expects[check.id])),
        evidence_against=tuple(against),
        unseen=tuple(check.id for check in expected if check.status == NOT_EVALUATED),
        rival=rival_name(of.rival),
        contributions=contributions(of),
        explanation=cause.explanation,
        confirm=cause.confirm,
        mend=cause.mend,
        owner=cause.owner,
        playbooks=() if cause.status == "experimental" else cause.playbooks,
        keep_evidence=cause.keep_evidence,
    )


def _standing(checks: Sequence[Check]) -> str:
    """Does what was found hurt? Told by the symptoms alone, and by the lesser ones only where a required one is unseen.

    A deep queue is no harm while P99 is seen to be within the SLO.
    """
    symptoms = [check for check in checks if check.kind != "specific"]
    fired = [check for check in symptoms if check.status == FIRED]
    if any(check.severity for check in fired):
        return HURTING
    if any(check.required and check.status == NOT_EVALUATED for check in symptoms):
        return HURTING if fired else HARM_UNSEEN
    return NOT_HURTING


def answer(rules: RuleSet, network: Network, ranked: Sequence[RankedCause], checks: Sequence[Check]) -> Answer:
    """named · one of · unexplained · none. Elimination alone names nothing."""
    named = tuple(cause.id for cause in ranked if cause.named)
    group = () if named else _one_of(network, [cause.id for cause in ranked if cause.grounded])
    unexplained = tuple(
        check.id
        for check in checks
        if check.status == FIRED
        and rules.finding[check.id].specific
        and not any(rules.cause[name].weight(rules.finding[check.id]) >= GROUNDING for name in named or group)
    )
    if named or group:
        kind = "named" if named else "one-of"
    else:
        kind = "unexplained" if any(check.status == FIRED for check in checks) else "none"
    return Answer(kind, named or group, round(network.no_known_cause, 4), unexplained)


def _one_of(network: Network, grounded: Sequence[str]) -> tuple[str, ...]:
    """The smallest two or three grounded causes that together reach the bar."""
    for size in (2, 3):
        for group in combinations(grounded[:3], size):
            if network.probability(*group) >= LIKELY:
                return group
    return ()


def walk(checks: Sequence[Check], names: Sequence[str]) -> tuple[Tier, ...]:
    """The tiers in their order: what fired, what is clear, what could not be looked at."""
    return tuple(_tier(name, [check for check in checks if check.tier == name]) for name in names)


def _tier(name: str, checks: Sequence[Check]) -> Tier:
    def having(status: str) -> tuple[str, ...]:
        return tuple(check.id for check in checks if check.status == status)

    looked = [check for check in checks if check.status in (FIRED, CLEAR)]
    required_missing = any(check.required and check.status == NOT_EVALUATED for check in checks)
    if checks and all(check.status == NOT_APPLICABLE for check in checks):
        seen = "not-applicable"
    elif not looked:
        seen = "unseen"
    else:
        seen = "partly" if required_missing else "seen"
    return Tier(name, seen, having(FIRED), having(CLEAR), having(NOT_EVALUATED), having(NOT_APPLICABLE))


def verdict(ranked: Sequence[RankedCause], tiers: Sequence[Tier], checks: Sequence[Check]) -> Verdict:
    """The level and one sentence. Health is claimed only where everything required was seen."""
    fired = [check for check in checks if check.status == FIRED and check.severity]
    unseen = [
        check for check in checks if check.kind != "specific" and check.required and check.status == NOT_EVALUATED
    ]
    counting = [cause for cause in ranked if cause.named and (cause.severity == "critical" or unseen)]
    levels = [check.severity for check in fired] + [cause.severity for cause in counting]
    level = max(levels, key=SEVERITIES.index, default="")
    if level:
        return Verdict(level, _sentence(level, ranked, checks), tuple(check.says for check in fired))
    doubts = [f"{check.id}: {check.reason}" for check in unseen]
    doubts += [f"tier {tier.name} was {_SEEN[tier.seen]}" for tier in tiers if tier.seen in _SEEN]
    doubts += [
        f"{cause.id} is possible ({cause.probability:.0%})"
        for cause in ranked
        if cause.grounded and not cause.named and cause.severity == "critical" and cause.probability >= SUSPECTED
    ]
    if doubts:
        return Verdict(
            "inconclusive", "nothing critical found, but too little was seen to call it healthy", tuple(doubts)
        )
    present = [cause.title for cause in ranked if cause.named]
    says = "healthy" if not present else "healthy; a condition is present and does not hurt"
    return Verdict("healthy", says, tuple(present))


_SEEN = {"unseen": "not seen", "partly": "seen only in part"}


def _sentence(level: str, ranked: Sequence[RankedCause], checks: Sequence[Check]) -> str:
    named = [cause for cause in ranked if cause.named]
    standing = _standing(checks)
    if not named:
        return f"{level}, cause unknown"
    if standing == HURTING:
        return f"{level}, cause found"
    return f"{level}: condition found; harm not seen" if standing == HARM_UNSEEN else f"{level}: condition found"
