"""Simulated profiler activity in the Chrome trace format of torch.profiler."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence

import msgspec

from latdoctor.lab.telemetry.gpu_load import GpuModel
from latdoctor.lab.telemetry.nvml import MIB
from latdoctor.lab.telemetry.profiler_trace import TraceSpan

_MULTIPROCESSORS = {"NVIDIA H100 80GB HBM3": 132, "NVIDIA A100-SXM4-80GB": 108, "NVIDIA A10": 72, "Tesla T4": 40}
_CBID = {
    "cudaLaunchKernel": 211,
    "cuLaunchKernel": 307,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaGraphLaunch": 311,
}

Value = str | int | float | dict[str, object]
Event = dict[str, Value]


def trace(spans: Sequence[TraceSpan], board: GpuModel, pid: int, base: float) -> bytes:
    """The trace; `base` is the unix time, in seconds, from which the spans count their microseconds."""
    document = {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": 0,
                "name": board.name,
                "totalGlobalMem": board.memory * MIB,
                "maxThreadsPerBlock": 1024,
                "warpSize": 32,
                "numSms": _MULTIPROCESSORS.get(board.name, 80),
            }
        ],
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
        "record_shapes": 0,
        "with_stack": 0,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": int(base) * 10**9,
        "traceEvents": [*_names(pid), *_events(spans, pid)],
    }
    return gzip.compress(msgspec.json.encode(document), compresslevel=6, mtime=0)


def _names(pid: int) -> Iterator[Event]:
    yield {"name": "process_name", "ph": "M", "ts": 0.0, "pid": pid, "tid": 0, "args": {"name": "python3"}}
    yield {"name": "process_labels", "ph": "M", "ts": 0.0, "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}}


def _events(spans: Sequence[TraceSpan], pid: int) -> Iterator[Event]:
    first, last = min(s.start for s in spans), max(s.start + s.duration for s in spans)
    for number, span in enumerate(sorted(spans, key=lambda span: (span.start, -span.duration))):
        yield _event(span, pid, number)
        if span.correlation and span.stream >= 0:
            yield _flow("f", span, 0, span.stream)
        elif span.correlation and "Launch" in span.name:
            yield _flow("s", span, pid, pid)
    yield {
        "ph": "X",
        "cat": "Trace",
        "ts": round(first - 80, 3),
        "dur": round(last - first + 160, 3),
        "pid": "Spans",
        "tid": "PyTorch Profiler",
        "name": "PyTorch Profiler (0)",
        "args": {"Op count": 0},
    }


def _event(span: TraceSpan, pid: int, number: int) -> Event:
    on_gpu = span.stream >= 0
    args: dict[str, object] = {}
    if on_gpu:
        args = {"device": 0, "context": 1, "stream": span.stream, "correlation": span.correlation}
    elif span.correlation:
        args = {"cbid": _CBID.get(span.name, 0), "correlation": span.correlation}
    else:
        args = {"External id": number, "Record function id": 0, "Ev Idx": number}
    if span.bytes >= 0:
        args |= {"bytes": span.bytes, "memory bandwidth (GB/s)": span.bytes / span.duration / 1e3}
    return {
        "ph": "X",
        "cat": span.category,
        "name": span.name,
        "pid": 0 if on_gpu else pid,
        "tid": span.stream if on_gpu else pid,
        "ts": round(span.start, 3),
        "dur": round(span.duration, 3),
        "args": args,
    }


def _flow(phase: str, span: TraceSpan, pid: int, tid: int) -> Event:
    ends: Event = {"bp": "e"} if phase == "f" else {}
    return {
        "ph": phase,
        "id": span.correlation,
        "pid": pid,
        "tid": tid,
        "ts": round(span.start, 3),
        "cat": "ac2g",
        "name": "ac2g",
        **ends,
    }
