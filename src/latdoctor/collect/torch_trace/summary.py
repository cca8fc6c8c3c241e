"""What is read out of one trace, frozen. Seconds and bytes; a part that could not be seen is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from latdoctor.collect.torch_trace.phases import Phases


@dataclass(frozen=True, slots=True)
class Kernels:
    count: int
    busy: float
    span: float  # first kernel start to last kernel end
    tiny: int
    duration: float  # mean
    gap: float  # mean idle time between one kernel and the next


@dataclass(frozen=True, slots=True)
class Launches:
    by_name: Mapping[str, int]
    count: int
    api_share: float
    first: float
    first_name: str


@dataclass(frozen=True, slots=True)
class Allocations:
    """`by_name` counts the whole trace; `time` is inside allocation and free calls."""

    by_name: Mapping[str, int]
    count: int
    warmup_count: int
    warmup_time: float
    steady_count: int
    steady_time: float


@dataclass(frozen=True, slots=True)
class ColdStart:
    """`longest` names the slowest of the cold calls, with their durations."""

    context: float
    context_name: str
    time: float
    longest: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Syncs:
    """`waiting` is inside blocking synchronisation calls, `idle` the part of it in which the GPU had nothing to do;
    `drained` is the time that the GPU then stood idle because it had run dry during such a call. All within the
    kernels' span.
    """

    by_name: Mapping[str, int]
    count: int
    waiting: float
    idle: float
    drained: float


@dataclass(frozen=True, slots=True)
class Copies:
    """`alone` is the time with a copy and no kernel, of `span`, that of all GPU work. None: not told."""

    alone: float
    span: float
    count: Mapping[str, int]  # by direction
    size: Mapping[str, float] | None
    pageable: float | None  # bytes
    time: float  # of copies between host and device, summed

    @property
    def host_device_bytes(self) -> float | None:
        return None if self.size is None else sum(self.size.get(way, 0.0) for way in ("HtoD", "DtoH"))

    @property
    def host_device_count(self) -> int:
        return sum(self.count.get(way, 0) for way in ("HtoD", "DtoH"))


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Everything read out of one trace. `hip` tells an AMD trace, of which nothing is said about CUDA."""

    span: float
    first: float  # seconds, on the clock of the trace
    devices: tuple[str, ...]  # the one judged first
    kernels: Kernels | None
    copies: Copies | None
    launches: Launches | None
    allocations: Allocations | None
    start: ColdStart | None
    syncs: Syncs | None
    phases: Phases | None
    calls: int
    device_calls: Mapping[str, int]  # allocations, known even where no GPU work was recorded
    hip: bool
    range_mode: bool
    results: int  # calls that tell a return code
    failures: Mapping[str, int]  # "cudaMemcpyAsync: 700" → calls
