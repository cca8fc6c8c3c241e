"""The thread that computes: it alone owns the scheduler and runs the model.

Messages arrive in its inbox; results are passed to the event loop through `call_soon_threadsafe` only. A batch that
does not fit into memory is halved until it does; a single request that does not fit is refused. Any other exception of
a computation ends the thread; the engine then answers the requests of its batch and starts another thread.
"""

from __future__ import annotations

import asyncio
import queue
import resource
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from latdoctor.lab.server.errors import Unavailable
from latdoctor.lab.server.intent_request import ModelAnswer, ModelInput, PendingRequests, Ticket
from latdoctor.lab.server.memory.pool_interface import OutOfMemory
from latdoctor.lab.server.schedulers.batch import Batch, ReleaseReason, Scheduler, Work

SAMPLE_EVERY = 0.1  # seconds between two samples of the thread's own usage while it is busy


class BatchResult(Struct, frozen=True):
    """A model's result for a batch, in its order; `standby`: from the light model.

    `padded_tokens` is what it computed: a compiled model pads to its own shapes.
    """

    intents: Sequence[int]
    scores: Sequence[float]
    version: str
    padded_tokens: int
    standby: bool = False


class BatchComputer(Protocol):
    """Computes batches with the main or standby model. Called on the worker's thread."""

    def compute(self, inputs: Sequence[ModelInput]) -> BatchResult: ...


class WorkerObserver(Protocol):
    """Observer of the worker for metrics. Called on the worker's thread; times are of the engine's clock."""

    def started(self, batch: Batch, now: float) -> None: ...

    def cut(self) -> None:
        """The batch that was started has no room in memory: it is computed, and finished, in parts."""

    def finished(self, batch: Batch, started: float, now: float, padded_tokens: int) -> None: ...

    def sampled(self) -> None:
        """From time to time, and whenever the worker becomes idle."""


@dataclass(frozen=True, slots=True)
class ThreadUsage:
    """The worker thread's own use of the machine since it began (getrusage(2), RUSAGE_THREAD)."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    page_faults: int = 0
    involuntary_switches: int = 0

    def __add__(self, other: ThreadUsage) -> ThreadUsage:
        return ThreadUsage(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    @staticmethod
    def of_this_thread() -> ThreadUsage:
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return ThreadUsage(used.ru_utime, used.ru_stime, used.ru_minflt, used.ru_nivcsw)


@dataclass(frozen=True, slots=True)
class Task:
    """Something to run on the worker's thread between two batches."""

    run: Callable[[], Any]
    outcome: Future[Any]


@dataclass(frozen=True, slots=True)
class Enqueue:
    work: Work


@dataclass(frozen=True, slots=True)
class Drop:
    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReplaceScheduler:
    build: Callable[[], Scheduler]


class Stop:
    """The last message: the worker ends."""


Message: TypeAlias = Task | Enqueue | Drop | ReplaceScheduler | Stop


class Worker(threading.Thread):
    """The loop: take a batch, compute it, deliver the answers, read the inbox."""

    def __init__(
        self,
        scheduler: Scheduler,
        pending: PendingRequests,
        computer: BatchComputer,
        observer: WorkerObserver,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name="latdoctor-worker", daemon=True)
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.current: tuple[Ticket, ...] = ()  # in progress when a worker is lost
        self.usage = ThreadUsage()
        self.stopped = False
        self._scheduler = scheduler
        self._pending = pending
        self._computer = computer
        self._observer = observer
        self._loop = loop
        self._clock = clock
        self._sampled = float("-inf")

    def run(self) -> None:
        while not self.stopped:
            self._drain()
            batch = self._scheduler.take(self._clock())
            if batch is not None:
                self._compute(batch)
            elif not self.stopped:
                self._rest()

    def _drain(self) -> None:
        """Handles the messages in the inbox, one request at a time: a rule may release on an arrival."""
        while True:
            try:
                message = self.inbox.get_nowait()
            except queue.Empty:
                return
            self._handle(message)

    def _rest(self) -> None:
        """Waits for a message or for the scheduler's next wake-up."""
        self._sample()
        now = self._clock()
        wake = self._scheduler.wake_at(now)
        try:
            # Even a wake-up that is already due sleeps a moment, so that a wrong rule does not busy-loop.
            message = self.inbox.get(timeout=None if wake is None else max(0.0002, wake - now))
        except queue.Empty:
            return
        self._handle(message)

    def _handle(self, message: Message) -> None:
        match message:
            case Enqueue(work):
                self._scheduler.add(work)
            case Drop(ids):
                self._scheduler.drop(ids)
            case ReplaceScheduler(build):
                self._reschedule(build())
            case Task():
                self._run_task(message)
            case Stop():
                self.stopped = True

    def _reschedule(self, scheduler: Scheduler) -> None:
        """The new rule takes over what waits, in order of arrival."""
        for work in sorted(self._scheduler.pending, key=lambda work: (work.arrived, work.id)):
            scheduler.add(work)
        self._scheduler = scheduler

    @staticmethod
    def _run_task(task: Task) -> None:
        if not task.outcome.set_running_or_notify_cancel():
            return
        try:
            result = task.run()
        except BaseException as error:
            task.outcome.set_exception(error)
            if not isinstance(error, Exception):  # SystemExit and the like end this thread
                raise
        else:
            task.outcome.set_result(result)

    def _compute(self, batch: Batch) -> None:
        self.current = tickets = self._pending.take(work.id for work in batch.works)
        if not tickets:  # every client has disconnected
            return
        kept = Batch(tuple(ticket.work for ticket in tickets), batch.reason)
        self._observer.started(kept, self._clock())
        left = [tickets]
        while left:
            part = left.pop()
            try:
                self._compute_part(part, batch.reason)
            except OutOfMemory as error:
                self._observer.cut()
                if len(part) > 1:
                    half = len(part) // 2
                    left += [part[half:], part[:half]]
                else:
                    self._loop.call_soon_threadsafe(_refuse, part[0], error)
        self.current = ()
        if self._clock() - self._sampled >= SAMPLE_EVERY:
            self._sample()

    def _compute_part(self, tickets: tuple[Ticket, ...], reason: ReleaseReason) -> None:
        """Computes and answers `tickets` in one call of the model. Raises OutOfMemory."""
        started = self._clock()
        result = self._computer.compute([ticket.input for ticket in tickets])
        computed = self._clock()
        answers = [
            (ticket, ModelAnswer(intent, score, result.version, started, computed, result.standby))
            for ticket, intent, score in zip(tickets, result.intents, result.scores, strict=True)
        ]
        done = Batch(tuple(ticket.work for ticket in tickets), reason)
        # Metrics first: a client that has its answer must find it on the metrics page.
        self._observer.finished(done, started, computed, result.padded_tokens)
        self._loop.call_soon_threadsafe(_deliver, answers)

    def _sample(self) -> None:
        self._sampled = self._clock()
        self.usage = ThreadUsage.of_this_thread()
        self._observer.sampled()


def _deliver(answers: Sequence[tuple[Ticket, ModelAnswer]]) -> None:
    """On the event loop: answers the requests that still wait."""
    for ticket, computed in answers:
        if not ticket.answer.done():
            ticket.answer.set_result(computed)


def _refuse(ticket: Ticket, error: OutOfMemory) -> None:
    """On the event loop: refuses the request; a second later there may be memory for it."""
    if not ticket.answer.done():
        ticket.answer.set_exception(Unavailable("out-of-memory", error.what, retry_after=1))
