"""What is counted of a trace while it is read: everything that is not a row."""

from __future__ import annotations

from math import inf

import msgspec

from latdoctor.collect.torch_trace.names import FURTHER, MAX_NAMES
from latdoctor.text import clean

_MAX_STEPS = 100_000


class Extent(msgspec.Struct):
    """How much there is of something, and from when to when (µs)."""

    count: int = 0
    first: float = inf
    last: float = -inf

    def take(self, count: int, first: float, last: float) -> None:
        self.count += count
        self.first, self.last = min(self.first, first), max(self.last, last)


class Device(msgspec.Struct):
    kernels: Extent = msgspec.field(default_factory=Extent)
    work: Extent = msgspec.field(default_factory=Extent)  # kernels, fills and copies


class Copied(msgspec.Struct):
    """Copies of one kind: how many, the bytes they tell (NaN where one does not), the sum of their times (µs)."""

    count: int = 0
    bytes: float | None = 0.0
    time: float = 0.0

    def take(self, count: int, size: float | None, time: float) -> None:
        self.count += count
        self.bytes = None if self.bytes is None or size is None else self.bytes + size
        self.time += time


class Counts(msgspec.Struct):
    """Everything of a trace that is not a row. By name, so that the parts of two processes can be added up."""

    timed: int = 0
    span: Extent = msgspec.field(default_factory=Extent)  # of all timed events
    called: Extent = msgspec.field(default_factory=Extent)  # of the calls
    ranges: int = 0  # events of the range profiler, which records no single kernels
    results: int = 0  # calls that tell a return code
    failures: dict[str, int] = {}  # "cudaMemcpyAsync: 700" → calls
    steps: dict[str, tuple[float, float]] = {}  # ProfilerStep#N → start, end (µs)
    devices: dict[str, Device] = {}
    copies: dict[str, Copied] = {}  # by CopyLabel
    layers: dict[str, tuple[int, float]] = {}  # nn.Module → calls, time (µs)
    compiles: list[tuple[float, float]] = []  # start, end (µs)
    long_calls: list[tuple[float, float, str]] = []  # start, end (µs), name
    clipped: int = 0  # long calls and compilations that were not kept

    def merge(self, other: Counts) -> None:
        """Adds what the same trace holds further on."""
        self.timed, self.ranges = self.timed + other.timed, self.ranges + other.ranges
        self.results, self.clipped = self.results + other.results, self.clipped + other.clipped
        for own, further in ((self.span, other.span), (self.called, other.called)):
            own.take(further.count, further.first, further.last)
        for what, count in other.failures.items():
            self.note_failure(what, count)
        for name, bounds in other.steps.items():
            self.note_step(name, *bounds)
        for name, (count, time) in other.layers.items():
            self.note_layer(name, count, time)
        for device, seen in other.devices.items():
            known = self.devices.setdefault(device, Device())
            known.kernels.take(seen.kernels.count, seen.kernels.first, seen.kernels.last)
            known.work.take(seen.work.count, seen.work.first, seen.work.last)
        for label, copied in other.copies.items():
            self.copies.setdefault(label, Copied()).take(copied.count, copied.bytes, copied.time)
        self.compiles += other.compiles
        self.long_calls += other.long_calls

    def note_failure(self, what: str, count: int = 1) -> None:
        if what not in self.failures and len(self.failures) >= MAX_NAMES:
            what = FURTHER
        self.failures[what] = self.failures.get(what, 0) + count

    def note_step(self, name: str, start: float, end: float) -> None:
        if len(self.steps) < _MAX_STEPS:
            self.steps.setdefault(clean(name, 120), (start, end))

    def note_layer(self, name: str, count: int, time: float) -> None:
        if name not in self.layers and len(self.layers) >= MAX_NAMES:
            name = FURTHER
        known = self.layers.get(name, (0, 0.0))
        self.layers[name] = (known[0] + count, known[1] + time)


class CopyLabel(msgspec.Struct, frozen=True):
    """What is told of a copy: its device, its direction, and the host memory (`` where not told)."""

    device: str
    direction: str
    memory: str

    def __str__(self) -> str:
        return f"{self.direction}/{self.memory}/{self.device}"

    @classmethod
    def parse(cls, text: str) -> CopyLabel:
        direction, _, rest = text.partition("/")
        memory, _, device = rest.partition("/")
        return cls(device, direction, memory)
