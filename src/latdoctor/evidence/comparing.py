"""One value against one limit: does the comparison hold, and how strongly does that speak?

A value or a limit may be a bound ("at least 1 s"): then the comparison is settled only where it comes out the same
wherever the real value may lie. At least x: `> L` holds if x > L and is open otherwise, `< L` fails if x >= L and is
open otherwise; the mirror of that for at most x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from latdoctor.evidence.conditions import Comparison
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Value
from latdoctor.evidence.signals import catalogue

LN_MAX = math.log(1000)
_LN_SPREAD = math.log(1.5)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a quantity: its value, or a bound of it. Several values are the list of an `in`."""

    values: tuple[Value, ...]
    bound: str = ""

    def range(self) -> tuple[float, float] | None:
        """From where to where the real value may lie; None for a text."""
        first = self.values[0]
        if isinstance(first, str):
            return None
        return -math.inf if self.bound == AT_MOST else first, math.inf if self.bound == AT_LEAST else first


def settled(comparison: Comparison, left: Known, right: Known) -> bool | None:
    """Whether `comparison` holds; None where a bound leaves it open."""
    spread, limits = left.range(), right.range()
    if not (left.bound or right.bound) or spread is None or limits is None:
        return _holds(comparison, left.values[0], right.values)
    if comparison.operator in ("<", "<=", ">", ">="):
        # Rising or falling in either side: the ends of the two ranges tell of everything between them.
        outcomes = {_holds(comparison, value, (limit,)) for value in spread for limit in limits}
        return outcomes.pop() if len(outcomes) == 1 else None
    return (comparison.operator == "!=") if _never_meet(comparison, spread, right) else None


def of_ratio(over: str, under: str) -> str | None:
    """The bound of a ratio of two positive quantities, from the bounds of both; None where nothing is known of it."""
    if not under or over == under == "":
        return over
    mirrored = AT_MOST if under == AT_LEAST else AT_LEAST
    return mirrored if over in ("", mirrored) else None


def _never_meet(comparison: Comparison, spread: tuple[float, float], right: Known) -> bool:
    """Whether no value of `spread` is equal to (or within the tolerance of) any limit."""
    if right.bound:
        return False
    numbers = [value for value in right.values if not isinstance(value, str)]
    reach = [(n - comparison.tolerance * abs(n), n + comparison.tolerance * abs(n)) for n in numbers]
    return all(high < spread[0] or low > spread[1] for low, high in reach)


def _holds(comparison: Comparison, value: Value, limit: tuple[Value, ...]) -> bool:
    operator = comparison.operator
    if operator in ("in", "=", "!="):
        return (value in limit) != (operator == "!=")
    first = limit[0]
    if isinstance(value, str) or isinstance(first, str):
        return False
    if operator == "within":
        return abs(value - first) <= comparison.tolerance * abs(first)
    return {"<": value < first, "<=": value <= first, ">": value > first, ">=": value >= first}[operator]


def ln_lambda(comparison: Comparison, value: Value, limit: Value, *, true: bool) -> float:
    """How strongly the evidence speaks for (+) or against (−) the comparison. Of a bound: no less than this."""
    crisp = LN_MAX if true else -LN_MAX
    kind = catalogue()[comparison.left.signal].kind
    if comparison.operator in ("in", "=", "!=", "within") or isinstance(value, str) or isinstance(limit, str):
        return crisp
    if kind == "p-value":
        return _ln_p(value) if true else 0.0
    rising = comparison.operator in (">", ">=")
    if comparison.sure is not None:
        clear, certain = comparison.sure
        edge = certain if (value > limit) == rising else clear
        return (LN_MAX if edge == certain else -LN_MAX) * min(1.0, abs((value - limit) / (edge - limit)))
    if limit <= 0 or kind == "flag":
        return crisp
    nearness = (math.log(value) - math.log(limit)) / _LN_SPREAD if value > 0 else -math.inf
    return max(-1.0, min(1.0, nearness if rising else -nearness)) * LN_MAX


def _ln_p(p: float) -> float:
    """Sellke, Bayarri and Berger: the most that a p-value can speak for the alternative, capped."""
    if p <= 0:
        return LN_MAX
    if p >= 1 / math.e:
        return 0.0
    return min(LN_MAX, -math.log(-math.e * p * math.log(p)))
