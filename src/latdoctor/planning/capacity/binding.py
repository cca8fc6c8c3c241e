"""What the limit is bound by, from the metrics page of the server while a level failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from latdoctor.planning.capacity.level import Level

# The highest value of each signal over all subjects, while a level ran.
Signals = Mapping[str, float]
ReadSignals = Callable[[float], Signals]  # over so many seconds; empty where nothing is shown

_KV_FULL = 90.0  # percent of the KV cache
_MOSTLY_WAITING = 50.0  # percent of the time in the server


class Bound(StrEnum):
    """The binding constraint."""

    ERRORS = "errors"  # requests are refused or fail
    KV = "kv"  # the KV cache is full
    QUEUE = "queue"  # requests wait longer than they are computed
    COMPUTE = "compute"  # requests are computed for longer, beside one another
    UNKNOWN = "unknown"  # no page shows it
    NONE = "none"  # nothing failed


TEXT = {
    Bound.ERRORS: "refused or failed requests",
    Bound.KV: "the KV cache",
    Bound.QUEUE: "queue time",
    Bound.COMPUTE: "compute time",
    Bound.UNKNOWN: "what is not shown (no metrics page: --metrics URL)",
    Bound.NONE: "nothing that was reached",
}


def bound(failing: Level | None, signals: Signals, attainment: float) -> Bound:
    """`failing`: the lowest level that failed, `signals` what the server showed meanwhile."""
    if failing is None:
        return Bound.NONE
    late = failing.requests - failing.good
    if failing.errors > max(late / 2, failing.requests * (1 - attainment) / 2):
        return Bound.ERRORS
    if signals.get("kv.usage", 0.0) >= _KV_FULL or signals.get("kv.preemption_count", 0.0) > 0:
        return Bound.KV
    share = signals.get("queue.time_share")
    if share is None:
        return Bound.UNKNOWN
    return Bound.QUEUE if share >= _MOSTLY_WAITING else Bound.COMPUTE
