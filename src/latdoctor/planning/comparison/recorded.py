"""Compares what was recorded of two settings: results of loads, or logs of requests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from latdoctor.load.latencies import quantile
from latdoctor.load.summary import LoadResult
from latdoctor.planning.comparison.comparison import Comparison, Design, paired_comparison
from latdoctor.planning.comparison.effect import ComparisonVerdict, Quantity, unpaired_effect
from latdoctor.planning.comparison.run_figures import RunFigures, figures

SLICES = 20
_FEW = 100  # requests of a slice, of which one is beyond P99


class Recorded(Struct, frozen=True):
    """The requests of one side: unix seconds at which they ended, and latencies in seconds."""

    name: str
    times: tuple[float, ...]
    latencies: tuple[float, ...]


def compare_loads(
    names: tuple[str, str], a: Sequence[LoadResult], b: Sequence[LoadResult], quantity: Quantity, margin: float
) -> Comparison:
    """Paired where both sides were offered the same schedules, else run against run."""
    by_schedule = [{one.schedule: figures(one) for one in side} for side in (a, b)]
    common = sorted(by_schedule[0].keys() & by_schedule[1].keys())
    if len(common) == len(by_schedule[0]) == len(by_schedule[1]):
        return paired_comparison(
            names, [(by_schedule[0][one], by_schedule[1][one]) for one in common], quantity, margin
        )
    runs = [[figures(one) for one in side] for side in (a, b)]
    late = sum(bool(one.problems) for side in runs for one in side)
    return _unpaired(
        names,
        runs[0],
        runs[1],
        (quantity, margin),
        (
            "the runs of each side had loads of their own, of the same kind and rate",
            "runs do not depend on one another, and the logarithm of a run's figure varies normally",
        ),
        (f"the generator was late in {late} runs",) if late else (),
    )


def compare_requests(a: Recorded, b: Recorded, quantity: Quantity, margin: float) -> Comparison:
    """Slices of equal length of each side. Goodput and errors are not compared: latencies alone do not show them."""
    sides = [_slices(one) for one in (a, b)]
    length = min(max(one.times, default=0.0) - min(one.times, default=0.0) for one in (a, b)) / SLICES
    few = [one.name for one, slices in zip((a, b), sides, strict=True) if len(slices) < SLICES]
    return _unpaired(
        (a.name, b.name),
        sides[0],
        sides[1],
        (quantity, margin),
        (
            "both times had the same kind and rate of requests: a log does not show what else changed",
            f"slices of {length:.0f} s do not depend on one another: queues are much shorter than that",
        ),
        tuple(f"{name} has too few requests for {SLICES} slices of {_FEW}" for name in few),
    )


def _slices(one: Recorded) -> list[RunFigures]:
    """SLICES of equal length in time; those with too few requests are left out."""
    if not one.times:
        return []
    first, last = min(one.times), max(one.times)
    width = (last - first) / SLICES or 1.0
    parts: list[list[float]] = [[] for _ in range(SLICES)]
    for at, took in zip(one.times, one.latencies, strict=True):
        parts[min(SLICES - 1, int((at - first) / width))].append(took)
    return [RunFigures(quantile(part, 0.5), quantile(part, 0.99)) for part in map(sorted, parts) if len(part) >= _FEW]


def _unpaired(
    names: tuple[str, str],
    a: Sequence[RunFigures],
    b: Sequence[RunFigures],
    wanted: tuple[Quantity, float],
    assumptions: tuple[str, ...],
    problems: tuple[str, ...],
) -> Comparison:
    quantity, margin = wanted
    compared = [
        one
        for one in Quantity
        if one is not Quantity.ERRORS and not any(math.isnan(run.value(one)) for run in (*a, *b))
    ]
    effects = tuple(
        unpaired_effect(one, [run.value(one) for run in a], [run.value(one) for run in b], margin) for one in compared
    )
    chosen = next((one for one in effects if one.quantity is quantity), None)
    return Comparison(
        a=names[0],
        b=names[1],
        design=Design.UNPAIRED,
        quantity=quantity,
        verdict=ComparisonVerdict.INCONCLUSIVE if chosen is None or problems else chosen.verdict,
        ratio=chosen.ratio if chosen else None,
        interval=chosen.interval if chosen else None,
        pairs=min(len(a), len(b)),
        needed=None,
        margin=margin,
        effects=effects,
        assumptions=assumptions,
        problems=problems,
    )
