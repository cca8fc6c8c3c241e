"""A server in virtual time: real scheduler, cost model, admission and controller; the model is a formula."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct

from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.control.feedback import FeedbackController
from latdoctor.lab.server.control.load_window import CallCosts, Measurement, QueueState, nearest_rank
from latdoctor.lab.server.control.step import ControlStep
from latdoctor.lab.server.errors import LoadShed
from latdoctor.lab.server.governance import Governance
from latdoctor.lab.server.intent_request import IntentRequest, PendingRequests, Ticket
from latdoctor.lab.server.schedulers import build
from latdoctor.lab.server.schedulers.batch import Batch, Work
from latdoctor.lab.server.schedulers.cost_model import Cost, CostModel

NOISE = 0.05  # standard deviation of the logarithm of a batch's time
_REQUEST = IntentRequest(text="x")


class Tuner(Protocol):
    """Anything that changes the configuration while it runs."""

    def patch(self, now: float, config: ServerConfig, found: Measurement) -> dict[str, dict[str, Any]] | None: ...


class FeedbackTuner:
    """The product's controller."""

    def __init__(self) -> None:
        self.controller = FeedbackController(lambda: 0.0)

    def patch(self, now: float, config: ServerConfig, found: Measurement) -> dict[str, dict[str, Any]] | None:
        change = self.controller.decide(now, config, found)
        return change.patch if change is not None else None

    @property
    def steps(self) -> Sequence[ControlStep]:
        return self.controller.steps


class SimulationResult(Struct, frozen=True):
    """`answers`: arrival and latency of each answered request; `shed`: arrivals of the refused ones, in seconds."""

    seconds: float
    slo: float
    answers: tuple[tuple[float, float], ...]
    shed: tuple[float, ...]

    @property
    def requests(self) -> int:
        return len(self.answers) + len(self.shed)

    @property
    def late(self) -> int:
        return sum(latency > self.slo for _, latency in self.answers)

    @property
    def violations(self) -> float:
        """Share of all requests that were late or refused."""
        return (self.late + len(self.shed)) / max(1, self.requests)

    @property
    def goodput(self) -> float:
        """Requests answered within the objective, a second."""
        return (len(self.answers) - self.late) / self.seconds

    @property
    def p99(self) -> float:
        """Of the answered ones."""
        return nearest_rank(sorted(latency for _, latency in self.answers), 0.99)


class VirtualServer:
    """One replica; `service_time(now)` multiplies what a batch takes."""

    def __init__(
        self,
        config: ServerConfig,
        cost: Cost,
        seed: int,
        service_time: Callable[[float], float] = lambda _: 1.0,
        on_done: Callable[[int, float | None], None] = lambda *_: None,
    ) -> None:
        """`on_done` gets the number of each request and its latency, None where it was refused."""
        self.config, self.now = config, 0.0
        self.model = CostModel()
        self.governance = Governance(config, self.model, lambda: self.now)
        self.pending = PendingRequests()
        self.answers: list[tuple[float, float]] = []
        self.shed: list[float] = []
        self._on_done = on_done
        self._cost, self._service_time, self._chance = cost, service_time, random.Random(seed)
        self._scheduler = build(config.batching, self.model)
        self._running: tuple[Batch, float, float] | None = None  # with its start and its end
        self._deadlines: list[tuple[float, int, float]] = []  # with the request's number and arrival

    def arrive(self, work: Work) -> None:
        """One request comes in now."""
        try:
            deadline = self.governance.admit(_REQUEST, work.tokens, work.arrived, self.pending)
        except LoadShed:
            self._refuse(work.id, work.arrived)
            return
        admitted = msgspec.structs.replace(work, deadline=deadline)
        self.pending.add(Ticket(admitted, (), cast(Any, None)))
        self._scheduler.add(admitted)
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, work.id, work.arrived))

    def next_event(self) -> float:
        """When something happens without a further arrival."""
        times = [self._deadlines[0][0]] if self._deadlines else []
        if self._running is not None:
            times.append(self._running[2])
        elif (wake := self._scheduler.wake_at(self.now)) is not None:
            times.append(max(wake, self.now))
        return min(times, default=math.inf)

    def advance(self, now: float) -> None:
        """All that is due by `now`, at which no event before it was left out."""
        self.now = now
        if self._running is not None and self._running[2] <= now:
            self._finish(*self._running)
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, arrived = heapq.heappop(self._deadlines)
            if self.pending.take([number]):
                self._scheduler.drop(frozenset({number}))
                self._refuse(number, arrived)

    def start(self) -> None:
        """An idle worker takes the next batch, if there is one."""
        if self._running is None and (batch := self._scheduler.take(self.now)) is not None:
            self.pending.take(work.id for work in batch.works)
            self.model.started(batch, self.now)
            usual = self._cost.seconds(batch.size, batch.padded_tokens // batch.size)
            took = usual * self._service_time(self.now) * math.exp(self._chance.gauss(0, NOISE))
            self._running = (batch, self.now, self.now + took)

    def configure(self, patch: dict[str, dict[str, Any]]) -> None:
        before, self.config = self.config, patched(self.config, patch)
        self.governance.configure(self.config)
        if before.batching != self.config.batching:
            old, self._scheduler = self._scheduler, build(self.config.batching, self.model)
            for work in old.pending:
                self._scheduler.add(work)

    def measure(self, seconds: float) -> Measurement:
        queue = QueueState(self.pending.depth, self.pending.oldest_age(self.now))
        slo = self.config.control.slo_ms / 1000
        costs = CallCosts(*self.model.learnt(), self.config.batching.max_batch_tokens)
        return self.governance.load.measure(self.now, seconds, slo, queue, costs)

    def _finish(self, batch: Batch, started: float, finished: float) -> None:
        self._running = None
        self.model.finished(finished)
        self.governance.load.computed(finished, finished - started, batch.size, batch.reason)
        for work in batch.works:
            self.answers.append((work.arrived, finished - work.arrived))
            self.governance.load.answered(finished, finished - work.arrived)
            self._on_done(work.id, finished - work.arrived)

    def _refuse(self, number: int, arrived: float) -> None:
        self._on_done(number, None)
        self.shed.append(arrived)
        self.governance.load.shed(self.now)


def simulate(server: VirtualServer, works: Sequence[Work], seconds: float, tuner: Tuner | None) -> SimulationResult:
    """Serves `works` (in order of arrival) for `seconds` and until all are answered; `tuner` acts at each interval."""
    coming, control = list(reversed(works)), server.config.control
    interval = control.interval_ms / 1000
    tick = interval
    while coming or server.pending.depth or math.isfinite(server.next_event()):
        now = min(coming[-1].arrived if coming else math.inf, server.next_event(), tick)
        server.advance(now)
        while coming and coming[-1].arrived <= now:
            server.arrive(coming.pop())
        if now >= tick:
            tick += interval
            if tuner is not None:
                patch = tuner.patch(now, server.config, server.measure(server.config.control.window_ms / 1000))
                if patch is not None:
                    server.configure(patch)
        server.start()
    return SimulationResult(seconds, control.slo_ms / 1000, tuple(server.answers), tuple(server.shed))
