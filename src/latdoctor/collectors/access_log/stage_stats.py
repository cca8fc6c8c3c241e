"""Means, quantiles, shares and series of the stages of one replica's requests, and their time for each token."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from latdoctor.collectors.access_log.replica_stats import ENOUGH, ReplicaStats, nearest_rank
from latdoctor.collectors.access_log.stages import SIGNALS_OF, StageSignals
from latdoctor.evidence.model import Evidence, Reading, Series

SIGNALS = (
    *(signal for one in SIGNALS_OF.values() for signal in (one.mean, one.p99) if signal),
    "stage.time_share", "tpot.mean", "tpot.p99",
)  # fmt: skip


def stage_evidence(stats: ReplicaStats) -> Evidence:
    """The times of the stages that have a signal; requests whose duration is no latency are left out."""
    known = {name: signals for name in stats.requests.stages if (signals := SIGNALS_OF.get(name)) is not None}
    return Evidence(
        readings=tuple(
            reading
            for found in (*(_readings(stats, name, one) for name, one in known.items()), _per_token(stats))
            for reading in found
        ),
        series=tuple(series for name, one in known.items() if one.mean for series in _series(stats, name, one.mean)),
    )


def _times(stats: ReplicaStats, name: str, rows: Sequence[int]) -> dict[int, float]:
    """The known times in a stage, by row."""
    found = ((row, stats.requests.stage(name, row)) for row in rows if stats.is_latency(row))
    return {row: seconds for row, seconds in found if seconds >= 0}


def _readings(stats: ReplicaStats, name: str, signals: StageSignals) -> Iterator[Reading]:
    found = _times(stats, name, stats.recent)
    if not found:
        return
    note, total = f"of {len(found)} requests", math.fsum(found.values())
    if signals.mean:
        yield stats.reading(signals.mean, total / len(found), note)
    if signals.p99 and len(found) >= ENOUGH:
        yield stats.reading(signals.p99, nearest_rank(sorted(found.values()), 0.99), note)
    whole = math.fsum(stats.requests.duration[row] for row in found)
    if signals.in_total and whole > 0:
        labels = (("stage", str(name)),)
        yield stats.reading("stage.time_share", min(1.0, total / whole), note, labels=labels)


def _series(stats: ReplicaStats, name: str, signal: str) -> Iterator[Series]:
    points = [
        (end, math.fsum(found.values()) / len(found))
        for end, rows in stats.steps()
        if (found := _times(stats, name, rows))
    ]
    if len(points) > 1:
        yield stats.series(signal, [end for end, _ in points], [mean for _, mean in points])


def _per_token(stats: ReplicaStats) -> Iterator[Reading]:
    found = sorted(value for row in stats.recent if (value := stats.requests.per_token[row]) >= 0)
    if not found:
        return
    note = f"of {len(found)} requests"
    yield stats.reading("tpot.mean", math.fsum(found) / len(found), note)
    if len(found) >= ENOUGH:
        yield stats.reading("tpot.p99", nearest_rank(found, 0.99), note)
