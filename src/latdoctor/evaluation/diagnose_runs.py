"""Diagnoses every variant of a recorded run. Neither the bundle nor its context contains the ground truth."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced

from msgspec import Struct

from latdoctor.case_from_bundle import case, seen
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Collector
from latdoctor.diagnosis.codes import AnswerKind, Level
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.evaluate import FIRED
from latdoctor.diagnosis.result import Check, Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evaluation.store import RecordedRun
from latdoctor.evaluation.variants import BEFORE, PLAIN, Variant, variants
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.model import Evidence

_STAMP = Stamp("bench", "")


class RankedCause(Struct, frozen=True):
    """A ranked cause. `cited`: the specific findings that hold and that it expects."""

    id: str
    probability: float
    named: bool
    cited: tuple[str, ...] = ()


class VariantAnswer(Struct, frozen=True):
    """The diagnosis of one variant. `named` are the causes of the answer; empty: none.

    `moved` are the findings that hold and did not before the incident; None: not observed before. `unknown` are the
    causes that are named with the injected ones removed from the catalogue; None: not tried.
    """

    run: str
    view: str
    kind: AnswerKind
    named: tuple[str, ...]
    ranked: tuple[RankedCause, ...]
    verdict: Level
    seconds: float  # from bundle to diagnosis; only the plain variant parses all artifacts
    moved: tuple[str, ...] | None = None
    unknown: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DiagnosedVariant:
    """A diagnosed variant with the checks that its ranking is computed from."""

    answered: VariantAnswer
    checks: tuple[Check, ...]


def diagnose_variants(recorded: RecordedRun, rules: RuleSet) -> tuple[DiagnosedVariant, ...]:
    """The diagnosis of every variant of the run, the plain one first. Raises BundleError."""
    diagnoser = _Diagnoser(rules, _caching(COLLECTORS))
    with opened(recorded.bundle) as whole:
        observed = list(variants(whole, recorded.context, diagnoser.collectors))
        fired_before = next(
            (_fired(diagnoser.diagnose(view.bundle)[1]) for view in observed if view.name == BEFORE), None
        )
        return tuple(
            _answer(view, recorded.run, recorded.causes, fired_before, diagnoser)
            for view in observed
            if view.name != BEFORE
        )


@dataclass(frozen=True, slots=True)
class _Diagnoser:
    """The rules and collectors of one run's diagnoses."""

    rules: RuleSet
    collectors: tuple[Collector, ...]

    def diagnose(self, bundle: Bundle) -> tuple[Case, Diagnosis]:
        started = case(bundle, *seen(bundle, self.collectors))
        return started, diagnose(started, self.rules, _STAMP)


def _caching(collectors: Sequence[Collector]) -> tuple[Collector, ...]:
    """`collectors` with cached parsing: the variants of a run share most artifacts."""

    def caching(collector: Collector) -> Collector:
        known: dict[tuple[Artifact, ...], Evidence] = {}

        def parse(artifacts: Sequence[Artifact]) -> Evidence:
            key = tuple(artifacts)
            if key not in known:
                known[key] = collector.parse(artifacts)
            return known[key]

        return replaced(collector, reader=lambda: replaced(collector.reader(), parse=parse))

    return tuple(caching(collector) for collector in collectors)


def _fired(diagnosis: Diagnosis) -> frozenset[str]:
    return frozenset(check.id for check in diagnosis.checks if check.status == FIRED)


def _answer(
    view: Variant, run: str, causes: Sequence[str], fired_before: frozenset[str] | None, diagnoser: _Diagnoser
) -> DiagnosedVariant:
    begun = time.perf_counter()
    started, found = diagnoser.diagnose(view.bundle)
    taken = time.perf_counter() - begun
    fired = _fired(found)
    answered = VariantAnswer(
        run=run,
        view=view.name,
        kind=found.answer.kind,
        named=found.answer.causes,
        ranked=tuple(_ranked(found, diagnoser.rules, fired)),
        verdict=found.verdict.level,
        seconds=round(taken, 4),
        moved=None if fired_before is None else tuple(sorted(fired - fired_before)),
        unknown=_without(started, causes, diagnoser.rules) if view.name == PLAIN and causes else None,
    )
    return DiagnosedVariant(answered, found.checks)


def _ranked(found: Diagnosis, rules: RuleSet, fired: frozenset[str]) -> Iterator[RankedCause]:
    for cause in found.causes:
        cited = tuple(name for name in cause.evidence_for if rules.finding[name].specific and name in fired)
        yield RankedCause(cause.id, cause.probability, cause.named, cited)


def _without(started: Case, causes: Sequence[str], rules: RuleSet) -> tuple[str, ...]:
    """The causes that are named with `causes` removed from the catalogue."""
    left = replaced(rules, causes=tuple(cause for cause in rules.causes if cause.id not in causes))
    return diagnose(started, left, _STAMP).answer.causes
