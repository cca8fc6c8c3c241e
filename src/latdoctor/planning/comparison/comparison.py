"""The result of a comparison, in the JSON of `latdoctor compare`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from latdoctor.planning.comparison.effect import ComparisonVerdict, Effect, Quantity, paired_effect
from latdoctor.planning.comparison.latency_modes import ModeEffect, compared_modes
from latdoctor.planning.comparison.run_figures import RunFigures

SCHEMA_VERSION = "1"


class Design(StrEnum):
    """How the two sides were measured."""

    PAIRED = "paired"  # the same load on both, one run after the other
    UNPAIRED = "unpaired"  # runs or slices of time of each side, under loads of their own


class Comparison(Struct, frozen=True):
    """B against A. `verdict`, `ratio` and `interval` are those of `quantity`; `effects` has all quantities.

    `pairs`: of runs; of slices of each side where it is unpaired. `needed`: pairs that would find a difference of
    `margin`. `assumptions`: what must hold for the interval to be right. `problems`: what speaks against it.
    """

    a: str
    b: str
    design: Design
    quantity: Quantity
    verdict: ComparisonVerdict
    ratio: float | None
    interval: tuple[float, float] | None
    pairs: int
    needed: int | None
    margin: float
    effects: tuple[Effect, ...]
    modes: tuple[ModeEffect, ...] = ()
    assumptions: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    schema_version: str = SCHEMA_VERSION


PAIRED_ASSUMPTIONS = (
    "both were asked the same requests at the same intervals, in turns, and nothing else changed between the turns",
    "the logarithm of the ratio of a pair varies normally",
)


def paired_comparison(
    names: tuple[str, str],
    runs: Sequence[tuple[RunFigures, RunFigures]],
    quantity: Quantity,
    margin: float,
    known: int | None = None,
) -> Comparison:
    """`runs`: pairs of runs of A and B. `known`: see `paired_effect`."""
    effects = tuple(
        paired_effect(one, [(a.value(one), b.value(one)) for a, b in runs], margin, known) for one in Quantity
    )
    chosen = next(one for one in effects if one.quantity is quantity)
    late = sum(bool(one.problems) for pair in runs for one in pair)
    return Comparison(
        a=names[0],
        b=names[1],
        design=Design.PAIRED,
        quantity=quantity,
        verdict=ComparisonVerdict.INCONCLUSIVE if late else chosen.verdict,
        ratio=chosen.ratio,
        interval=chosen.interval,
        pairs=len(runs),
        needed=chosen.needed,
        margin=margin,
        effects=effects,
        modes=compared_modes(runs, margin),
        assumptions=PAIRED_ASSUMPTIONS,
        problems=(f"the generator was late in {late} of {2 * len(runs)} runs",) if late else (),
    )
