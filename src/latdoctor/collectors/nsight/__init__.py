"""Nsight Systems exports, databases of nvprof, and the tables that both print."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader
from latdoctor.collectors.torch_trace import SIGNALS as TRACE_SIGNALS

NAME = "nsight"
TITLE = "Nsight Systems"
# The export has no kernel names and no operators of the framework.
UNREAD = frozenset(
    {
        "kernel.time_share", "kernel.kind_share", "operator.gpu_share", "operator.host_time", "layer.host_time",
        "layer.gpu_share", "layer.operator_share", "compile.trace_steady", "compile.trace_time_share",
    }
)  # fmt: skip
OVERHEADS = ("launch.buffer_full_time", "start.module_time", "start.jit_time")
GPU = "trace.gpu"
# Failed calls are reported where they occur, but an export is not taken to find them.
SIGNALS = (*(name for name in TRACE_SIGNALS if name not in UNREAD), *OVERHEADS, GPU, "alloc.api_share")
# What printed sums show of single names.
SHARES = (
    "kernel.time_share", "kernel.kind_share", "call.time_share", "os_call.time_share", "range.time_share",
    "kernel.time_over_calls", "launch.call_share", "range.kernel_share", "range.outside_calls",
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.nsight.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset((*SIGNALS, *SHARES)),
    is_requested=lambda request: bool(request.nsight),
    reader=_reader,
    option="--nsys FILE",
    cost="reads a file",
)
