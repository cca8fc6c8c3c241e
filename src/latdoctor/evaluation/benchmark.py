"""The whole bench over a folder of recordings: every look diagnosed, the answers scored, the peers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import msgspec

from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import UNDECODABLE, BundleError
from latdoctor.evaluation.baselines import BASELINES
from latdoctor.evaluation.baselines.adapter import METRIC_SOURCES, ranking_method
from latdoctor.evaluation.diagnose_runs import DiagnosedVariant, VariantAnswer, diagnose_variants
from latdoctor.evaluation.ground_truth import FamilySplit
from latdoctor.evaluation.method_comparison import (
    MethodRanking,
    RankingMethod,
    comparable_runs,
    compare_methods,
    method_score,
)
from latdoctor.evaluation.scoring import OURSELVES, DiagnosisScores, MethodScore, score
from latdoctor.evaluation.store import RecordedRun
from latdoctor.evaluation.variants import PLAIN

METHODS: tuple[RankingMethod, ...] = tuple(
    ranking_method(peer, metrics) for metrics in METRIC_SOURCES for peer in BASELINES
)


AT_ONCE = 4  # runs handed to a process together


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is judged: the runs, by which rules, beside whom."""

    recorded: tuple[RecordedRun, ...]
    rules: RuleSet
    split: FamilySplit
    contestants: tuple[RankingMethod, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSelection:
    """The options that chose the runs, how many they are, and what became of those that are not recorded."""

    options: str
    runs: int
    spoiled_tries: int
    given_up: int


def diagnose_all(bench: Benchmark, say: Callable[[str], None], processes: int = 1) -> tuple[DiagnosedVariant, ...]:
    """Every look of every run, diagnosed. Raises BundleError for a damaged recording."""
    found: list[DiagnosedVariant] = []
    for number, one in enumerate(_each(bench, processes), 1):
        found += one
        if number % 25 == 0:
            say(f"{number} of {len(bench.recorded)} runs diagnosed")
    return tuple(found)


def _each(bench: Benchmark, processes: int) -> Iterator[tuple[DiagnosedVariant, ...]]:
    if processes <= 1 or len(bench.recorded) <= AT_ONCE:
        yield from (diagnose_variants(one, bench.rules) for one in bench.recorded)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(diagnose_variants, bench.recorded, [bench.rules] * len(bench.recorded), chunksize=AT_ONCE)


def scores(
    bench: Benchmark, found: Sequence[DiagnosedVariant], chosen: RunSelection, say: Callable[[str], None]
) -> DiagnosisScores:
    """The scores of what was found, with the peers'."""
    truths = {one.truth.run: one.truth for one in bench.recorded}
    given: list[VariantAnswer] = [one.answered for one in found]
    made = score(truths, given, bench.split)
    peers = (_ourselves(bench, given), *compare_methods(applicable_methods(bench), bench.recorded, bench.split, say))
    runs = msgspec.structs.replace(
        made.runs,
        spoiled_tries=chosen.spoiled_tries,
        given_up=chosen.given_up,
        planned=chosen.runs,
        chosen=chosen.options,
    )
    return msgspec.structs.replace(made, runs=runs, peers=peers)


def applicable_methods(bench: Benchmark) -> tuple[RankingMethod, ...]:
    """The contestants; none where only one cause occurs, as whoever knows no other is always right."""
    causes = {cause for one in comparable_runs(bench.recorded) for cause in one.truth.causes}
    return bench.contestants if len(causes) > 1 else ()


def _ourselves(bench: Benchmark, answered: Sequence[VariantAnswer]) -> MethodScore:
    """The diagnosis as one more contestant, on the runs that the others are judged on."""
    plain = {one.run: one for one in answered if one.view == PLAIN}
    found = ((one.truth, plain[one.truth.run]) for one in comparable_runs(bench.recorded) if one.truth.run in plain)
    given = [MethodRanking(truth, [cause.id for cause in own.ranked], own.seconds) for truth, own in found]
    return method_score(OURSELVES, "bundle", given, bench.split)


def read(path: Path) -> DiagnosisScores:
    """Scores that were written as JSON. Raises BundleError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=DiagnosisScores)
    except OSError as error:
        raise BundleError(f"the scores cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise BundleError(f"these are no scores of this version: {error}", where=str(path)) from error
