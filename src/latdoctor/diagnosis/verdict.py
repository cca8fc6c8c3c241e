"""The answer (why) and the verdict (how bad), kept apart: a service can be sick of nothing we know, or well with a
condition that does not hurt it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from latdoctor.diagnosis.codes import AnswerKind, CauseStatus, Confidence, FindingKind, Level, TierCoverage, UserImpact
from latdoctor.diagnosis.evaluate import CLEAR, FIRED, NOT_APPLICABLE, NOT_EVALUATED
from latdoctor.diagnosis.noisy_or import Network, grounding, ruled_out_by
from latdoctor.diagnosis.onset import impact
from latdoctor.diagnosis.result import Answer, Check, RankedCause, RuledOut, Tier, Verdict
from latdoctor.diagnosis.rule_schema import GROUNDING, SEVERITIES, Cause, RuleSet
from latdoctor.diagnosis.score_breakdown import account, contributions, rival_name

CONFIRMED = 0.9
LIKELY = 0.6
LISTED = 0.02  # less probable causes are left out of the report
LISTED_UNGROUNDED = 0.1  # and so are these, where nothing specific points at them
MAX_LISTED = 10
SUSPECTED = 0.2  # a grounded critical cause at least this probable keeps a service from being called healthy

HURTING, NOT_HURTING, HARM_UNSEEN = UserImpact.HURTING, UserImpact.NOT_HURTING, UserImpact.NOT_MEASURED


def rank(
    rules: RuleSet, network: Network, checks: Sequence[Check], tail: Mapping[str, float] | None = None
) -> tuple[RankedCause, ...]:
    """The causes worth listing: named first, of these what makes the verdict, then by probability, severity, id.

    A named cause that another named one leads to comes after those that nothing explains. The probability of a named
    cause counts for as much as the stage that it acts on has of the tail (`tail`, by stage).
    """
    by_id = {check.id: check for check in checks}
    probabilities = {name: network.probability(name) for name in network.causes}
    grounded = {name for name, cause in network.causes.items() if _grounds(cause, rules, by_id)}

    sure = {name for name in grounded if probabilities[name] >= LIKELY}
    effects = {effect for name in sure for effect in network.causes[name].leads_to}

    def order(name: str) -> tuple[bool, bool, int, float, float, int, str]:
        cause = network.causes[name]
        named = name in sure
        weighed = probabilities[name] * (impact(cause.stage, tail or {}) if named else 1.0)
        first = -_weight(cause.severity, checks) if named else 1
        behind = named and name in effects
        rank = -SEVERITIES.index(cause.severity)
        return not named, behind, first, -weighed, -probabilities[name], rank, name

    floor = {name: LISTED if name in grounded else LISTED_UNGROUNDED for name in probabilities}
    ranked = sorted((name for name in probabilities if probabilities[name] >= floor[name]), key=order)
    return tuple(_ranked(network.causes[name], rules, network, checks) for name in ranked[:MAX_LISTED])


def _weight(severity: str, checks: Sequence[Check]) -> int:
    """How far a named cause of `severity` raises the verdict over what symptoms say by themselves; 0 for not at all."""
    pain = [check.severity for check in checks if check.kind != FindingKind.SPECIFIC and check.status == FIRED]
    known = max((SEVERITIES.index(level) for level in pain if level), default=-1)
    return max(0, SEVERITIES.index(severity) - known) if _counts(severity, checks) else 0


def _counts(severity: str, checks: Sequence[Check]) -> bool:
    """Whether a named cause of `severity` bears on the verdict: a lesser one does where user impact is not measured."""
    return severity == "critical" or bool(_harm_unseen(checks))


def _harm_unseen(checks: Sequence[Check]) -> Sequence[Check]:
    """The symptoms that would show user impact and were not evaluated."""
    impact = [check for check in checks if check.kind != FindingKind.SPECIFIC and check.required and check.severity]
    return [check for check in impact if check.status == NOT_EVALUATED]


def _grounds(cause: Cause, rules: RuleSet, checks: Mapping[str, Check]) -> tuple[str, ...]:
    """The findings that let this cause be named: without one it is not.

    Nor is it where something holds that rules it out: it may be the likeliest of all that is known, and then what is
    wrong is not known.
    """
    return () if ruled_out_by(cause, rules, checks) else grounding(cause, rules, checks)


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
    against += ruled_out_by(cause, rules, by_id)
    return RankedCause(
        id=cause.id,
        title=cause.title,
        tier=cause.tier,
        severity=cause.severity,
        status=cause.status,
        probability=round(probability, 4),
        confidence=_confidence(probability, named=named),
        named=named,
        grounded=grounded,
        impact=_standing(checks),
        subjects=tuple(dict.fromkeys(subject for check in own for subject in check.subjects)),
        evidence_for=tuple(check.id for check in sorted(fired, key=lambda check: -cause.expects[check.id])),
        evidence_against=tuple(against),
        unseen=tuple(check.id for check in expected if check.status == NOT_EVALUATED),
        rival=rival_name(of.rival),
        contributions=contributions(of),
        explanation=cause.explanation,
        confirm=cause.confirm,
        remediation=_remediation(cause, by_id),
        owner=cause.owner,
        playbooks=_playbooks(cause, by_id),
        keep_evidence=cause.keep_evidence,
    )


def _playbooks(cause: Cause, checks: Mapping[str, Check]) -> tuple[str, ...]:
    """Its playbooks, first those that fit what was found, such as a canary that can be rolled back."""
    if cause.status == CauseStatus.EXPERIMENTAL:
        return ()
    fitting = [playbook for name, playbook in cause.playbooks_when.items() if checks[name].status == FIRED]
    return tuple(dict.fromkeys((*fitting, *cause.playbooks)))


def _remediation(cause: Cause, checks: Mapping[str, Check]) -> str:
    """The advice that fits what was found, such as a configuration in which the usual advice is followed already."""
    fitting = (text for name, text in cause.remediation_when.items() if checks[name].status == FIRED)
    return next(fitting, cause.remediation)


def _confidence(probability: float, *, named: bool) -> Confidence:
    if not named:
        return Confidence.CANDIDATE
    return Confidence.CONFIRMED if probability >= CONFIRMED else Confidence.LIKELY


def _standing(checks: Sequence[Check]) -> UserImpact:
    """Whether users are affected, by the symptoms alone, and by the lesser ones only where a required one is unseen.

    A deep queue is no harm while P99 is seen to be within the SLO.
    """
    symptoms = [check for check in checks if check.outage or check.kind != FindingKind.SPECIFIC]
    fired = [check for check in symptoms if check.status == FIRED]
    if any(check.severity for check in fired):
        return HURTING
    if _harm_unseen(checks):
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
        kind = AnswerKind.NAMED if named else AnswerKind.ONE_OF
    else:
        kind = AnswerKind.UNEXPLAINED if any(check.status == FIRED for check in checks) else AnswerKind.NONE
    ruled_out = tuple(_ruled_out(rules, network, checks, unexplained))
    return Answer(kind, named or group, round(network.no_known_cause, 4), unexplained, ruled_out)


def _ruled_out(
    rules: RuleSet, network: Network, checks: Sequence[Check], unexplained: Sequence[str]
) -> Iterator[RuledOut]:
    """The causes that would explain some of `unexplained`, but are ruled out."""
    by_id = {check.id: check for check in checks}
    for name in sorted(network.ruled_out, key=lambda name: (-network.probability(name), name)):
        cause = network.causes[name]
        explains = tuple(found for found in grounding(cause, rules, by_id) if found in unexplained)
        if explains:
            yield RuledOut(name, explains, ruled_out_by(cause, rules, by_id))


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

    looked = [check for check in checks if check.status in (FIRED, CLEAR) or check.ln_lambda]
    if checks and all(check.status == NOT_APPLICABLE for check in checks):
        seen = TierCoverage.NOT_APPLICABLE
    elif not looked:
        seen = TierCoverage.UNSEEN
    else:
        seen = TierCoverage.PARTLY if _unseen_essentials(checks) else TierCoverage.SEEN
    return Tier(name, seen, having(FIRED), having(CLEAR), having(NOT_EVALUATED), having(NOT_APPLICABLE))


def _unseen_essentials(checks: Sequence[Check]) -> Sequence[Check]:
    """The required checks that were not evaluated. One that does not apply is as good as seen."""
    return [check for check in checks if check.required and check.status == NOT_EVALUATED]


def verdict(ranked: Sequence[RankedCause], tiers: Sequence[Tier], checks: Sequence[Check]) -> Verdict:
    """The level and one sentence. Health is claimed only where everything required was seen."""
    fired = [check for check in checks if check.status == FIRED and check.severity]
    counting = [cause for cause in ranked if cause.named and _counts(cause.severity, checks)]
    levels = [check.severity for check in fired] + [cause.severity for cause in counting]
    level = max(levels, key=SEVERITIES.index, default="")
    if level:
        return Verdict(Level(level), _sentence(level, ranked, checks), tuple(check.message for check in fired))
    doubts = list(_unseen(tiers, checks))
    doubts += [
        f"{cause.id} is possible ({cause.probability:.0%})"
        for cause in ranked
        if cause.grounded and not cause.named and cause.severity == "critical" and cause.probability >= SUSPECTED
    ]
    if doubts:
        return Verdict(
            Level.INCONCLUSIVE, "nothing critical found, but too little was seen to call it healthy", tuple(doubts)
        )
    present = [cause.title for cause in ranked if cause.named]
    clear = sum(check.status == CLEAR for check in checks)
    applying = sum(check.status != NOT_APPLICABLE for check in checks)
    message = f"healthy: {clear} of {applying} checks clear, every essential was seen"
    return Verdict(
        Level.HEALTHY, message + ("; a condition is present and does not hurt" if present else ""), tuple(present)
    )


def verdict_by_site(by_site: Verdict, by_shipped: Verdict, rules: RuleSet, checks: Sequence[Check]) -> Verdict:
    """The verdict by limits of the site, but healthy only where the shipped limits of required findings say so too.

    `by_shipped`: the verdict by those. Without this a limit that nothing reaches would make any service healthy.
    """
    if by_site.level is not Level.HEALTHY or by_shipped.level is Level.HEALTHY:
        return by_site
    moved = [limit for check in checks if check.required and check.site for limit in rules.finding[check.id].site]
    return Verdict(
        Level.INCONCLUSIVE,
        f"healthy by limits of the site only; by the shipped ones of essential checks it is {by_shipped.level}",
        tuple(f"site limit {limit.text}, shipped {limit.shipped}: {limit.rationale}" for limit in moved),
    )


def _unseen(tiers: Sequence[Tier], checks: Sequence[Check]) -> Iterator[str]:
    """Why the service cannot be called healthy: the essential checks that could not be evaluated, and why.

    Those that only lack a source are named together on one line.
    """
    lacking = _unseen_essentials(checks)
    for check in lacking:
        if not check.source_missing:
            yield f"{f'{check.tier}: ' if check.tier else ''}{check.id}: {check.reason}"
    if without_source := [check.id for check in lacking if check.source_missing]:
        yield f"no source was read that shows {', '.join(without_source)}"
    for tier in tiers:
        if tier.seen == TierCoverage.UNSEEN and not any(check.tier == tier.name for check in lacking):
            yield f"{tier.name}: nothing of it was measured"


def _sentence(level: str, ranked: Sequence[RankedCause], checks: Sequence[Check]) -> str:
    named = [cause for cause in ranked if cause.named]
    standing = _standing(checks)
    if not named:
        return f"{level}, cause unknown"
    if standing == HURTING:
        return f"{level}, cause found"
    return (
        f"{level}: condition found; user impact not measured"
        if standing == HARM_UNSEEN
        else f"{level}: condition found"
    )
