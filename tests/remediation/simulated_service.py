"""A service in memory whose latency follows its configuration, under a clock that only moves on a sleep."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from latdoctor.detectors.quantiles import quantiles
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Bucket, Distribution, Evidence, Origin, Reading, Window
from latdoctor.journal.entry import JournalEntry, Moment, encode_body, next_entry, now
from latdoctor.journal.store import Journal
from latdoctor.remediation.change import Contended, Deadline, Receipt, Refused, State, Unreachable, Value, Values
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.target import Access, Target

AT = 1_770_000_000.0  # unix seconds when the simulated clock stands at 0
LONGEST = 10.0  # seconds for one exchange, as in latdoctor.remediation.admin_api
FINDING = "batch-sizes-bimodal"
NAME = "test.set"


@dataclass
class Service:
    """What is changed. `after` hooks let a test edit, hang, or lose a reply at a certain moment."""

    values: dict[str, Value] = field(default_factory=lambda: {"scheduler": "long-alone", "lanes": False})
    version: int = 1
    instance: str = "i1"  # the process; another one after a restart
    now: float = 0.0
    clock_set: float = 0.0  # seconds by which the wall clock was set
    boot: str = "boot"
    hangs: bool = False
    loses_replies: int = 0
    refuses: bool = False
    rate: float = 40.0
    readable: bool = True  # whether its page can be read
    hidden: bool = False  # whether it shows nothing of itself
    error_ratio: float = 0.0
    drain: float = 0.0  # seconds after a change for which the queue of the incident keeps P99 high
    changed_at: float = -1e9
    completed: Callable[[Service], float] | None = None  # a second, where the page shows it
    queue: Callable[[Service], float] | None = None  # else it is long where P99 is
    answers: float | None = None  # a second: P99 is what so many answers tell of it; else it is simply known
    bundle: Bundle | None = None  # what an observation is parsed from
    writes: list[Values] = field(default_factory=list)
    reads: int = 0
    on_write: Callable[[Service], None] = lambda service: None
    on_answer: Callable[[Service], None] = lambda service: None  # before each reading and each writing
    on_written: Callable[[Service, dict[str, Value]], None] = lambda service, values: None  # what is set just now
    on_observe: Callable[[Service], None] = lambda service: None
    p99: Callable[[Service], float] = lambda service: 0.3 if service.values["scheduler"] == "token-budget" else 3.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wall(self) -> float:
        return AT + self.now + self.clock_set

    def edit(self, **values: Value) -> None:
        """Another client changes a setting."""
        self.values.update(values)
        self.version += 1

    def restart(self, **values: Value) -> None:
        """A new process, with these values from its configuration."""
        self.edit(**values)
        self.instance += "+"

    def observe(self, seconds: float) -> Observation:
        self.on_observe(self)
        began = self.wall()
        self.now += seconds
        draining = self.now - seconds < self.changed_at + self.drain
        p99 = 3.0 if draining else self.p99(self)
        queue = self.queue(self) if self.queue else 200.0 if p99 > 1 else 2.0
        rows = {"arrival.rate": self.rate, "error.ratio": self.error_ratio, "queue.depth": queue}
        if self.readable and self.answers is None:
            rows["latency.p99"] = p99
        if self.completed is not None:
            rows["completion.rate"] = self.completed(self)
        if self.hidden:
            rows = {"host.cpus": 2.0}
        window = Window(began, self.wall())
        readings = tuple(Reading(name, "service", value, Origin("page"), window) for name, value in rows.items())
        bimodal = "fired" if p99 > 1 and not draining else "clear"
        findings = {FINDING: bimodal if self.readable else "not-evaluated"}
        seen = Evidence.merge((Evidence(readings=readings), self._latency(p99, window)))
        return Observation(seen, findings, {"slo.p99": 0.5}, began, self.wall(), self.bundle)

    def _latency(self, p99: float, window: Window) -> Evidence:
        """P99 as estimated from the answers of one observation."""
        if self.answers is None or not self.readable:
            return Evidence()
        bucket = Bucket(p99, p99, self.answers * ((window.end or 0.0) - (window.start or 0.0)))
        spread = Evidence(distributions=(Distribution("latency", "service", (bucket,), Origin("page"), window=window),))
        return Evidence.merge((spread, quantiles(spread)))


class Remembered(Journal):
    """A journal without a disk: hundreds of runs would wait for it most of the time."""

    @classmethod
    def opened(cls, path: Path, clock: Callable[[], Moment] = now) -> Remembered:
        return cls(path, True, clock)

    def append(self, run: str, kind: str, body: Struct | Mapping[str, object]) -> JournalEntry:
        kept = self._kept
        kept.append(next_entry(kept[-1] if kept else None, run, kind, encode_body(body), self.clock()))
        return kept[-1]

    def entries(self, run: str = "", kinds: Container[str] = ()) -> tuple[JournalEntry, ...]:
        return tuple(e for e in self._kept if (not run or e.run == run) and (not kinds or e.kind in kinds))

    @property
    def _kept(self) -> list[JournalEntry]:
        kept: list[JournalEntry] = self.__dict__.setdefault("kept", [])
        return kept


class InMemory:
    """The service as a resource."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def read(self, deadline: Deadline) -> State:
        self._answers(deadline)
        self._service.reads += 1
        return State(dict(self._service.values), str(self._service.version), instance=self._service.instance)

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        service = self._service
        self._answers(deadline)
        service.on_write(service)
        if service.refuses:
            raise Refused("not with me")
        if version != str(service.version):
            raise Contended("it has changed")
        service.on_written(service, dict(values))
        service.writes.append(dict(values))
        service.values.update(values)
        service.version += 1
        service.changed_at = service.now
        if service.loses_replies:
            service.loses_replies -= 1
            raise Unreachable("the connection was closed")
        return Receipt(str(service.version), service.instance)

    def manual_command(self, values: Values) -> str:
        return f"set {dict(values)}"

    def _answers(self, deadline: Deadline) -> None:
        self._service.on_answer(self._service)
        if self._service.hangs:
            self._service.now += min(deadline.left, LONGEST)
            raise Unreachable("no answer")


@dataclass(frozen=True)
class Setting:
    """The action on it."""

    service: Service
    name: str = NAME
    place: str = "memory"
    kinds: frozenset[str] = frozenset({"reference"})
    undos: frozenset[str] = frozenset({"restore", "none-needed", "irreversible"})

    def check_arguments(self, given: Mapping[str, str]) -> Iterator[str]:
        return iter(())

    def resource_id(self, target: Target, given: Mapping[str, str]) -> str:
        return self.place

    def resource(self, access: Access, resource_id: str) -> InMemory:
        return InMemory(self.service)

    def desired_values(self, given: Mapping[str, str], state: State) -> Values:
        return {name: text == "true" if text in ("true", "false") else text for name, text in given.items()}
