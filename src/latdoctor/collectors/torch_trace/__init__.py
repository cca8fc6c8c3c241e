"""Profiler traces (Kineto)."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "torch_trace"
TITLE = "profiler traces"
SIGNALS = (
    "trace.has_gpu", "trace.span", "trace.kernels", "kernel.tiny_ratio", "kernel.duration.mean", "gpu.busy_ratio",
    "kernel.gap.mean", "gap.share", "gap.longest", "launch.count", "launch.api_share", "launch.duration.mean",
    "launch.time_per_kernel", "launch.first_duration", "sync.time_share", "sync.idle_share", "sync.drain_share",
    "sync.count_per_kernel", "alloc.device_calls_steady", "alloc.device_rate", "alloc.device_time_share",
    "compile.trace_steady", "compile.trace_time_share", "code.loads_steady", "alloc.warmup_calls",
    "alloc.warmup_time", "start.context_init", "start.cold_time", "start.cold_share", "copy.call_share",
    "copy.call_wait_share", "gap.host_share", "alloc.device_calls", "copy.time_share", "copy.bytes",
    "copy.pageable_share", "copy.bandwidth", "trace.steps", "kernel.per_step", "step.duration.mean",
    "kernel.time_share", "kernel.kind_share", "operator.gpu_share", "operator.host_time", "layer.host_time",
    "layer.gpu_share", "layer.operator_share", "launch.delay.median", "launch.delay.p99", "launch.queued_share",
    "launch.queue_wait.median", "cuda.error_calls",
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.torch_trace.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset(SIGNALS),
    is_requested=lambda request: bool(request.traces),
    reader=_reader,
    option="--trace FILE",
    cost="reads a file",
)
