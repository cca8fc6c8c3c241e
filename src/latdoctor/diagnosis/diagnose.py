"""From evidence to a Diagnosis: judge, rank, answer, verdict, next look. Pure: same evidence, same diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latdoctor import __version__
from latdoctor.conditions.evaluator import Facts
from latdoctor.diagnosis import onset as timeline
from latdoctor.diagnosis.cluster_onset import cluster_onset
from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.evaluate import Baseline, Provider, judge
from latdoctor.diagnosis.next_sources import next_looks
from latdoctor.diagnosis.noisy_or import Network
from latdoctor.diagnosis.onset import tail_shares
from latdoctor.diagnosis.result import SCHEMA_VERSION, Check, Diagnosis, RankedCause, Tier, Tool
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.diagnosis.service_name import queries_of, service_name
from latdoctor.diagnosis.verdict import answer, rank, verdict, verdict_by_site, walk
from latdoctor.diagnosis.vitals import vitals
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.catalogue import TIERS
from latdoctor.evidence.model import Coverage, CoverageStatus, Evidence, Window
from latdoctor.evidence.redaction.documents import without_secrets_in
from latdoctor.gap_code import GapCode


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a diagnosis starts from. `providers` list the sources of an unknown signal."""

    context: Context
    window: Window
    evidence: Evidence
    baseline: Mapping[tuple[str, str], float]
    coverage: tuple[Coverage, ...] = ()
    providers: tuple[Provider, ...] = ()


@dataclass(frozen=True, slots=True)
class Stamp:
    """What distinguishes two diagnoses of the same evidence: the id and the moment (RFC 3339 UTC)."""

    run_id: str
    at: str


@dataclass(frozen=True, slots=True)
class _Judged:
    """Findings and causes by one set of rules."""

    checks: tuple[Check, ...]
    network: Network
    ranked: tuple[RankedCause, ...]
    tiers: tuple[Tier, ...]

    @classmethod
    def of(cls, rules: RuleSet, facts: Facts, unread: tuple[Provider, ...]) -> _Judged:
        checks = judge(rules, facts, unread)
        network = Network.of(rules, checks)
        ranked = rank(rules, network, checks, tail_shares(facts.evidence))
        return cls(checks, network, ranked, walk(checks, TIERS))


def diagnose(case: Case, rules: RuleSet, stamp: Stamp) -> Diagnosis:
    """The diagnosis of `case` by `rules`, without credentials and prompts."""
    facts = Facts(case.evidence, slo_terms(case.context), case.baseline, {})
    unread = tuple(_unread(case))
    judged = _Judged.of(rules, facts, unread)
    checks, network, ranked, tiers = judged.checks, judged.network, judged.ranked, judged.tiers
    level = verdict(ranked, tiers, checks)
    if level.level is Level.HEALTHY and rules.with_shipped_essentials:
        shipped = _Judged.of(rules.with_shipped_essentials, facts, unread)
        level = verdict_by_site(level, verdict(shipped.ranked, shipped.tiers, shipped.checks), rules, checks)
    since = timeline.onset(case.evidence) or cluster_onset(case.evidence, checks, rules)
    made = Diagnosis(
        schema_version=SCHEMA_VERSION,
        tool=Tool("latdoctor", __version__),
        run_id=stamp.run_id,
        generated_at=stamp.at,
        target=case.context.target,
        window=case.window,
        evidence_window=_recorded(case.evidence),
        verdict=level,
        since=since,
        changes=timeline.changes(case.evidence, since),
        answer=answer(rules, network, ranked, checks),
        causes=ranked,
        tiers=tiers,
        checks=checks,
        next_looks=next_looks(rules, network, checks, [*unread, *_ungiven(case)]),
        coverage=case.coverage,
        gaps=case.evidence.gaps,
        vitals=vitals(case.evidence),
        slo_p99=case.context.slo_p99,
        slo_error_ratio=case.context.slo_error_ratio,
        service=service_name(case.context.target, case.evidence),
        queries=tuple(queries_of(checks, case.evidence)),
        disabled_causes=tuple(cause.id for cause in rules.causes if cause.disabled),
    )
    return without_secrets_in(made)


def _recorded(evidence: Evidence) -> Window:
    """The time of the evidence; with events before a boot, that of the logs from their first line to their last."""
    known = evidence.time
    if not any(gap.code == GapCode.BEFORE_BOOT for gap in evidence.gaps):
        return known
    spans = [known, *(span for clock in evidence.clocks for span in (clock.zoned, clock.in_utc))]
    moments = [moment for span in spans for moment in (span.start, span.end) if moment is not None]
    return Window(min(moments), max(moments)) if moments else known


def slo_terms(context: Context) -> Mapping[str, float]:
    """The SLO terms that are known."""
    terms = {"slo.p99": context.slo_p99, "slo.error_ratio": context.slo_error_ratio}
    return {name: value for name, value in terms.items() if value is not None}


def _ungiven(case: Case) -> Sequence[Provider]:
    """The baseline, where none was given: it names what was read."""
    if case.baseline:
        return ()
    seen = frozenset(reading.signal for reading in case.evidence.readings)
    return (Baseline("baseline", "--baseline FILE", "reads a file recorded while it was well", seen),)


def _unread(case: Case) -> Sequence[Provider]:
    read = {row.collector for row in case.coverage if row.status in (CoverageStatus.READ, CoverageStatus.PARTLY)}
    return [provider for provider in case.providers if provider.name not in read]
