"""The inference engine on the event loop: queues requests and supervises the worker thread."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from latdoctor.errors import OperationError
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.errors import Unavailable
from latdoctor.lab.server.intent_request import ModelAnswer, ModelInput, PendingRequests, Ticket
from latdoctor.lab.server.schedulers.batch import Lane, Scheduler, Work
from latdoctor.lab.server.worker import (
    BatchComputer,
    Drop,
    Enqueue,
    Message,
    ReplaceScheduler,
    Stop,
    Task,
    ThreadUsage,
    Worker,
    WorkerObserver,
)

T = TypeVar("T")


class Engine:
    """One worker, its queue and its replacement. All methods are called on the event loop unless they say otherwise.

    `clock` gives seconds of a monotonic clock; `scheduler_factory` builds the scheduler for a configuration.
    """

    def __init__(
        self,
        scheduler_factory: Callable[[ServerConfig], Scheduler],
        config: ServerConfig,
        computer: BatchComputer,
        observer: WorkerObserver,
        clock: Callable[[], float],
    ) -> None:
        self.pending = PendingRequests()
        self.restarts = 0  # of lost workers
        self.renewals = 0  # of workers, requested by the operator
        self._factory = scheduler_factory
        self._config = config
        self._computer = computer
        self._observer = observer
        self._clock = clock
        self._ids = itertools.count(1)
        self._worker: Worker | None = None
        self._leaving: Worker | None = None  # to be replaced as soon as it has ended
        self._before = ThreadUsage()  # of the workers before this one

    def start(self) -> None:
        """Starts the worker; needs the running event loop."""
        self._worker = Worker(
            self._factory(self._config),
            self.pending,
            self._computer,
            self._observer,
            asyncio.get_running_loop(),
            self._clock,
        )
        self._worker.start()

    @property
    def worker(self) -> Worker:
        """The present thread. Raises OperationError before the start."""
        if self._worker is None:
            raise OperationError("the worker was not started")
        return self._worker

    @property
    def usage(self) -> ThreadUsage:
        """The total usage of all workers so far. Any thread."""
        return self._before + (self._worker.usage if self._worker else ThreadUsage())

    def submit(self, tokens: int, model_input: ModelInput, *, lane: Lane, deadline: float | None) -> Ticket:
        """Queues a request; the ticket's future gets the answer, or Unavailable where the worker is lost."""
        work = Work(next(self._ids), tokens, self._clock(), deadline, lane)
        answer: asyncio.Future[ModelAnswer] = asyncio.get_running_loop().create_future()
        ticket = Ticket(work, model_input, answer)
        self.pending.add(ticket)
        self._send(Enqueue(work))
        return ticket

    def drop(self, ticket: Ticket) -> bool:
        """Removes a ticket that still waits; False where its computation has begun or is done."""
        if not self.pending.take([ticket.work.id]):
            return False
        self._send(Drop(frozenset({ticket.work.id})))
        return True

    def reschedule(self, config: ServerConfig) -> None:
        """Another scheduler from now on; it takes over the waiting requests."""
        self._config = config
        self._send(ReplaceScheduler(lambda: self._factory(config)))

    async def on_worker(self, run: Callable[[], T]) -> T:
        """The result of `run` on the worker's thread, between two batches. Raises what it raises, or Unavailable."""
        outcome: Future[Any] = Future()
        self._send(Task(run, outcome))
        result: T = await asyncio.wrap_future(outcome)
        return result

    async def renew(self, seconds: float) -> None:
        """Replaces the worker after its present batch. Waiting requests are kept.

        Raises Unavailable where it has not ended within `seconds`: then it is replaced when it does.
        """
        old = self.worker
        if self._leaving is not old:
            self._leaving = old
            self._send(Stop())
        await asyncio.to_thread(old.join, seconds)
        self.replace_lost_worker()
        if self._worker is old:
            raise Unavailable("worker-busy", f"the worker has not ended its batch within {seconds:g} s")

    def replace_lost_worker(self) -> None:
        """Replaces a worker whose thread has ended. Called by the heartbeat."""
        lost = self._worker
        if lost is None or lost.is_alive() or (lost.stopped and lost is not self._leaving):
            return
        self._before += lost.usage
        self.renewals += lost.stopped
        self.restarts += not lost.stopped
        for ticket in lost.current:
            if not ticket.answer.done():
                ticket.answer.set_exception(
                    Unavailable("worker-lost", "the worker that computed this request was lost; send it again")
                )
        self.start()
        for ticket in self.pending.all():
            self._send(Enqueue(ticket.work))
        _hand_over(lost, self.worker)

    def stop(self) -> Worker | None:
        """Ends the thread after the present batch. The caller joins it off the event loop."""
        self._leaving = None
        if self._worker is not None:
            self._send(Stop())
        return self._worker

    def _send(self, message: Message) -> None:
        self.worker.inbox.put(message)


def _hand_over(lost: Worker, to: Worker) -> None:
    """Moves pending tasks to the replacement. It already has the waiting requests and the current scheduler."""
    while not lost.inbox.empty():
        message = lost.inbox.get_nowait()
        if isinstance(message, Task):
            to.inbox.put(message)
