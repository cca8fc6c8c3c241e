"""The level that a quantity of an engine moved to, and when: in the history of its metrics or in its log lines.

Long series are judged by `detectors.level_shift.highest_run`. A paste of a few lines gives no such certainty; there a
change counts if all samples after it are beyond all before it, by half as much again.

A quantity that may be zero or full is first mapped so that a change by half means something: 0 waiting → 1, a cache
that is 99 % full → 33 times as tight as one that is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from latdoctor.detectors.level_shift import MIN_RATIO, MIN_STEPS, highest_run

MIN_SAMPLES = 4
_QUEUE, _WAITING = "queue.depth", 2


@dataclass(frozen=True, slots=True)
class LevelChange:
    """Samples first..last (indexes) are at another level than those before; `before` and `after` are the medians.

    `unsure`: samples by which the beginning may differ.
    """

    first: int
    last: int
    before: float
    after: float
    unsure: int = 1


Shape = Callable[[float], float]
# How a quantity is mapped so that worse is higher.
SHAPES: Mapping[str, Shape] = {
    "queue.depth": lambda value: value + 1,
    "error.ratio": lambda value: value + 0.02,
    "requests.running": lambda value: value + 1,
    "kv.usage": lambda value: 1 / (1.03 - min(value, 1.0)),
    "queue.time.mean": lambda value: value + 0.01,
    "output.token_rate": lambda value: 1 / (value + 1),
    "completion.rate": lambda value: 1 / (value + 0.2),
    "prefix_cache.hit_ratio": lambda value: 1 / (value + 0.02),
}
# What counts as worse at all: a queue of one request, or a cache that is half full, is none.
_MATTERS: Mapping[str, Callable[[float], bool]] = {
    "queue.depth": lambda value: value >= 2,
    "error.ratio": lambda value: value >= 0.05,
    "kv.usage": lambda value: value >= 0.8,
    "queue.time.mean": lambda value: value >= 0.1,
}


def worsening(signal: str, values: Sequence[float]) -> LevelChange | None:
    """The run of `values` in which `signal` is worst; None if nothing stands out, or its direction means nothing."""
    shape = SHAPES.get(signal)
    if shape is None or len(values) < MIN_SAMPLES:
        return None
    shaped = [shape(value) for value in values]
    found = _of_many(shaped) if len(values) >= MIN_STEPS else _of_few(shaped)
    if found is None and signal == _QUEUE:
        found = _never_empty(values)
    if found is None:
        return None
    first, last, unsure = found
    change = LevelChange(first, last, median(values[:first]), median(values[first : last + 1]), unsure)
    return change if _MATTERS.get(signal, _always)(change.after) else None


def _never_empty(values: Sequence[float]) -> tuple[int, int, int] | None:
    """The end of the log in which a queue that was mostly empty before never empties, however it grows."""
    first = len(values)
    while first and values[first - 1] >= _WAITING:
        first -= 1
    if first < MIN_SAMPLES or len(values) - first < MIN_SAMPLES or median(values[:first]) >= _WAITING:
        return None
    return first, len(values) - 1, 1


def _always(value: float) -> bool:
    return True


def _of_many(shaped: Sequence[float]) -> tuple[int, int, int] | None:
    run = highest_run(shaped)
    return None if run is None else (run.first, run.last, run.unsure)


def _of_few(shaped: Sequence[float]) -> tuple[int, int, int] | None:
    """The sharpest split: every later sample beyond every earlier one."""
    best: tuple[float, int] | None = None
    for first in range(1, len(shaped) - 1):
        ratio = min(shaped[first:]) / max(shaped[:first])
        if (
            ratio > 1
            and median(shaped[first:]) >= MIN_RATIO * median(shaped[:first])
            and (best is None or ratio > best[0])
        ):
            best = (ratio, first)
    return None if best is None else (best[1], len(shaped) - 1, 1)
