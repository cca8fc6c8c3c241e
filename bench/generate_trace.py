"""Writes a seeded synthetic Kineto trace in the shape of torch.profiler on CUDA.

    python -m bench.generate_trace trace.json --events 1000000 --seed 7
    python -m bench.generate_trace storm.json.gz --events 20000 --storm

One forward pass is a ProfilerStep with operators, calls of the CUDA API, kernels with their flow arrows, allocator
events and a copy in and out. Without a file name it only counts the bytes. The times are plausible, not measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HOST, STREAMS = 4242, (7, 20)
BASE_NANOSECONDS = 1_760_000_000_000_000_000
STEP_KERNELS = 200
HEAD = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Synthetic GPU"}], "traceEvents": [\n'
TAIL = '\n], "traceName": "synthetic", "displayTimeUnit": "ms", "baseTimeNanoseconds": %d}\n'
KERNEL_NAMES = tuple(
    f"void at::native::vectorized_elementwise_kernel<4, synthetic_functor_{i}<float>, std::array<char*, {i % 4}ul> >"
    "(int, synthetic_functor, std::array<char*, 3ul>)"
    for i in range(24)
)
# Fields that latdoctor does not read but must skip.
KERNEL_DETAILS = {
    "queued": 0,
    "registers per thread": 40,
    "shared memory": 16384,
    "blocks per SM": 4.740741,
    "warps per SM": 37.925926,
    "grid": [64, 1, 1],
    "block": [256, 1, 1],
    "est. achieved occupancy %": 59,
}
OPERATOR_DETAILS = {
    "Record function id": 0,
    "Sequence number": 4711,
    "Fwd thread id": 0,
    "Concrete Inputs": ["", "", ""],
    "Input type": ["float", "float", ""],
    "Input Strides": [[768, 1], [1, 768], []],
    "Input Dims": [[128, 768], [768, 768], []],
}
MEMORY_DETAILS = {"Total Reserved": 1 << 30, "Total Allocated": 1 << 29, "Bytes": 4096, "Addr": 0, "Device Id": 0}


def _inner(details: object) -> str:
    """The text of an object without its braces."""
    return json.dumps(details)[1:-1]


# The same in every event of a kind, so turned into text once: millions of events are written.
KERNEL_TEXT, OPERATOR_TEXT, MEMORY_TEXT = _inner(KERNEL_DETAILS), _inner(OPERATOR_DETAILS), _inner(MEMORY_DETAILS)


@dataclass(frozen=True)
class Shape:
    """The shape of a trace. `warm` traces begin after the start of the process; others create the context first."""

    events: int = 10_000
    seed: int = 1
    storm: bool = False  # a cudaMalloc before every eighth kernel, all the time
    launch_bound: bool = False  # kernels shorter than their launches
    sync_stalls: bool = False  # the host waits after every fourth kernel
    warm: bool = True
    steps: bool = True


class Trace:
    """Generates the events in file order; `host` and `gpu` are the clocks of both sides in µs."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.random = random.Random(shape.seed)
        self.host = 1000.0
        self.gpu = 0.0
        self.correlation = 0
        self.counts = Counter[str]()

    def events(self) -> Iterator[str]:
        """One JSON text for each event, at least `shape.events` of them and then to the end of the step."""
        yield self._meta()
        if not self.shape.warm:
            yield from self._cold_start()
        step = 1
        while sum(self.counts.values()) < self.shape.events:
            yield from self._step(step)
            step += 1
        yield self._text("i", None, "Record Window End", self.host, None, 0, "")

    def _text(
        self, phase: str, category: str | None, name: str, ts: float, dur: float | None, tid: object, args: str
    ) -> str:
        """One event; `args` is the text of an object without its braces."""
        self.counts[category or "other"] += 1
        about = f'"cat": "{category}", ' if category is not None else ""
        lasts = f', "dur": {round(dur, 3)}' if dur is not None else ""
        where = f'"name": "{name}", "pid": {HOST}, "tid": {tid}, "ts": {round(ts, 3)}'
        return f'{{"ph": "{phase}", {about}{where}{lasts}, "args": {{{args}}}}}'

    def _meta(self) -> str:
        return self._text("M", None, "process_name", 0.0, None, 0, '"name": "python"')

    def _call(self, name: str, dur: float) -> str:
        """A call of the runtime that starts now; the host's clock goes on to its end."""
        self.correlation += 1
        args = f'"External id": {self.correlation}, "cbid": 211, "correlation": {self.correlation}'
        text = self._text("X", "cuda_runtime", name, self.host, dur, HOST, args)
        self.host += dur
        return text

    def _cold_start(self) -> Iterator[str]:
        yield self._call("cudaFree", 2_000_000.0)
        for _ in range(20):
            yield self._call("cudaMalloc", self.random.uniform(200, 2000))
        yield self._call("cudaLaunchKernel", 400_000.0)
        yield from self._device("kernel", "first", self.random.uniform(5, 20), STREAMS[0])

    def _step(self, number: int) -> Iterator[str]:
        begun = self.host
        yield from self._copy("HtoD", "Pinned -> Device", 1 << 20)
        for index in range(STEP_KERNELS):
            yield from self._operator(index)
        yield from self._copy("DtoH", "Device -> Pinned", 1 << 12)
        wait = max(2.0, self.gpu - self.host + 2.0)
        yield self._call("cudaStreamSynchronize", wait)
        if self.shape.steps:
            name = f"ProfilerStep#{number}"
            yield self._text("X", "user_annotation", name, begun, self.host - begun, HOST, f'"External id": {number}')

    def _operator(self, index: int) -> Iterator[str]:
        begun = self.host
        self.host += self.random.uniform(1, 3) if not self.shape.launch_bound else self.random.uniform(15, 40)
        if self.shape.storm and index % 8 == 0:
            yield self._call("cudaMalloc", self.random.uniform(80, 300))
        yield self._call("cudaLaunchKernel", self.random.uniform(3, 6))
        low, high = (1.5, 6.0) if self.shape.launch_bound else (12.0, 40.0)
        name, stream = self.random.choice(KERNEL_NAMES), STREAMS[index % 32 == 31]
        yield from self._device("kernel", name, self.random.uniform(low, high), stream, KERNEL_TEXT)
        if self.shape.sync_stalls and index % 4 == 3:
            yield self._call("cudaDeviceSynchronize", max(2.0, self.gpu - self.host + 1.0) + 15.0)
        yield self._text("i", "cpu_instant_event", "[memory]", self.host, None, HOST, MEMORY_TEXT)
        args = f'"External id": {self.correlation}, "Ev Idx": {index}, {OPERATOR_TEXT}'
        yield self._text("X", "cpu_op", f"aten::op_{index % 40}", begun, self.host - begun, HOST, args)

    def _copy(self, way: str, memories: str, size: int) -> Iterator[str]:
        yield self._call("cudaMemcpyAsync", self.random.uniform(4, 9))
        name = f"Memcpy {way} ({memories})"
        yield from self._device("gpu_memcpy", name, size / 20_000, STREAMS[0], f'"bytes": {size}')

    def _device(self, category: str, name: str, dur: float, stream: int, details: str = "") -> Iterator[str]:
        """The work that the last call put on the device, with both ends of its flow arrow."""
        self.gpu = max(self.gpu, self.host + 1.0)
        number = self.correlation
        args = f'"External id": {number}, "device": 0, "context": 1, "correlation": {number}, "stream": {stream}'
        yield self._text("X", category, name, self.gpu, dur, stream, f"{args}, {details}" if details else args)
        yield self._flow("s", self.host - 1.0, HOST)
        yield self._flow("f", self.gpu, stream)
        self.gpu += dur

    def _flow(self, phase: str, ts: float, tid: object) -> str:
        self.counts["ac2g"] += 1
        where = f'"id": {self.correlation}, "pid": {HOST}, "tid": {tid}, "ts": {round(ts, 3)}'
        return f'{{"ph": "{phase}", {where}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}'


