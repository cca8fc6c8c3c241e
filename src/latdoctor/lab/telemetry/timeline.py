"""A host thread and a GPU, simulated: what the host calls and when, what the GPU runs and when.

The host launches; the GPU runs what was launched in order, once it was launched. Whether the GPU is kept busy, runs dry
behind a wait or idles between tiny kernels follows from that, as it does on a machine. Times in microseconds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

_LATENCY = 2.1  # from the end of a launch call to the kernel's start on an idle stream
_BETWEEN = 0.9  # from one kernel's end to the next one's start
PAGEABLE_GBPS, PINNED_GBPS = 5.6, 24.0  # host to device over PCIe generation 4 with 16 lanes


class Span(NamedTuple):
    """Something that took time: on the host, or on the GPU (`stream` is then its number)."""

    category: str
    name: str
    start: float
    duration: float
    correlation: int = 0
    stream: int = -1
    bytes: int = -1


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the host is: microseconds of an operator's own work, and of a launch call."""

    operator: float = 9.0
    launch: float = 4.6
    gbps_pageable: float = PAGEABLE_GBPS
    gbps_pinned: float = PINNED_GBPS


class Timeline:
    """Builds the spans of one thread and one GPU. Mutable; read `spans` at the end."""

    def __init__(self, rng: random.Random, pace: Pace, start: float) -> None:
        self._rng = rng
        self._pace = pace
        self.host = start
        self._gpu_free = start
        self._correlation = rng.randint(4_000, 90_000)
        self.spans: list[Span] = []

    def operator(self, name: str, kernel: str, micros: float, *, call: str = "cudaLaunchKernel") -> None:
        """A framework operator that launches one kernel of about `micros`."""
        begin = self.host
        self._work(self._pace.operator * 0.7)
        self._launch(call, kernel, micros)
        self._work(self._pace.operator * 0.3)
        self.spans.append(Span("cpu_op", name, begin, self.host - begin))

    def view(self, name: str) -> None:
        """An operator that costs the host time and launches nothing."""
        begin = self.host
        self._work(self._pace.operator * 0.25)
        self.spans.append(Span("cpu_op", name, begin, self.host - begin))

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
        self.spans.append(Span("cpu_op", name, begin, self.host - begin))

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
            call = Span("cuda_runtime", "cudaMemcpyAsync", called, self.host - called, self._correlation)
            self.spans.append(call)
            self._wait("cudaStreamSynchronize", self._gpu_free)
        self.spans.append(Span("cpu_op", name, begin, self.host - begin))

    def synchronise(self, call: str = "cudaDeviceSynchronize") -> None:
        self._wait(call, self._gpu_free)

    def pause(self, micros: float) -> None:
        """The host does something else, in Python: tokenising, sampling, answering."""
        self.host += micros * self._rng.uniform(0.85, 1.2)

    def step(self, number: int, begin: float) -> None:
        self.spans.append(Span("user_annotation", f"ProfilerStep#{number}", begin, self.host - begin))

    def _work(self, micros: float) -> None:
        # Most are alike and a few are far slower: the interpreter, page faults, interrupts.
        self.host += micros * self._rng.lognormvariate(0, 0.28)

    def _call(self, name: str, micros: float) -> int:
        begin = self.host
        self._work(micros)
        self._correlation += 1
        category = "cuda_driver" if name.startswith("cuL") else "cuda_runtime"
        self.spans.append(Span(category, name, begin, self.host - begin, self._correlation))
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
        self.spans.append(Span(category, name, begun, took, correlation, 7, size))

    def _wait(self, call: str, until: float) -> None:
        begin = self.host
        self.host = max(self.host + 1.4, until + self._rng.uniform(3, 9))
        self._correlation += 1
        self.spans.append(Span("cuda_runtime", call, begin, self.host - begin, self._correlation))
