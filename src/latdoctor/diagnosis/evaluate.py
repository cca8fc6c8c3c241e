"""Findings judged on the evidence: each becomes a Check that fired, is clear, or could not be evaluated, and why.

A finding is judged per subject. It holds if it holds for any, fails only if it fails for every expected one, and is
unknown otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from latdoctor.conditions.ast import SLO_TERMS, CountTerm, SignalTerm, against_baseline, comparisons, signals_of
from latdoctor.conditions.evaluator import (
    FAILS,
    HOLDS,
    OF_ZERO,
    UNKNOWN,
    Facts,
    Truth,
    candidates,
    evaluate,
    events_of,
    reading_of,
    show,
)
from latdoctor.diagnosis.codes import CheckStatus, ReasonCode
from latdoctor.diagnosis.covered_reports import with_covered
from latdoctor.diagnosis.result import Check, Reason
from latdoctor.diagnosis.rule_schema import Finding, RuleSet
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import is_unknown

FIRED, CLEAR = CheckStatus.FIRED, CheckStatus.CLEAR
NOT_EVALUATED, NOT_APPLICABLE = CheckStatus.NOT_EVALUATED, CheckStatus.NOT_APPLICABLE

PLACE = re.compile(r"\{([\w.]+)(?::(\w+))?\}")  # {signal}, {slo.p99}, or {event signal:field}
OPTIONAL = re.compile(r"\[([^\[\]]*)\]")  # left out where a place in it is unknown or empty


@dataclass(frozen=True, slots=True)
class Provider:
    """A source that may show certain signals: how to ask for it and what the look costs."""

    name: str
    ask: str
    cost: str
    signals: frozenset[str]

    def may_settle(self, finding: Finding) -> bool:
        """Whether a look by it shows anything that `finding` speaks of."""
        return not self.signals.isdisjoint(signals_of(finding.when))


@dataclass(frozen=True, slots=True)
class Baseline(Provider):
    """A baseline, which shows nothing of its own: it is what its `signals`, which were seen, are compared with."""

    def may_settle(self, finding: Finding) -> bool:
        """Whether all that `finding` compares with a baseline was seen."""
        compared = against_baseline(finding.when)
        return bool(compared) and compared <= self.signals


def judge(rules: RuleSet, facts: Facts, providers: tuple[Provider, ...]) -> tuple[Check, ...]:
    """Every finding of `rules` as a Check, in the order of their ids. `providers`: the sources that were not read."""
    checks = [_check(finding, facts, providers) for finding in rules.findings]
    return with_covered(checks, rules.finding, facts)


def _check(finding: Finding, facts: Facts, providers: tuple[Provider, ...]) -> Check:
    if finding.disabled:
        return _made(finding, NOT_EVALUATED, {}, (Reason(ReasonCode.DISABLED, finding.disabled),))
    inner, outer = candidates(finding.when, facts)
    truths = {subject: evaluate(finding.when, subject, facts) for subject in inner}
    # A server may be slow as a whole while the one model that reports its own latency is not.
    holding = _holding(truths) or _holding({subject: evaluate(finding.when, subject, facts) for subject in outer})
    if holding:
        return _made(finding, FIRED, holding, facts=facts)
    if truths and all(truth.status == FAILS for truth in truths.values()):
        return _made(finding, CLEAR, truths, facts=facts)
    # Only now: what was seen is never hidden, as an Xid beside a server that says it computes on the CPU.
    if _not_applicable(finding, facts):
        reason = Reason(ReasonCode.NOT_APPLICABLE, "does not apply to this target")
        return _made(finding, NOT_APPLICABLE, {}, (reason,))
    unknown = {subject: truth for subject, truth in truths.items() if truth.status == UNKNOWN}
    return _made(finding, NOT_EVALUATED, unknown, _reasons(finding, unknown, facts, providers))


def _holding(truths: Mapping[str, Truth]) -> Mapping[str, Truth]:
    return {subject: truth for subject, truth in truths.items() if truth.status == HOLDS}


def _not_applicable(finding: Finding, facts: Facts) -> bool:
    """Only on positive proof: the condition must hold wherever it can be judged."""
    condition = finding.not_applicable_when
    if condition is None:
        return False
    truths = [evaluate(condition, subject, facts) for subject in candidates(condition, facts)[0]]
    return bool(truths) and all(truth.status == HOLDS for truth in truths)


def _made(
    finding: Finding,
    status: CheckStatus,
    truths: Mapping[str, Truth],
    reasons: tuple[Reason, ...] = (),
    *,
    facts: Facts | None = None,
) -> Check:
    evaluated = status in (FIRED, CLEAR)
    # The subject that speaks loudest stands first: its numbers are the ones that `says` shows.
    ordered = sorted(truths, key=lambda subject: -truths[subject].ln_lambda) if evaluated else list(truths)
    return Check(
        id=finding.id,
        status=status,
        message=(_says(finding, ordered[0], facts) if facts and ordered else None) or _words(finding, status, truths),
        tier=finding.tier,
        kind=finding.kind,
        severity=finding.severity,
        required=finding.required,
        subjects=tuple(ordered),
        ln_lambda=max((truth.ln_lambda for truth in truths.values()), default=0.0) if evaluated else 0.0,
        atoms=tuple(atom for subject in ordered for atom in truths[subject].atoms),
        reason="; ".join(reason.message for reason in reasons),
        reasons=reasons,
        site=bool(finding.site),
        outage=finding.outage,
    )


def _words(finding: Finding, status: CheckStatus, truths: Mapping[str, Truth]) -> str:
    """What holds, where a number of the finding's own sentence is unknown; its id in words where nothing holds."""
    held = (atom for truth in truths.values() for atom in truth.atoms if status == FIRED and atom.status == HOLDS)
    known = ((catalogue().get(atom.signal), atom.shown) for atom in held)  # a count of events has no signal
    shown = dict.fromkeys(f"{signal.description}: {value}" for signal, value in known if signal and value)
    return ", ".join(shown) or finding.id.replace("-", " ")


