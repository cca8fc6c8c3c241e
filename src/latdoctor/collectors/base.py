"""What every collector is: a name, what it may show, how it reads (I/O) and how it parses (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from latdoctor.collectors.time_range import TimeRange
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap

# Who hears how far a long piece of reading has come: nobody, unless somebody listens.
_HEARD: ContextVar[Callable[[str], None]] = ContextVar("heard", default=lambda what: None)


def report_progress(what: str) -> None:
    """Says how far something has come that takes long, for people: `traces: 3 of 8 read`."""
    _HEARD.get()(what)


@contextmanager
def progress_listener(hear: Callable[[str], None]) -> Iterator[None]:
    """Whatever is told meanwhile goes to `hear`."""
    before = _HEARD.set(hear)
    try:
        yield
    finally:
        _HEARD.reset(before)


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """A server of an HTTP API: `url` is its root without a slash at the end, `authorization` the header's value."""

    url: str
    name: str  # host:port, with its path
    loopback: bool = False  # a proxy of the environment is no way to this machine itself
    authorization: str = field(default="", repr=False)
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A Prometheus server and what of it is asked for: the time from `since` to `until` (unix seconds), the last
    `window` seconds of which are judged, and the series that `select` matches.
    """

    access: ApiEndpoint
    since: float
    until: float
    window: float = 300.0
    select: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """What to look at. Times in seconds. `nvml` and `host` look at this machine."""

    servers: tuple[str, ...] = ()  # base URLs or metrics URLs, scraped over the window
    metrics: tuple[Path, ...] = ()  # saved pages; two of them are first and last of one server
    traces: tuple[Path, ...] = ()
    nsight: tuple[Path, ...] = ()  # Nsight Systems exports, tables of nsys stats and nvprof
    tensorrt: tuple[Path, ...] = ()  # what trtexec wrote of engines; several are compared
    torch_memory: tuple[Path, ...] = ()  # memory_stats and snapshots of PyTorch's allocator
    logs: tuple[Path, ...] = ()
    prometheus: PrometheusServer | None = None
    log_pattern: str = ""  # how the lines of an access log among `logs` are written; empty: a common form
    past: TimeRange | None = None  # the part of the logs' time that is asked for; None: all of it
    changes: tuple[Path, ...] = ()  # what was changed and when, as people or machines noted it
    pid: int | None = None
    nvml: bool = False
    host: bool = False
    window: float = 10.0
    timeout: float = 5.0  # for one answer of one source


class Clock(Protocol):
    """Time, so that tests need not wait."""

    def now(self) -> float: ...  # unix seconds UTC
    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class CollectResult:
    """What a collector brought back. A source that failed is a gap; the others go on."""

    artifacts: tuple[Artifact, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceAvailability:
    """One line of `preflight`: can this be seen here, and if not, why and what would help."""

    what: str
    status: str  # "yes" | "no" | "partly" | "if given"
    detail: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Collector:
    """`collect` does the reading and never raises for a bad source: that is a gap. `parse` gets the artifacts of
    one group, does no I/O beyond reading them, and raises SourceError where they make no sense.
    """

    name: str
    title: str
    provides: frozenset[str]  # signals it may give
    asked: Callable[[CollectRequest], bool]  # does this request concern it?
    collect: Callable[[CollectRequest, Clock], CollectResult]
    parse: Callable[[Sequence[Artifact]], Evidence]
    preflight: Callable[[], Sequence[SourceAvailability]]
    ask: str  # the flag that brings it in, for "next look": `--trace FILE`; empty where another source stands for it
    cost: str  # what a look costs: "reads a file", "watches for the window"
    # Of `provides`, what it tells where it happened and never that it did not: no reason to look.
    by_chance: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SamplingMoment:
    """One time to sample, unix seconds UTC; `at_end` is true for the first and the last."""

    time: float
    at_end: bool


def sampling_offsets(window: float, interval: float, most: int) -> tuple[float, ...]:
    """Seconds from the start: 0, `window`, and about every `interval` between them; `most` of them (2 or more)."""
    if window <= 0:
        return (0.0,)
    steps = max(1, min(most - 1, round(window / interval)))
    return tuple(window * step / steps for step in range(steps + 1))


def sampling_moments(clock: Clock, window: float, interval: float, most: int) -> Iterator[SamplingMoment]:
    """Waits for each moment in turn. A source that is slow to answer is sampled less often, not for longer.

    A clock that is set back in the window neither turns the order of the samples nor draws the window out.
    """
    planned = sampling_offsets(window, interval, most)
    start = now = clock.now()
    for offset in planned:
        now = max(now, clock.now())
        at_end = offset in (planned[0], planned[-1])
        if now > start + offset + interval and not at_end:
            continue
        wait = start + offset - now
        if wait > 0:
            clock.sleep(wait)
            now = max(now + wait, clock.now())
        yield SamplingMoment(now, at_end)
