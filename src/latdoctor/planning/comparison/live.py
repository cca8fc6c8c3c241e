"""Loads two servers in turns with the same requests, as often as the difference that is looked for needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from latdoctor.planning.comparison.comparison import Comparison, paired_comparison
from latdoctor.planning.comparison.effect import Quantity, pairs_needed
from latdoctor.planning.comparison.run_figures import RunFigures

Log = Callable[[str], None]
Run = Callable[[int, int], RunFigures]  # the side (0: A, 1: B) and the seed of the load

FIRST = 5  # pairs from which the number of pairs is computed
_TRIES = 3  # of a run in which the generator was late


class LiveSettings(Struct, frozen=True):
    """`margin`: the relative difference that is looked for. `most`: pairs at most."""

    quantity: Quantity = Quantity.P99
    margin: float = 0.1
    most: int = 30
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LiveComparison:
    """A comparison of two servers by `run`."""

    names: tuple[str, str]
    settings: LiveSettings
    run: Run
    log: Log

    def compare(self) -> Comparison:
        """Raises what `run` raises."""
        settings, pairs = self.settings, []
        wanted = min(FIRST, settings.most)
        number = 0
        while number < wanted:
            pairs.append(self._pair(number))
            number += 1
            if number == FIRST:
                needed = pairs_needed(self._logs(pairs), math.log1p(settings.margin)) or settings.most
                wanted = max(FIRST, min(settings.most, needed))
                self.log(f"{needed} pairs find a difference of {settings.margin * 100:g} %; {wanted} are measured")
        return paired_comparison(self.names, pairs, settings.quantity, settings.margin, min(FIRST, len(pairs)))

    def _logs(self, pairs: list[tuple[RunFigures, RunFigures]]) -> list[float]:
        values = [(a.value(self.settings.quantity), b.value(self.settings.quantity)) for a, b in pairs]
        return [math.log(b / a) for a, b in values if a > 0 and b > 0]

    def _pair(self, number: int) -> tuple[RunFigures, RunFigures]:
        """A and B with the same seed; the order alternates, so that what drifts favours neither."""
        seed = self.settings.seed * 1000 + number
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found = {side: self._valid(side, seed) for side in order}
        quantity = self.settings.quantity
        self.log(f"pair {number + 1}: {quantity} {found[0].value(quantity):.4g} and {found[1].value(quantity):.4g}")
        return found[0], found[1]

    def _valid(self, side: int, seed: int) -> RunFigures:
        for _ in range(_TRIES):
            found = self.run(side, seed)
            if not found.problems:
                break
        return found
