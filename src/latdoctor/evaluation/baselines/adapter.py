"""Baselines as ranking methods: fitted on the runs of tuned families, each then ranks causes for any run.

Each is run twice: on the scraped series, which a user of such a method has, and on the signals that latdoctor derives
from them. A training run is ranked by a mapping fitted without it, so no method memorises it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct, field

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis import rule_loader
from latdoctor.errors import BundleError, OperationError
from latdoctor.evaluation.baselines.inputs import by_metric, scraped, signals
from latdoctor.evaluation.baselines.learned_cause_mapping import (
    CauseMapping,
    Prior,
    TrainingRun,
    fit,
    from_rules,
    named,
    refitted,
)
from latdoctor.evaluation.baselines.methods import BaselineMethod, MetricScores, Signals, scored
from latdoctor.evaluation.method_comparison import CauseRanker, RankingMethod
from latdoctor.evaluation.scoring import MethodInput
from latdoctor.evaluation.store import RecordedRun

# The metric scores of a run: computed here, or read from the file of a method with its own environment.
Source = Callable[[RecordedRun], MetricScores]


@dataclass(frozen=True, slots=True)
class MetricSource:
    """An input of the baselines: the columns of a run, and the prior that the rules give for them."""

    name: MethodInput
    read: Callable[[RecordedRun], Signals]
    prior: Callable[[], Prior]


def _of_rules() -> Prior:
    return from_rules(rule_loader.shipped())


# Columns are read once for all baselines: reading takes longer than any of them.
SCRAPED = MetricSource(MethodInput.SCRAPED, cache(scraped), lambda: by_metric(_of_rules()))
SIGNALS = MetricSource(MethodInput.SIGNALS, cache(signals), _of_rules)
METRIC_SOURCES = (SCRAPED, SIGNALS)


def ranking_method(method: BaselineMethod, metrics: MetricSource) -> RankingMethod:
    """`method` on `metrics` as a ranking method."""
    return from_source(method.name, _source(method, metrics), metrics)


def from_source(name: str, source: Source, metrics: MetricSource = SIGNALS) -> RankingMethod:
    """A source of metric scores as a ranking method."""

    def fitted_on(training: Sequence[RecordedRun]) -> CauseRanker:
        prior = metrics.prior()
        learned = {one.run: TrainingRun(source(one), one.causes) for one in training}
        mapping = fit(name, list(learned.values()), prior)

        def ranking(recorded: RecordedRun) -> Sequence[str]:
            own = learned.get(recorded.run)
            found = own.scored if own else source(recorded)
            if found.failed:
                raise OperationError(found.failed)
            return named(_without_run(mapping, recorded.run, learned, prior), found)

        return ranking

    return RankingMethod(name, metrics.name, fitted_on)


def readings(
    methods: Sequence[BaselineMethod], metrics: MetricSource, training: Sequence[RecordedRun]
) -> Iterator[CauseMapping]:
    """The cause mapping of each of `methods` on `metrics`."""
    prior = metrics.prior()
    for method in methods:
        source = _source(method, metrics)
        yield fit(method.name, [TrainingRun(source(one), one.causes) for one in training], prior)


def _source(method: BaselineMethod, metrics: MetricSource) -> Source:
    return lambda recorded: scored(method, metrics.read(recorded), seed_of(recorded))


def seed_of(recorded: RecordedRun) -> int:
    """The seed that shuffles the columns of a run: the same for every baseline, another for every run."""
    return zlib.crc32(recorded.run.encode())


def _without_run(mapping: CauseMapping, run: str, learned: Mapping[str, TrainingRun], prior: Prior) -> CauseMapping:
    if run not in learned:
        return mapping
    return refitted(mapping, [training for name, training in learned.items() if name != run], prior)


FOLDER = "peers"
MAX_BYTES = 256 << 20


class StoredScores(Struct, frozen=True, forbid_unknown_fields=True):
    """The metric scores of one method for each run."""

    method: str = field(name="peer")
    runs: dict[str, MetricScores]


def keep(folder: Path, kept: StoredScores) -> Path:
    """Write the scores to `folder/peers`. Raises BundleError."""
    path = folder / FOLDER / f"{kept.method}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".json.new")
        part.write_bytes(msgspec.json.encode(kept, order="sorted"))
        part.replace(path)
    except OSError as error:
        raise BundleError(f"the scores cannot be written: {error.strerror}", where=str(path)) from error
    return path


def stored_methods(folder: Path) -> tuple[RankingMethod, ...]:
    """The methods with stored scores in `folder/peers`, sorted by name. Raises BundleError."""
    return tuple(_stored_method(path) for path in sorted((folder / FOLDER).glob("*.json")))


def _stored_method(path: Path) -> RankingMethod:
    kept = _read(path)

    def source(recorded: RecordedRun) -> MetricScores:
        run = recorded.run
        return kept.runs.get(run) or MetricScores(kept.method, failed=f"{kept.method} has no scores for {run}")

    return from_source(kept.method, source)


def _read(path: Path) -> StoredScores:
    again = "run that method again, or delete the file"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BundleError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path), next_step=again)
        return msgspec.json.decode(path.read_bytes(), type=StoredScores)
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise BundleError(f"not the scores of a method: {error}", where=str(path), next_step=again) from error
