"""The unit of durations that a log writes as bare integers, decided by the order of its lines.

Apache notes when a request came (`%t`) and writes its line when it has ended: the times of the lines jump back where
requests overlap. Only the right unit of `%D`, added to them, puts the lines in order. A log whose times are in order
already says nothing about the unit, and neither does one that no unit puts in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.collectors.access_log.requests import RequestColumns

UNITS = (1e-6, 1e-3)  # of Apache; of Tomcat and others
_FEWEST = 5  # lines that jump back
_LEFT = 0.1  # share of them that may still do so in the right unit
_SLACK = 1.5  # seconds; the times of the lines are whole seconds


def decide_unit(requests: RequestColumns) -> float | None:
    """The unit in seconds of `requests.bare`; None if the order of the lines does not decide it."""
    rows = [row for row, bare in enumerate(requests.bare) if bare >= 0 and requests.ended[row] >= 0]
    starts = [requests.ended[row] for row in rows]
    before = _jumps(starts)
    if before < _FEWEST:
        return None
    left = {unit: _jumps([start + requests.bare[row] * unit for start, row in zip(starts, rows, strict=True)])
            for unit in UNITS}  # fmt: skip
    fits = [unit for unit, count in left.items() if count <= _LEFT * before]
    return fits[0] if len(fits) == 1 else None


def apply_unit(requests: RequestColumns, unit: float) -> None:
    """Turn the bare numbers into durations, and the times of the lines from the start of a request into its end."""
    for row, bare in enumerate(requests.bare):
        if bare >= 0 and requests.duration[row] < 0:
            requests.duration[row] = bare * unit
            if requests.ended[row] >= 0:
                requests.ended[row] += bare * unit


def _jumps(times: Sequence[float]) -> int:
    """How many of `times` are earlier than the latest before them."""
    latest, count = float("-inf"), 0
    for time in times:
        count += time < latest - _SLACK
        latest = max(latest, time)
    return count
