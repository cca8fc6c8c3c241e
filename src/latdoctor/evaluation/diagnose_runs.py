"""Diagnoses every look of a recorded run. Neither the bundle nor what is passed on with it tells what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced

from msgspec import Struct

from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Collector
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.evaluate import FIRED
from latdoctor.diagnosis.result import Check, Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evaluation.store import RecordedRun
from latdoctor.evaluation.variants import BEFORE, PLAIN, Variant, variants
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.model import Evidence
from latdoctor.pipeline import case, seen

_STAMP = Stamp("bench", "")


class RankedCause(Struct, frozen=True):
    """One cause of an answer. `cited`: the specific findings that hold and that it expects."""

    id: str
    probability: float
    named: bool
    cited: tuple[str, ...] = ()


class VariantAnswer(Struct, frozen=True):
    """What was said of one look. `named` is the answer: one cause or several, or those of "one of"; empty: none.

    `moved` are the findings that hold in this look and did not before the incident; None where nobody looked before.
    `unknown` is what is named once the true causes are taken out of the catalogue; None where that was not tried.
    """

    run: str
    view: str
    kind: str
    named: tuple[str, ...]
    ranked: tuple[RankedCause, ...]
    verdict: str
    seconds: float  # from the bundle to its diagnosis; only the plain look reads everything anew for it
    moved: tuple[str, ...] | None = None
    unknown: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DiagnosedVariant:
    """One look with all that its ranking starts from."""

    answered: VariantAnswer
    checks: tuple[Check, ...]


def diagnose_variants(recorded: RecordedRun, rules: RuleSet) -> tuple[DiagnosedVariant, ...]:
    """One for each look of the run, the plain one first. Raises BundleError."""
    reading = _Diagnoser(rules, _remembering(COLLECTORS))
    with opened(recorded.bundle) as whole:
        looked = list(variants(whole, recorded.told, reading.collectors))
        fired_before = next((_fired(reading.of(view.bundle)[1]) for view in looked if view.name == BEFORE), None)
        return tuple(
            _answer(view, recorded.truth.run, recorded.truth.causes, fired_before, reading)
            for view in looked
            if view.name != BEFORE
        )


@dataclass(frozen=True, slots=True)
class _Diagnoser:
    """By what the looks of one run are read and diagnosed."""

    rules: RuleSet
    collectors: tuple[Collector, ...]

    def of(self, bundle: Bundle) -> tuple[Case, Diagnosis]:
        started = case(bundle, *seen(bundle, self.collectors))
        return started, diagnose(started, self.rules, _STAMP)


def _remembering(collectors: Sequence[Collector]) -> tuple[Collector, ...]:
    """These collectors, each parsing the same artifacts once: the looks of a run share most of them."""

    def remembering(collector: Collector) -> Collector:
        known: dict[tuple[Artifact, ...], Evidence] = {}

        def parse(artifacts: Sequence[Artifact]) -> Evidence:
            key = tuple(artifacts)
            if key not in known:
                known[key] = collector.parse(artifacts)
            return known[key]

        return replaced(collector, parse=parse)

    return tuple(remembering(collector) for collector in collectors)


def _fired(diagnosis: Diagnosis) -> frozenset[str]:
    return frozenset(check.id for check in diagnosis.checks if check.status == FIRED)


def _answer(
    view: Variant, run: str, causes: Sequence[str], fired_before: frozenset[str] | None, reading: _Diagnoser
) -> DiagnosedVariant:
    begun = time.perf_counter()
    started, found = reading.of(view.bundle)
    taken = time.perf_counter() - begun
    fired = _fired(found)
    answered = VariantAnswer(
        run=run,
        view=view.name,
        kind=found.answer.kind,
        named=found.answer.causes,
        ranked=tuple(_ranked(found, reading.rules, fired)),
        verdict=found.verdict.level,
        seconds=round(taken, 4),
        moved=None if fired_before is None else tuple(sorted(fired - fired_before)),
        unknown=_without(started, causes, reading.rules) if view.name == PLAIN and causes else None,
    )
    return DiagnosedVariant(answered, found.checks)


def _ranked(found: Diagnosis, rules: RuleSet, fired: frozenset[str]) -> Iterator[RankedCause]:
    for cause in found.causes:
        cited = tuple(name for name in cause.evidence_for if rules.finding[name].specific and name in fired)
        yield RankedCause(cause.id, cause.probability, cause.named, cited)


def _without(started: Case, causes: Sequence[str], rules: RuleSet) -> tuple[str, ...]:
    """What is named where nobody has ever heard of `causes`."""
    left = replaced(rules, causes=tuple(cause for cause in rules.causes if cause.id not in causes))
    return diagnose(started, left, _STAMP).answer.causes
