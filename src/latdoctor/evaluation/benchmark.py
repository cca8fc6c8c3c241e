"""The diagnosis benchmark over recorded runs: diagnoses every variant, scores it, and compares other methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import BundleError
from latdoctor.evaluation.baselines.adapter import METRIC_SOURCES, ranking_method
from latdoctor.evaluation.baselines.methods import BASELINES
from latdoctor.evaluation.diagnose_runs import DiagnosedVariant, VariantAnswer, diagnose_variants
from latdoctor.evaluation.ground_truth import FamilySplit
from latdoctor.evaluation.method_comparison import (
    MethodRanking,
    RankingMethod,
    comparable_runs,
    compare_methods,
    method_score,
)
from latdoctor.evaluation.scoring import OURSELVES, DiagnosisScores, MethodInput, MethodScore, score
from latdoctor.evaluation.store import RecordedRun
from latdoctor.evaluation.variants import PLAIN

METHODS: tuple[RankingMethod, ...] = tuple(
    ranking_method(method, metrics) for metrics in METRIC_SOURCES for method in BASELINES
)


CHUNK = 4  # runs per task of a worker process


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The runs, the rules, and the other methods of a benchmark."""

    recorded: tuple[RecordedRun, ...]
    rules: RuleSet
    split: FamilySplit
    methods: tuple[RankingMethod, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSelection:
    """The options that select the runs, their number, and the losses among them."""

    options: str
    runs: int
    spoiled_tries: int
    given_up: int


def diagnose_all(bench: Benchmark, log: Callable[[str], None], processes: int = 1) -> tuple[DiagnosedVariant, ...]:
    """The diagnosis of every variant of every run. Raises BundleError for a damaged recording."""
    found: list[DiagnosedVariant] = []
    for number, one in enumerate(_each(bench, processes), 1):
        found += one
        if number % 25 == 0:
            log(f"{number} of {len(bench.recorded)} runs diagnosed")
    return tuple(found)


def _each(bench: Benchmark, processes: int) -> Iterator[tuple[DiagnosedVariant, ...]]:
    if processes <= 1 or len(bench.recorded) <= CHUNK:
        yield from (diagnose_variants(one, bench.rules) for one in bench.recorded)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(diagnose_variants, bench.recorded, [bench.rules] * len(bench.recorded), chunksize=CHUNK)


def scores(
    bench: Benchmark, found: Sequence[DiagnosedVariant], chosen: RunSelection, log: Callable[[str], None]
) -> DiagnosisScores:
    """The scores of the diagnoses and of the other methods."""
    ground_truths = {one.run: one.ground_truth for one in bench.recorded}
    answers: list[VariantAnswer] = [one.answered for one in found]
    diagnosed = score(ground_truths, answers, bench.split)
    others = compare_methods(applicable_methods(bench), bench.recorded, bench.split, log)
    runs = msgspec.structs.replace(
        diagnosed.runs,
        spoiled_tries=chosen.spoiled_tries,
        given_up=chosen.given_up,
        planned=chosen.runs,
        chosen=chosen.options,
    )
    return msgspec.structs.replace(diagnosed, runs=runs, methods=(_latdoctor(bench, answers), *others))


def applicable_methods(bench: Benchmark) -> tuple[RankingMethod, ...]:
    """The other methods; none where only one cause occurs: a method that knows no other is always right."""
    causes = {cause for one in comparable_runs(bench.recorded) for cause in one.causes}
    return bench.methods if len(causes) > 1 else ()


def _latdoctor(bench: Benchmark, answered: Sequence[VariantAnswer]) -> MethodScore:
    """The diagnosis as one more method, on the runs that the others are compared on."""
    plain = {one.run: one for one in answered if one.view == PLAIN}
    answers = [(one.causes, plain[one.run]) for one in comparable_runs(bench.recorded) if one.run in plain]
    ranked = [MethodRanking(causes, [one.id for one in own.ranked], own.seconds) for causes, own in answers]
    return method_score(OURSELVES, MethodInput.BUNDLE, ranked, bench.split)


def read(path: Path) -> DiagnosisScores:
    """Scores from a JSON file. Raises BundleError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=DiagnosisScores)
    except OSError as error:
        raise BundleError(f"the scores cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise BundleError(f"not the scores of this version: {error}", where=str(path)) from error
