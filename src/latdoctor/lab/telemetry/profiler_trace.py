"""A simulated host thread and GPU, as a profiler records them.

The host launches kernels; the GPU runs them in launch order. GPU idle time behind a wait or between tiny kernels
follows from the simulation. Times in microseconds.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from latdoctor.lab.telemetry.gpu_load import GpuModel
from latdoctor.lab.telemetry.nvml import MIB

_LATENCY = 2.1  # from the end of a launch call to the kernel's start on an idle stream
_BETWEEN = 0.9  # from one kernel's end to the next one's start
PAGEABLE_GBPS, PINNED_GBPS = 5.6, 24.0  # host to device over PCIe generation 4 with 16 lanes


class TraceSpan(NamedTuple):
    """A timed activity on the host, or on a GPU stream (`stream`)."""

    category: str
    name: str
    start: float
    duration: float
    correlation: int = 0
    stream: int = -1
    bytes: int = -1


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """The host speed: microseconds of an operator's own work, and of a launch call."""

    operator: float = 9.0
    launch: float = 4.6
    gbps_pageable: float = PAGEABLE_GBPS
    gbps_pinned: float = PINNED_GBPS


class TraceSimulator:
    """Builds the spans of one thread and one GPU. Mutable; read `spans` at the end."""

    def __init__(self, rng: random.Random, pace: HostSpeed, start: float) -> None:
        self._rng = rng
        self._pace = pace
        self.host = start
        self._gpu_free = start
        self._correlation = rng.randint(4_000, 90_000)
        self.spans: list[TraceSpan] = []

    def operator(self, name: str, kernel: str, micros: float, *, call: str = "cudaLaunchKernel") -> None:
        """A framework operator that launches one kernel of about `micros`."""
        begin = self.host
        self._work(self._pace.operator * 0.7)
        self._launch(call, kernel, micros)
        self._work(self._pace.operator * 0.3)
        self.spans.append(TraceSpan("cpu_op", name, begin, self.host - begin))

    def view(self, name: str) -> None:
        """An operator that costs the host time and launches nothing."""
        begin = self.host
        self._work(self._pace.operator * 0.25)
        self.spans.append(TraceSpan("cpu_op", name, begin, self.host - begin))

    def graph(self, kernels: list[tuple[str, float]]) -> None:
        """One launch of a captured graph of many kernels."""
        correlation = self._call("cudaGraphLaunch", self._pace.launch * 2.2)
        for name, micros in kernels:
            self._run("kernel", name, micros, correlation)

    def read_back(self, name: str = "aten::item") -> None:
        """A value read from the device in the middle of the work: a small copy and a wait for all before it."""
        begin = self.host
        self._work(self._pace.operator * 0.4)
        correlation = self._call("cudaMemcpyAsync", self._pace.launch * 1.4)
        done = self._run("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 1.9, correlation, size=8)
        self._wait("cudaStreamSynchronize", done)
        self.spans.append(TraceSpan("cpu_op", name, begin, self.host - begin))

    def copy(self, direction: str, size: int, *, pinned: bool, name: str = "aten::copy_") -> None:
        """A copy of `size` bytes, `HtoD` or `DtoH`. One with pageable memory blocks the host until it is done."""
        begin = self.host
        memory = "Pinned" if pinned else "Pageable"
        ways = f"{memory} -> Device" if direction == "HtoD" else f"Device -> {memory}"
        speed = (self._pace.gbps_pinned if pinned else self._pace.gbps_pageable) * self._rng.uniform(0.93, 1.04)
        micros = 1.6 + size / speed / 1e3
        self._work(self._pace.operator * 0.4)
        called = self.host
        if pinned:
            correlation = self._call("cudaMemcpyAsync", self._pace.launch)
            self._run("gpu_memcpy", f"Memcpy {direction} ({ways})", micros, correlation, size=size)
        else:
            # The driver fills its own pinned buffer while the call lasts.
            self._correlation += 1
            begun = max(called + 6.0, self._gpu_free + _BETWEEN)
            self._gpu_free = begun + micros
            self._gpu("gpu_memcpy", f"Memcpy {direction} ({ways})", begun, micros, self._correlation, size)
            self.host = self._gpu_free + self._rng.uniform(2, 6)
            call = TraceSpan("cuda_runtime", "cudaMemcpyAsync", called, self.host - called, self._correlation)
            self.spans.append(call)
            self._wait("cudaStreamSynchronize", self._gpu_free)
        self.spans.append(TraceSpan("cpu_op", name, begin, self.host - begin))

    def synchronise(self, call: str = "cudaDeviceSynchronize") -> None:
        self._wait(call, self._gpu_free)

    def pause(self, micros: float) -> None:
        """Python work on the host: tokenising, sampling, responding."""
        self.host += micros * self._rng.uniform(0.85, 1.2)

    def step(self, number: int, begin: float) -> None:
        self.spans.append(TraceSpan("user_annotation", f"ProfilerStep#{number}", begin, self.host - begin))

    def _work(self, micros: float) -> None:
        # Most times are similar; a few are far longer: interpreter, page faults, interrupts.
        self.host += micros * self._rng.lognormvariate(0, 0.28)

    def _call(self, name: str, micros: float) -> int:
        begin = self.host
        self._work(micros)
        self._correlation += 1
        category = "cuda_driver" if name.startswith("cuL") else "cuda_runtime"
        self.spans.append(TraceSpan(category, name, begin, self.host - begin, self._correlation))
        return self._correlation

    def _launch(self, call: str, kernel: str, micros: float) -> None:
        correlation = self._call(call, self._pace.launch)
        self._run("kernel", kernel, micros, correlation)

    def _run(self, category: str, name: str, micros: float, correlation: int, size: int = -1) -> float:
        begun = max(self.host + _LATENCY * self._rng.uniform(0.7, 1.6), self._gpu_free + _BETWEEN)
        took = max(1.1, micros * self._rng.gauss(1, 0.035))
        self._gpu_free = begun + took
        self._gpu(category, name, begun, took, correlation, size)
        return self._gpu_free

    def _gpu(self, category: str, name: str, begun: float, took: float, correlation: int, size: int) -> None:
        self.spans.append(TraceSpan(category, name, begun, took, correlation, 7, size))

    def _wait(self, call: str, until: float) -> None:
        begin = self.host
        self.host = max(self.host + 1.4, until + self._rng.uniform(3, 9))
        self._correlation += 1
        self.spans.append(TraceSpan("cuda_runtime", call, begin, self.host - begin, self._correlation))


class Precision(StrEnum):
    """The type of the matrix products: with tensor cores, or FP32 without."""

    HALF = "half"
    SINGLE = "single"


# Kernel names follow the libraries' habits: tensor-core GEMMs name their types, plain FP32 ones are sgemm.
_GEMM = {
    Precision.HALF: "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1"
    "_tensor16x8x16_kernel",
    Precision.SINGLE: "ampere_sgemm_128x64_tn",
}
_ATTENTION = {
    Precision.HALF: "flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::half_t>>",
    Precision.SINGLE: "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
}
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>"
_FUSED = "triton_poi_fused_{}_{}"


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One forward pass. `size` scales the kernels' times: 1 is a batch that keeps an A100 busy."""

    layers: int = 12
    size: float = 1.0
    precision: Precision = Precision.HALF
    fused: bool = True  # pointwise operators in one kernel, or each in its own
    reads_back: int = 0  # values read from the device in each layer
    inputs: int = 2_097_152  # bytes copied to the device for each pass
    states: int = 0  # bytes that go to the device and back in each layer
    pinned: bool = True


def record(rng: random.Random, work: ForwardPass, pace: HostSpeed, steps: int, start: float) -> TraceSimulator:
    """`steps` passes under the profiler; the step numbers continue from earlier passes."""
    line = TraceSimulator(rng, pace, start)
    number = rng.randint(5, 40)
    for step in range(steps):
        begin = line.host
        line.pause(35)
        line.copy("HtoD", work.inputs, pinned=work.pinned)
        line.operator(
            "aten::embedding", "void at::native::(anonymous namespace)::indexSelectLargeIndex", 14 * work.size
        )
        for layer in range(work.layers):
            _layer(line, work, layer)
        line.operator("aten::linear", _GEMM[work.precision], _gemm(work, 60))
        line.copy("DtoH", 98_304, pinned=work.pinned)
        line.synchronise("cudaStreamSynchronize")
        line.step(number + step, begin)
    return line


def _gemm(work: ForwardPass, micros: float) -> float:
    # Without tensor cores a matrix product takes several times as long.
    return micros * work.size * (6.2 if work.precision is Precision.SINGLE else 1.0)


def _layer(line: TraceSimulator, work: ForwardPass, layer: int) -> None:
    gemm, wide = _GEMM[work.precision], 2.0 if work.precision is Precision.SINGLE else 1.0
    if work.states:
        line.copy("HtoD", work.states, pinned=work.pinned)
    line.view("aten::view")
    for name in ("query", "key", "value"):
        line.operator("aten::linear", gemm, _gemm(work, 62))
        _pointwise(line, work, (f"add_{name}",), 11 * wide)
    line.view("aten::transpose")
    line.operator("aten::scaled_dot_product_attention", _ATTENTION[work.precision], 96 * work.size * wide)
    line.operator("aten::linear", gemm, _gemm(work, 62))
    _pointwise(line, work, ("add", "native_dropout", "add", "native_layer_norm"), 12 * wide)
    for _ in range(work.reads_back):
        line.read_back()
        line.pause(14)  # the branch that the value decides
    line.operator("aten::linear", gemm, _gemm(work, 190), call="cudaLaunchKernelExC")
    _pointwise(line, work, ("add", "mul", "tanh", "mul", "add", "gelu"), 34 * wide)
    line.operator("aten::linear", gemm, _gemm(work, 188))
    _pointwise(line, work, ("add", "native_layer_norm"), 12 * wide)
    if work.states:
        line.copy("DtoH", work.states, pinned=work.pinned)


def _pointwise(line: TraceSimulator, work: ForwardPass, names: tuple[str, ...], micros: float) -> None:
    """One compiled kernel for all of `names`, or one kernel each that moves all the data again."""
    if work.fused:
        name = _FUSED.format("_".join(dict.fromkeys(names)), len(names))
        line.operator("triton_call", name, micros * work.size, call="cuLaunchKernel")
        return
    for name in names:
        line.operator(f"aten::{name}", _ELEMENTWISE.format(f"{name}_kernel_cuda"), micros * work.size)


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
