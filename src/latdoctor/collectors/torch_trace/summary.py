"""What is read out of one trace, frozen. Seconds and bytes; a part that could not be seen is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:  # it loads numpy, which the signals of this collector do not need
    from latdoctor.collectors.torch_trace.phases import TracePhases


class KernelTotals(Struct, frozen=True):
    count: int
    busy: float
    span: float  # first kernel start to last kernel end
    tiny: int
    duration: float  # mean
    total: float  # sum of durations
    gap: float  # mean idle time between one kernel and the next
    longest: tuple[tuple[str, int, float], ...]  # names that took most time: count, time
    by_kind: Mapping[str, float]  # time by what a kernel does


class IdleGaps(Struct, frozen=True):
    """The GPU with nothing to do, within the kernels' span. `by_host` is the part of it in which the host sat in calls
    of a kind (`none`: in no call at all); empty where no calls were recorded.
    """

    length: float
    longest: float
    count: int
    by_host: Mapping[str, float]


class LaunchCalls(Struct, frozen=True):
    by_name: Mapping[str, int]
    count: int
    api_share: float
    duration: float  # mean of a launch call
    per_kernel: float  # time in launch calls for each kernel; a graph launches many
    first: float
    first_name: str


class LaunchDelays(Struct, frozen=True):
    """From the beginning of a launch call to that of its kernel. `idle` are the launches that found the GPU without
    work, of which `median` and `p99` are; `wait` is the median of the others. None: too few of them.
    """

    launches: int
    idle: int
    median: float | None
    p99: float | None
    wait: float | None


class AllocationCalls(Struct, frozen=True):
    """`by_name` counts the whole trace; `time` is inside allocation and free calls."""

    by_name: Mapping[str, int]
    count: int
    warmup_count: int
    warmup_time: float
    steady_count: int
    steady_time: float


class ColdStart(Struct, frozen=True):
    """`longest` names the slowest of the cold calls, with their durations."""

    context: float
    context_name: str
    time: float
    longest: tuple[tuple[str, float], ...]


class SyncCalls(Struct, frozen=True):
    """`waiting` is inside blocking synchronisation calls, `idle` the part of it in which the GPU had nothing to do;
    `drained` is the time that the GPU then stood idle because it had run dry during such a call. All within the
    kernels' span.
    """

    by_name: Mapping[str, int]
    count: int
    waiting: float
    idle: float
    drained: float


class CopyTotals(Struct, frozen=True):
    """Copies of one direction; `size` in bytes is None if one of them has none, `time` is their sum."""

    count: int
    size: float | None
    time: float


class CopySummary(Struct, frozen=True):
    """`alone` is the time with a copy and no kernel, of `span`, that of all GPU work. None: unknown.

    `inside` is the host in copy calls within the kernels' span, `waiting` the part in which kernels ran: such a call
    merely waits for them.
    """

    alone: float
    span: float
    ways: Mapping[str, CopyTotals]
    pageable: float | None  # bytes between host and device
    inside: float | None
    waiting: float | None

    @property
    def _between(self) -> tuple[CopyTotals, ...]:
        return tuple(self.ways[way] for way in ("HtoD", "DtoH") if way in self.ways)

    @property
    def host_device_bytes(self) -> float | None:
        sizes = [way.size for way in self._between]
        return None if None in sizes else sum((size for size in sizes if size is not None), 0.0)

    @property
    def host_device_count(self) -> int:
        return sum(way.count for way in self._between)

    @property
    def host_device_time(self) -> float:
        return sum((way.time for way in self._between), 0.0)


class MarkedSteps(Struct, frozen=True):
    """Steps that were marked, and the kernels that began between the first one's start and the last one's end."""

    count: int
    kernels: int
    time: float


class CompileActivity(Struct, frozen=True):
    """Compilations by torch.compile or Triton, and calls that load compiled code, once the warm-up is over.

    `recorded` is false if the trace has no events of the framework, so that none could be recorded.
    """

    recorded: bool
    count: int  # in the whole trace
    steady_count: int
    steady_time: float
    loads: Mapping[str, int]


class OperatorTime(Struct, frozen=True):
    """An operator of the framework: its calls, their time on the host, and that of the kernels that it started."""

    name: str
    calls: int
    host: float
    gpu: float


class LayerTime(Struct, frozen=True):
    """A kind of layer: the time of the kernels that operators in it started, and which of these took how long."""

    name: str
    gpu: float
    operators: tuple[tuple[str, float], ...]


class GpuTimeOwners(Struct, frozen=True):
    """Whose the GPU's time is, those with the most of it first."""

    operators: tuple[OperatorTime, ...]
    layers: tuple[LayerTime, ...]


class TraceSummary(Struct, frozen=True):
    """Everything read out of one trace. `hip`: an AMD trace, of which nothing is said about CUDA."""

    span: float
    first: float  # seconds, on the clock of the trace
    devices: tuple[str, ...]  # the one judged first
    kernels: KernelTotals | None
    gaps: IdleGaps | None
    copies: CopySummary | None
    launches: LaunchCalls | None
    allocations: AllocationCalls | None
    start: ColdStart | None
    syncs: SyncCalls | None
    steps: MarkedSteps | None
    compiles: CompileActivity | None
    delays: LaunchDelays | None
    owners: GpuTimeOwners
    layers: tuple[tuple[str, int, float], ...]  # nn.Modules: calls, time on the host
    phases: TracePhases | None
    calls: int
    device_calls: Mapping[str, int]  # allocations, known even where no GPU work was recorded
    hip: bool
    range_mode: bool
    results: int  # calls with a return code
    failures: Mapping[str, int]  # "cudaMemcpyAsync: 700" → calls
    clipped: int  # long calls and compilations beyond those that are kept
