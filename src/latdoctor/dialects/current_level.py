"""The level of a quantity at the end of its history.

A mean over the history hides what has just gone wrong: a queue that was empty for four minutes and holds 140 requests
now has 28 on average. The last value alone is chance where the values swing: a queue of 0, 300, 0 is not empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import structs

from latdoctor.dialects.model import Dialect, Take
from latdoctor.units import format_value

_SWING = 3  # values


def current_level(values: Sequence[float], dimension: str) -> tuple[float, str]:
    """The last of `values` (at least one, by time), or the mean of the last three where these go up and down; and a
    note that compares it with the whole. `dimension` is that of the signal in the catalogue."""
    last = values[-_SWING:]
    value, what = values[-1], "last value"
    if len(last) == _SWING and (last[1] - last[0]) * (last[2] - last[1]) < 0:
        value, what = math.fsum(last) / _SWING, f"mean of the last {_SWING} values"
    if max(values) == min(values):
        return value, f"the same in all {len(values)} values"
    mean = format_value(math.fsum(values) / len(values), dimension)
    highest = format_value(max(values), dimension)
    return value, f"{what}; of {len(values)} values the mean is {mean}, the highest {highest}"


def of_now(dialect: Dialect) -> Dialect:
    """`dialect` with the current level of each gauge in place of its mean over the pages."""
    rules = tuple(
        tuple(structs.replace(one, take=Take.CURRENT) if one.take == Take.MEAN else one for one in options)
        for options in dialect.rules
    )
    return structs.replace(dialect, rules=rules)
