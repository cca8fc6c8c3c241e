"""The modes of a bimodal latency, compared one by one: each may move alone, or requests may change sides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from latdoctor.detectors.latency_modes import find_peaks
from latdoctor.load.latencies import merged, quantile
from latdoctor.planning.comparison.effect import Effect, Quantity, paired_effect
from latdoctor.planning.comparison.run_figures import RunFigures

_PARTED = 1.5  # between two modes that are worth being compared apart
_FEW = 30  # requests of a mode in a run


class ModeEffect(Struct, frozen=True):
    """One mode: latencies below or above `split` seconds. `share_a`, `share_b`: of the requests in it.

    `effect`: of its median; None where a run has too few requests in it.
    """

    name: str
    split: float
    share_a: float
    share_b: float
    effect: Effect | None


def compared_modes(runs: Sequence[tuple[RunFigures, RunFigures]], margin: float) -> tuple[ModeEffect, ...]:
    """The two modes of all runs together; nothing where there is only one."""
    values = [(_values(a), _values(b)) for a, b in runs]
    pooled = np.array([one for pair in values for side in pair for one in side])
    if len(pooled) < 4 * _FEW:
        return ()
    _, peaks = find_peaks(pooled[pooled > 0])
    if peaks.high < _PARTED * peaks.low:
        return ()
    split = math.sqrt(peaks.low * peaks.high)
    return tuple(_mode(name, split, values, margin) for name in ("fast", "slow"))


def _mode(name: str, split: float, values: Sequence[tuple[list[float], list[float]]], margin: float) -> ModeEffect:
    def own(latencies: list[float]) -> list[float]:
        return [one for one in latencies if (one > split) is (name == "slow")]

    parts = [(own(a), own(b)) for a, b in values]
    shares = [
        sum(len(part[side]) for part in parts) / max(1, sum(len(pair[side]) for pair in values)) for side in (0, 1)
    ]
    enough = all(len(side) >= _FEW for part in parts for side in part)
    medians = [(_median(a), _median(b)) for a, b in parts] if enough else []
    effect = paired_effect(Quantity.P50, medians, margin) if enough else None
    return ModeEffect(name, split, shares[0], shares[1], effect)


def _median(values: list[float]) -> float:
    return quantile(sorted(values), 0.5) or math.nan


def _values(run: RunFigures) -> list[float]:
    return list(merged([run.histogram]).values()) if run.histogram else []
