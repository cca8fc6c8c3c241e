"""The input of PyRCA's HT: columns without gaps, and a causal graph derived from the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latdoctor.evaluation.baselines.methods import Signals, correlation_of_ranks, is_latency, signal_of, target
from latdoctor.evidence.catalogue import TIERS, catalogue

Values = NDArray[np.float64]
PARENTS = 3
PER_PARENT = 4  # seconds before the incident that a regression needs for each parent
GAPS = 0.2  # of a column, at most
LEAST = 5  # seconds before the incident to train on


@dataclass(frozen=True)
class MethodColumns:
    """Columns without gaps; `edges` lead from cause to effect. `latency` is one of the names."""

    names: tuple[str, ...]
    before: Values  # seconds × columns
    incident: Values
    edges: tuple[tuple[str, str], ...]
    latency: str


def method_columns(signals: Signals) -> MethodColumns:
    """Raises ValueError without a latency, or with too little data to train on."""
    latency = target(signals)
    if latency is None:
        raise ValueError("no latency is known")
    whole = {name: filled for name, both in signals.items() if (filled := _filled(both, name == latency)) is not None}
    names = tuple(name for name in whole if name == latency or not is_latency(name))
    if latency not in names or len(names) < 2:
        raise ValueError("too few columns are known throughout")
    before, incident = (np.column_stack([whole[name][side] for name in names]) for side in (0, 1))
    if len(before) < LEAST:
        raise ValueError(f"{len(before)} seconds before the incident are too few to train on")
    return MethodColumns(names, before, incident, tuple(_edges(names, before, latency)), latency)


def _filled(both: tuple[Values, Values], required: bool) -> tuple[Values, Values] | None:
    """Both sides without gaps. None for a column with too many, or constant before, unless it is `required`."""
    known = min(float(np.isfinite(side).mean()) if len(side) else 0.0 for side in both)
    if not known or (known < 1 - GAPS and not required):
        return None
    first, second = (_forward(side) for side in both)
    return None if np.ptp(first) == 0 and not required else (first, second)


def _forward(values: Values) -> Values:
    known = np.isfinite(values)
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    filled: Values = values[np.where(last < 0, int(np.argmax(known)), last)]
    return filled


def _edges(names: Sequence[str], before: Values, latency: str) -> Iterator[tuple[str, str]]:
    """For each column the few of lower tiers with the highest rank correlation before the incident."""
    level = {name: len(TIERS) if name == latency else TIERS.index(_tier(name)) for name in names}
    for column, name in enumerate(names):
        lower = [index for index, other in enumerate(names) if level[other] < level[name]]
        close = {index: abs(correlation_of_ranks(before[:, index], before[:, column])) for index in lower}
        nearest = sorted(close, key=lambda index: (-close[index], names[index]))[: _most(len(before))]
        yield from ((names[index], name) for index in nearest if close[index] > 0)


def _most(seconds: int) -> int:
    """The number of parents that a regression on so many seconds can have."""
    return min(PARENTS, seconds // PER_PARENT)


def _tier(name: str) -> str:
    known = catalogue().get(signal_of(name))
    return known.tier if known else TIERS[-1]