def write(shape: Shape, out: IO[bytes]) -> Trace:
    """Write the trace; return it with its counts."""
    trace = Trace(shape)
    out.write(HEAD.encode())
    for index, text in enumerate(trace.events()):
        out.write((",\n" if index else "").encode() + text.encode())
    out.write((TAIL % BASE_NANOSECONDS).encode())
    return trace


class Counted:
    """Keeps nothing but the number of bytes."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        return len(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="where to write; .gz compresses")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storm", action="store_true", help="device allocations all the time")
    parser.add_argument("--launch-bound", action="store_true", help="kernels shorter than their launches")
    parser.add_argument("--sync-stalls", action="store_true", help="the host waits after every fourth kernel")
    parser.add_argument("--cold", action="store_true", help="begin with the creation of the context")
    parser.add_argument("--no-steps", action="store_true", help="leave ProfilerStep out")
    options = parser.parse_args()
    shape = Shape(
        events=options.events,
        seed=options.seed,
        storm=options.storm,
        launch_bound=options.launch_bound,
        sync_stalls=options.sync_stalls,
        warm=not options.cold,
        steps=not options.no_steps,
    )
    counted = Counted()
    if options.file is None:
        trace = write(shape, counted)  # type: ignore[arg-type]  # it needs nothing but write()
    elif options.file.suffix == ".gz":
        with gzip.open(options.file, "wb", compresslevel=6) as out:
            trace = write(shape, out)  # type: ignore[arg-type]  # a GzipFile writes bytes like any file
    else:
        with options.file.open("wb") as out:
            trace = write(shape, out)
    size = counted.size or (options.file.stat().st_size if options.file else 0)
    print(json.dumps({"bytes": size, "events": sum(trace.counts.values()), "by_category": dict(trace.counts)}))


if __name__ == "__main__":
    main()
