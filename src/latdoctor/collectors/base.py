"""The interface of a collector: its name, its signals, how it collects (I/O) and how it parses (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from latdoctor.cluster_api import Login
from latdoctor.collectors.time_range import TimeRange
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode
from latdoctor.http.failure import FailureCode

_LISTENER: ContextVar[Callable[[str], None]] = ContextVar("progress listener", default=lambda message: None)


def report_progress(message: str) -> None:
    """Report the progress of a long read to the user: `traces: 3 of 8 read`."""
    _LISTENER.get()(message)


@contextmanager
def progress_listener(listener: Callable[[str], None]) -> Iterator[None]:
    """Send the progress messages of the enclosed block to `listener`."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """An HTTP API: `url` is its root without a trailing slash, `authorization` the value of the header."""

    url: str
    name: str  # host:port, with its path
    loopback: bool = False  # never reached through a proxy of the environment
    authorization: str = field(default="", repr=False)
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A Prometheus server, the time range to query (unix seconds; the last `window` seconds are judged), and the
    matchers `select` of its series. `every`: seconds between two points of the history, each of which then covers the
    time since the one before; 0: as suits a search for changes.
    """

    access: ApiEndpoint
    since: float
    until: float
    window: float = 300.0
    select: tuple[str, ...] = ()
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class KubernetesWorkloads:
    """Workloads of a cluster, each `NAMESPACE/NAME`, `NAMESPACE/KIND/NAME` or `NAMESPACE`, and the login to it."""

    names: tuple[str, ...]
    login: Login


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """The sources to read. Times in seconds. `nvml` and `host` read this machine."""

    servers: tuple[str, ...] = ()  # base URLs or metrics URLs, scraped over the window
    found_servers: tuple[str, ...] = ()  # the same, found and not named: one that never answers is no outage
    metrics: tuple[Path, ...] = ()  # saved pages; two are the first and the last page of one server
    traces: tuple[Path, ...] = ()
    nsight: tuple[Path, ...] = ()  # Nsight Systems exports, tables of nsys stats and nvprof
    tensorrt: tuple[Path, ...] = ()  # outputs of trtexec; several engines are compared
    torch_memory: tuple[Path, ...] = ()  # memory_stats and snapshots of PyTorch's allocator
    logs: tuple[Path, ...] = ()
    documents: tuple[Path, ...] = ()  # output of commands, results of load tests, exports, as text
    prometheus: PrometheusServer | None = None
    kubernetes: KubernetesWorkloads | None = None
    log_pattern: str = ""  # format of the access log lines among `logs`; empty: one of the common formats
    past: TimeRange | None = None  # the requested time range of the logs; None: all of it
    changes: tuple[Path, ...] = ()  # change logs: what was changed and when
    pid: int | None = None
    nvml: bool = False
    host: bool = False
    window: float = 10.0
    timeout: float = 5.0  # for one response of one source
    leader: str = ""  # a collector's name: if it reads nothing, the others are stopped instead of taking their window

    @property
    def pages(self) -> tuple[str, ...]:
        """All metrics pages to scrape."""
        return (*self.servers, *self.found_servers)


class Clock(Protocol):
    """A clock that tests can replace."""

    def now(self) -> float: ...  # unix seconds UTC
    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class CollectResult:
    """The artifacts of one collector. A source that failed is a gap."""

    artifacts: tuple[Artifact, ...] = ()
    gaps: tuple[Gap, ...] = ()


_CODE_OF_FAILURE = {
    FailureCode.CONNECT_TIMEOUT: GapCode.TIMEOUT,
    FailureCode.TIMEOUT: GapCode.TIMEOUT,
    FailureCode.CERTIFICATE: GapCode.CERTIFICATE,
    FailureCode.CA_FILE: GapCode.CERTIFICATE,
    FailureCode.INVALID_REQUEST: GapCode.NOT_MATCHED,
    FailureCode.TOO_LARGE: GapCode.TOO_LARGE,
    FailureCode.REDIRECT: GapCode.REFUSED,
    FailureCode.STATUS: GapCode.REFUSED,
}


def code_of_failure(failure: FailureCode) -> GapCode:
    """The code of a gap whose cause is a failed HTTP exchange."""
    return _CODE_OF_FAILURE.get(failure, GapCode.UNREACHABLE)


class Availability(StrEnum):
    """Whether a source can be read here."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    IF_GIVEN = "if given"  # a file, an address or a process that the user names


@dataclass(frozen=True, slots=True)
class SourceAvailability:
    """One line of `preflight`: whether a source is available here, why not, and what would help.

    `option` is the flag that names it, of a source that is read only if it is given; `command` diagnoses it.
    """

    what: str
    status: Availability
    detail: str
    next_step: str = ""
    option: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class SourceReader:
    """`collect` does the I/O and turns a bad source into a gap, never an exception. `parse` takes the artifacts of one
    group, does no I/O beyond reading them, and raises SourceError if they cannot be parsed.
    """

    collect: Callable[[CollectRequest, Clock], CollectResult]
    parse: Callable[[Sequence[Artifact]], Evidence]
    preflight: Callable[[], Sequence[SourceAvailability]]


@dataclass(frozen=True, slots=True)
class Collector:
    """One kind of source. `reader` imports the package's I/O and parser, so that an unused source costs nothing."""

    name: str
    title: str
    signals: Callable[[], frozenset[str]]  # those it may yield
    is_requested: Callable[[CollectRequest], bool]  # does this request concern it?
    reader: Callable[[], SourceReader]
    option: str  # the flag that brings it in, for "next look": `--trace FILE`; empty where another source stands for it
    cost: str  # what a look costs: "reads a file", "watches for the window"
    # Signals that it reports when they occur but cannot rule out; never suggested as a next source.
    only_positive: frozenset[str] = frozenset()
    # Whether the evidence so far shows that there may be such a source; it is suggested only then.
    may_exist: Callable[[Evidence], bool] = lambda evidence: True

    @property
    def provides(self) -> frozenset[str]:
        """The signals it may yield."""
        return self.signals()

    @property
    def assured(self) -> frozenset[str]:
        """The signals that a source of this kind has, or can rule out."""
        return self.provides - self.only_positive

    def collect(self, request: CollectRequest, clock: Clock) -> CollectResult:
        return self.reader().collect(request, clock)

    def parse(self, artifacts: Sequence[Artifact]) -> Evidence:
        return self.reader().parse(artifacts)

    def preflight(self) -> Sequence[SourceAvailability]:
        return self.reader().preflight()


@dataclass(frozen=True, slots=True)
class SamplingMoment:
    """One time to sample, unix seconds UTC; `at_end` is true for the first and the last sample."""

    time: float
    at_end: bool


def sampling_offsets(window: float, interval: float, most: int) -> tuple[float, ...]:
    """Return offsets in seconds: 0, `window`, and about every `interval` between; at most `most` (2 or more)."""
    if window <= 0:
        return (0.0,)
    steps = max(1, min(most - 1, round(window / interval)))
    return tuple(window * step / steps for step in range(steps + 1))


def sampling_moments(clock: Clock, window: float, interval: float, most: int) -> Iterator[SamplingMoment]:
    """Sleep until each sampling time in turn. A slow source is sampled less often, not for longer.

    A clock set back within the window neither reorders the samples nor extends the window.
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
