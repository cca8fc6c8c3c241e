"""The peers as contestants: fitted on the runs that may be looked at, each then ranks causes for any run.

Each enters twice: with the series as they were scraped, which is what a user of such a method has, and with the signals
that latdoctor makes of them. A run that a peer was trained on is read by a mapping that it had no part in, so that no
peer remembers it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.diagnosis import rule_loader
from latdoctor.errors import UNDECODABLE, BundleError, OperationError
from latdoctor.evaluation.baselines.methods import BaselineMethod, MetricScores, Signals, scored
from latdoctor.evaluation.baselines.metric_to_cause import (
    CauseMapping,
    Prior,
    TrainingRun,
    fit,
    from_rules,
    named,
    refitted,
)
from latdoctor.evaluation.baselines.scraped_inputs import by_metric, scraped
from latdoctor.evaluation.method_comparison import CauseRanker, RankingMethod
from latdoctor.evaluation.store import RecordedRun, signals

# What a peer makes of a run: computed here, or read from where a peer with an environment of its own wrote it.
Source = Callable[[RecordedRun], MetricScores]


@dataclass(frozen=True, slots=True)
class MetricSource:
    """What peers are given: the columns of a run, and what the rules say of them."""

    name: str
    read: Callable[[RecordedRun], Signals]
    prior: Callable[[], Prior]


def _of_rules() -> Prior:
    return from_rules(rule_loader.shipped())


# Columns are read once for all peers: that takes longer than any of them.
SCRAPED = MetricSource("scraped", cache(scraped), lambda: by_metric(_of_rules()))
SIGNALS = MetricSource("signals", cache(signals), _of_rules)
METRIC_SOURCES = (SCRAPED, SIGNALS)


def ranking_method(peer: BaselineMethod, metrics: MetricSource) -> RankingMethod:
    """`peer` with `metrics` as a contestant."""
    return from_source(peer.name, _source(peer, metrics), metrics)


def from_source(name: str, source: Source, metrics: MetricSource = SIGNALS) -> RankingMethod:
    """Whoever gives scores of metrics, as a contestant."""

    def fitted_on(training: Sequence[RecordedRun]) -> CauseRanker:
        prior = metrics.prior()
        learnt = {one.truth.run: TrainingRun(source(one), one.truth.causes) for one in training}
        reading = fit(name, list(learnt.values()), prior)

        def ranking(recorded: RecordedRun) -> Sequence[str]:
            own = learnt.get(recorded.truth.run)
            found = own.scored if own else source(recorded)
            if found.failed:
                raise OperationError(found.failed)
            return named(_unbiased(reading, recorded.truth.run, learnt, prior), found)

        return ranking

    return RankingMethod(name, metrics.name, fitted_on)


def readings(
    peers: Sequence[BaselineMethod], metrics: MetricSource, training: Sequence[RecordedRun]
) -> Iterator[CauseMapping]:
    """How each of `peers` is read with `metrics`, for the published table."""
    prior = metrics.prior()
    for peer in peers:
        source = _source(peer, metrics)
        yield fit(peer.name, [TrainingRun(source(one), one.truth.causes) for one in training], prior)


def _source(peer: BaselineMethod, metrics: MetricSource) -> Source:
    return lambda recorded: scored(peer, metrics.read(recorded), seed_of(recorded))


def seed_of(recorded: RecordedRun) -> int:
    """Which shuffle the columns of a run get: the same for every peer, and another for every run."""
    return zlib.crc32(recorded.truth.run.encode())


def _unbiased(reading: CauseMapping, run: str, learnt: Mapping[str, TrainingRun], prior: Prior) -> CauseMapping:
    if run not in learnt:
        return reading
    return refitted(reading, [training for name, training in learnt.items() if name != run], prior)


FOLDER = "peers"
MAX_BYTES = 256 << 20


class StoredScores(Struct, frozen=True, forbid_unknown_fields=True):
    """What one peer made of each run."""

    peer: str
    runs: dict[str, MetricScores]


def keep(folder: Path, kept: StoredScores) -> Path:
    """Writes it beside the recordings in `folder`. Raises BundleError."""
    path = folder / FOLDER / f"{kept.peer}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".json.new")
        made.write_bytes(msgspec.json.encode(kept, order="sorted"))
        made.replace(path)
    except OSError as error:
        raise BundleError(f"the scores cannot be written: {error.strerror}", where=str(path)) from error
    return path


def stored_methods(folder: Path) -> tuple[RankingMethod, ...]:
    """Who has kept scores beside the recordings in `folder`, in the order of names. Raises BundleError."""
    return tuple(_contestant(path) for path in sorted((folder / FOLDER).glob("*.json")))


def _contestant(path: Path) -> RankingMethod:
    kept = _read(path)

    def source(recorded: RecordedRun) -> MetricScores:
        run = recorded.truth.run
        return kept.runs.get(run) or MetricScores(kept.peer, failed=f"{kept.peer} has not scored {run}")

    return from_source(kept.peer, source)


def _read(path: Path) -> StoredScores:
    again = "run that peer again, or take the file away"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BundleError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path), next_step=again)
        return msgspec.json.decode(path.read_bytes(), type=StoredScores)
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise BundleError(f"these are no scores of a peer: {error}", where=str(path), next_step=again) from error