def _says(finding: Finding, subject: str, facts: Facts) -> str | None:
    """The sentence with its numbers; None where one of them is not known, as the Xid of a log without Xids."""

    def whole_or_nothing(match: re.Match[str]) -> str:
        places = [_part(finding, place[1], place[2], subject, facts) for place in PLACE.finditer(match[1])]
        return match[1] if all(places) else ""

    message = OPTIONAL.sub(whole_or_nothing, finding.message)
    parts = {match[0]: _part(finding, match[1], match[2], subject, facts) for match in PLACE.finditer(message)}
    return None if None in parts.values() else PLACE.sub(lambda match: parts[match[0]] or "", message)


def _part(finding: Finding, name: str, field: str | None, subject: str, facts: Facts) -> str | None:
    """The text of one {place}; None where it is not known."""
    if name in SLO_TERMS:
        value = facts.slo.get(name)
        return None if value is None else show("latency.p99" if name == "slo.p99" else "error.ratio", value)
    if catalogue()[name].kind == SignalKind.EVENT:
        return _event_part(finding, name, field, subject, facts)
    reading = reading_of(_term(finding, name), subject, facts)
    return show(name, reading.value, reading.bound) if reading and not is_unknown(reading.value) else None


def _term(finding: Finding, signal: str) -> SignalTerm:
    """The signal as the finding reads it, with its label filter, so that the number shown is the number judged."""
    for comparison in comparisons(finding.when):
        if isinstance(comparison.left, SignalTerm) and comparison.left.signal == signal:
            return comparison.left
    return SignalTerm(signal)


def _event_part(finding: Finding, name: str, part: str | None, subject: str, facts: Facts) -> str | None:
    """A field (or the text) of the first event that the finding counts; None where it counts none."""
    for comparison in comparisons(finding.when):
        term = comparison.left
        if isinstance(term, CountTerm) and term.signal == name:
            counted = events_of(term, subject, facts)
            if counted:
                value = counted[0].fields.get(part, "") if part else counted[0].text
                return value if isinstance(value, str) else f"{value:.15g}"
    return None


def _reasons(
    finding: Finding, unknown: Mapping[str, Truth], facts: Facts, providers: tuple[Provider, ...]
) -> tuple[Reason, ...]:
    """Why `finding` is unknown, at most three reasons: what was measured and left open first."""
    open_points = dict.fromkeys(why for truth in unknown.values() for why in truth.unsettled)
    missing = {name for truth in unknown.values() for name in truth.missing}
    if not (open_points or missing):
        missing = set(signals_of(finding.when))
    reasons = [Reason(ReasonCode.UNSETTLED, why) for why in open_points]
    not_shown: list[str] = []
    for name in sorted(missing):
        found = _missing(finding, name, facts, providers)
        reasons.extend(found)
        if not found:
            not_shown.append(name)
    if not_shown:
        reasons.append(Reason(ReasonCode.NOT_SHOWN, f"nothing shows {', '.join(not_shown)}", signals=tuple(not_shown)))
    return tuple({reason.message: reason for reason in reversed(reasons)}.values())[::-1][:3]


def _missing(finding: Finding, name: str, facts: Facts, providers: tuple[Provider, ...]) -> tuple[Reason, ...]:
    """Why one term of a condition is unknown; empty where no source at hand shows it."""
    if name in SLO_TERMS:
        return (Reason(ReasonCode.NO_SLO, "no SLO given (--slo LIMIT)", ("--slo LIMIT",)),)
    if name == "baseline":
        return (_without_baseline(finding, facts),)
    if name.endswith(OF_ZERO):
        return (Reason(ReasonCode.ZERO_REFERENCE, f"nothing is a multiple of a {name}"),)
    gaps = facts.evidence.gaps_by_signal.get(name, ())
    if gaps:
        return tuple(Reason(ReasonCode.GAP, gap.message, signals=(name,)) for gap in gaps[:2])
    options = tuple(provider.ask for provider in providers if name in provider.signals)
    if options:
        return (Reason(ReasonCode.SOURCE_NOT_GIVEN, f"needs {' or '.join(options)}", options, (name,)),)
    return ()


def _without_baseline(finding: Finding, facts: Facts) -> Reason:
    """Why a comparison with the baseline could not be made."""
    if not facts.baseline:
        return Reason(ReasonCode.NO_BASELINE, "no baseline given (--baseline FILE)", ("--baseline FILE",))
    compared = against_baseline(finding.when)
    absent = compared - {signal for signal, _ in facts.baseline}
    if absent:
        return Reason(ReasonCode.NOT_IN_BASELINE, f"the baseline has no {', '.join(sorted(absent))}")
    return Reason(ReasonCode.NOT_IN_BASELINE, f"the baseline has no {', '.join(sorted(compared))} of this subject")
