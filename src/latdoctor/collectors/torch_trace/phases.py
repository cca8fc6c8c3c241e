"""Where the warm-up of a trace ends and its steady state begins.

A process that starts creates the CUDA context, loads modules when a kernel is first launched, and fills the memory
cache of its framework. None of that describes the service in its steady state, so it is separated:

* Steps were marked (`ProfilerStep#N`, two or more): steady state begins where the first recorded step ends.
* One step was marked, and its number says that others went before it: it is steady from its beginning, or from the
  end of its last cold call.
* No steps: the second half of the kernels is steady, from the end of the last cold call that began before it. Caches
  fill early and stay filled, so whatever still goes on in the second half belongs to the service.

A cold call is a call other than an allocation, a copy or a synchronisation that keeps the GPU idle for 50 ms (a
`cudaFree`, which also waits and unmaps: 250 ms): in its stride no call takes that long, while creating a context and
loading a module take 0.1 s to many seconds.

Where the part left is too small, nothing is said about the steady state: without several steps it must hold 20 kernels
and a tenth of the time that calls and GPU work span, or else 500 kernels, which are several passes of most models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct

from latdoctor.collectors.torch_trace.event_names import CallKind, kind_of_call
from latdoctor.units import format_value

if TYPE_CHECKING:
    from latdoctor.collectors.torch_trace.intervals import Floats

COLD_CALL = 0.05  # s of idle GPU
COLD_FREE = 0.25
ENOUGH_TIME = 0.1  # of the active span
ENOUGH_KERNELS = 20
MANY_KERNELS = 500
_STEP_NUMBER = re.compile(r"ProfilerStep#(\d+)")
_COLD_KINDS = frozenset({CallKind.LAUNCH, CallKind.OTHER, CallKind.LOAD, CallKind.FREE})


class KernelStarts(Protocol):
    """When the kernels of the device judged began."""

    def middle(self) -> float: ...  # of the one in the middle
    def count_from(self, time: float) -> int: ...


class LongCall(Struct, frozen=True):
    """A call of the CUDA or HIP API; times in seconds since the trace began."""

    start: float
    end: float
    name: str

    @property
    def duration(self) -> float:
        return self.end - self.start


class TracePhases(Struct, frozen=True):
    """`steady` and `end` bound the steady state, seconds since the trace began. `why_not` is empty where enough of it
    is left to speak of; `rule` says by what the warm-up ended. `cold` are the calls that are the cold start.
    """

    steady: float
    end: float
    rule: str
    why_not: str
    cold: tuple[LongCall, ...]

    @property
    def seconds(self) -> float:
        return self.end - self.steady


def phases(
    active: tuple[float, float],
    kernels: KernelStarts,
    long_calls: tuple[LongCall, ...],
    busy_in: Callable[[Floats, Floats], Floats],
    steps: Mapping[str, tuple[float, float]],
) -> TracePhases:
    """Tells warm-up from steady state; `active` is from the first to the last call or GPU work.

    `long_calls` are those of 50 ms and more, `busy_in` returns how long the GPU was busy in each of some intervals.
    All times are in seconds since the trace began. Needs at least one kernel and one call.
    """
    first, end = active
    cold = _cold(long_calls, kernels, busy_in)
    cold_end = max((call.end for call in cold), default=-np.inf)
    recorded = sorted(steps.items(), key=lambda step: step[1])
    if len(recorded) > 1:
        name, (_, stop) = recorded[0]
        return TracePhases(stop, end, f"after the first recorded step ({name})", _too_short(stop, end), cold)
    if recorded:
        name, (start, _) = recorded[0]
        number = _STEP_NUMBER.match(name)
        if number is None or int(number[1]) == 0:
            return TracePhases(end, end, f"{name} is all warm-up", f"only the first step ({name}) was recorded", cold)
        steady, rule = max(start, cold_end), f"{name} is steady: steps went before it"
        return TracePhases(steady, end, rule, _too_little(steady, first, end, kernels.count_from(steady)), cold)
    steady = max(kernels.middle(), cold_end)
    rule = "no steps are marked: the second half of the kernels is taken as steady"
    left = kernels.count_from(steady)
    why_not = _too_little(steady, first, end, left)
    if not why_not and left < ENOUGH_KERNELS:
        why_not = f"no steps are marked, and only {left} kernels ran after the warm-up"
    return TracePhases(steady, end, rule, why_not, cold)


def _cold(
    long_calls: tuple[LongCall, ...], kernels: KernelStarts, busy_in: Callable[[Floats, Floats], Floats]
) -> tuple[LongCall, ...]:
    candidates = [call for call in long_calls if kind_of_call(call.name) in _COLD_KINDS]
    if not candidates:
        return ()
    half = kernels.middle()
    candidates = [call for call in candidates if call.start < half]
    starts, ends = (np.array([getattr(call, side) for call in candidates]) for side in ("start", "end"))
    idle = (ends - starts) - busy_in(starts, ends)
    limits = [COLD_FREE if kind_of_call(call.name) == CallKind.FREE else COLD_CALL for call in candidates]
    return tuple(call for call, time, limit in zip(candidates, idle.tolist(), limits, strict=True) if time >= limit)


def _too_short(steady: float, end: float) -> str:
    return "" if end > steady else "no call and no kernel came after the first recorded step"


def _too_little(steady: float, first: float, end: float, kernels: int) -> str:
    share = (end - steady) / (end - first) if end > first else 0.0
    if share >= ENOUGH_TIME or (kernels >= MANY_KERNELS and share > 0):
        return ""
    return f"the warm-up takes {format_value(1 - share, 'ratio')} of the time that calls and kernels span"
