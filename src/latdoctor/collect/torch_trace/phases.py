"""Where the warm-up of a trace ends and its steady state begins.

A process that starts creates the CUDA context, loads modules when a kernel is first launched, and fills the memory
cache of its framework. None of that says anything about the service in its stride, so it is told apart:

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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latdoctor.collect.torch_trace.api_calls import FREE, LAUNCH, OTHER
from latdoctor.units import format_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from latdoctor.collect.torch_trace.intervals import Floats, Intervals

COLD_CALL = 0.05  # s of idle GPU
COLD_FREE = 0.25
ENOUGH_TIME = 0.1  # of the active span
ENOUGH_KERNELS = 20
MANY_KERNELS = 500
_STEP_NUMBER = re.compile(r"ProfilerStep#(\d+)")


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of the CUDA or HIP API, one row each, in file order; times in seconds since the trace began."""

    starts: Floats
    ends: Floats
    label: NDArray[np.int32]
    names: tuple[str, ...]
    kinds: tuple[str, ...]  # of each name

    def __len__(self) -> int:
        return len(self.starts)

    def are(self, *kinds: str) -> NDArray[np.bool_]:
        """For each call, is it one of these kinds?"""
        import numpy as np

        return np.array([kind in kinds for kind in self.kinds], dtype=bool)[self.label]

    def name(self, index: int) -> str:
        return self.names[int(self.label[index])]


@dataclass(frozen=True, slots=True)
class Phases:
    """`steady` and `end` bound the steady state, seconds since the trace began. `why_not` is empty where enough of it
    is left to speak of; `rule` says by what the warm-up ended. `cold` picks the calls that are the cold start.
    """

    steady: float
    end: float
    rule: str
    why_not: str
    cold: NDArray[np.bool_]

    @property
    def seconds(self) -> float:
        return self.end - self.steady


def phases(calls: Calls, kernel_starts: Floats, active: Intervals, steps: dict[str, tuple[float, float]]) -> Phases:
    """Tells warm-up from steady state; `active` is the GPU at work, `steps` are in seconds like everything else.

    Needs at least one kernel and one call.
    """
    import numpy as np

    begins = np.sort(kernel_starts)
    half = float(begins[len(begins) // 2])
    cold = _cold(calls, active) & (calls.starts < half)
    cold_end = float(calls.ends[cold].max()) if cold.any() else -np.inf
    first = min(float(active.starts[0]), float(calls.starts.min()))
    end = max(float(active.ends[-1]), float(calls.ends.max()))
    recorded = sorted(steps.items(), key=lambda step: step[1])
    if len(recorded) > 1:
        name, (_, stop) = recorded[0]
        return Phases(stop, end, f"after the first recorded step ({name})", _too_short(stop, end), cold)
    if recorded:
        name, (start, _) = recorded[0]
        number = _STEP_NUMBER.match(name)
        if number is None or int(number[1]) == 0:
            return Phases(end, end, f"{name} is all warm-up", f"only the first step ({name}) was recorded", cold)
        steady, rule = max(start, cold_end), f"{name} is steady: steps went before it"
        return Phases(steady, end, rule, _too_little(steady, first, end, _after(begins, steady)), cold)
    steady, rule = max(half, cold_end), "no steps are marked: the second half of the kernels is taken as steady"
    left = _after(begins, steady)
    why_not = _too_little(steady, first, end, left)
    if not why_not and left < ENOUGH_KERNELS:
        why_not = f"no steps are marked, and only {left} kernels ran after the warm-up"
    return Phases(steady, end, rule, why_not, cold)


def _after(begins: Floats, time: float) -> int:
    return int((begins >= time).sum())


def _cold(calls: Calls, active: Intervals) -> NDArray[np.bool_]:
    import numpy as np

    idle = (calls.ends - calls.starts) - active.within(calls.starts, calls.ends)
    limit = np.where(calls.are(FREE), COLD_FREE, COLD_CALL)
    return calls.are(LAUNCH, OTHER, FREE) & (idle >= limit)


def _too_short(steady: float, end: float) -> str:
    return "" if end > steady else "no call and no kernel came after the first recorded step"


def _too_little(steady: float, first: float, end: float, kernels: int) -> str:
    share = (end - steady) / (end - first) if end > first else 0.0
    if share >= ENOUGH_TIME or (kernels >= MANY_KERNELS and share > 0):
        return ""
    return f"the warm-up takes {format_value(1 - share, 'ratio')} of the time that calls and kernels span"
