"""The worker and its queue, with a tiny scheduler: what is accepted is answered, whatever happens to the worker."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
from collections.abc import Awaitable, Callable, Sequence

import pytest

from latdoctor.lab.server.config import BatchingConfig, ServerConfig
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.errors import Unavailable
from latdoctor.lab.server.intent_request import ModelInput, Ticket
from latdoctor.lab.server.memory.pool_interface import OutOfMemory
from latdoctor.lab.server.schedulers.batch import Batch, Lane
from latdoctor.lab.server.worker import BatchResult
from tests.lab.server.fakes import PATIENCE, FakeModel, Fifo

lost_on_purpose = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class Bench:
    """An engine with a fake model; the scheduler takes `max_batch_requests` at a time."""

    def __init__(self) -> None:
        self.model = FakeModel()
        self.seen: list[Batch] = []
        self.cuts = 0
        self.room = 1000  # tokens that memory suffices for
        ticks = itertools.count()
        self.engine = Engine(
            lambda config: Fifo(config.batching.max_batch_requests),
            ServerConfig(batching=BatchingConfig(max_batch_requests=1)),
            self,
            self,
            lambda: float(next(ticks)),
        )

    def compute(self, inputs: Sequence[ModelInput]) -> BatchResult:
        if sum(map(len, inputs)) > self.room:
            raise OutOfMemory("no room")
        found = self.model.forward(inputs)
        return BatchResult(found.intents, found.scores, "v1", found.padded_tokens)

    def started(self, batch: Batch, now: float) -> None:
        """Not looked at."""

    def cut(self) -> None:
        self.cuts += 1

    def finished(self, batch: Batch, started: float, now: float, padded_tokens: int) -> None:
        assert now > started
        assert padded_tokens == batch.padded_tokens
        self.seen.append(batch)

    def sampled(self) -> None:
        """Not looked at."""

    def submit(self, tokens: int) -> Ticket:
        return self.engine.submit(tokens, [1] * tokens, lane=Lane.ALL, deadline=None)

    async def held(self) -> Ticket:
        """A request that the worker computes until the gate opens."""
        self.model.gate.clear()
        ticket = self.submit(1)
        await asyncio.to_thread(self.model.until_entered)
        return ticket

    async def replaced(self) -> None:
        """Returns when the worker of now is gone and another works."""
        worker = self.engine.worker
        await asyncio.to_thread(worker.join, PATIENCE)
        assert not worker.is_alive()
        self.engine.replace_lost_worker()
        assert self.engine.worker is not worker


def on_bench(scene: Callable[[Bench], Awaitable[None]]) -> None:
    async def play() -> None:
        bench = Bench()
        bench.engine.start()
        async with asyncio.timeout(PATIENCE):
            await scene(bench)
        bench.model.gate.set()
        last = bench.engine.stop()
        assert last is not None
        await asyncio.to_thread(last.join, PATIENCE)
        assert not last.is_alive()

    asyncio.run(play())


def test_each_gets_its_own_answer() -> None:
    async def scene(bench: Bench) -> None:
        tickets = [bench.submit(tokens) for tokens in (1, 2, 3, 4)]
        answers = [await ticket.answer for ticket in tickets]
        assert [answer.intent for answer in answers] == [1, 2, 0, 1]
        assert all(answer.batched < answer.computed for answer in answers)
        assert (bench.engine.pending.depth, bench.engine.pending.tokens) == (0, 0)

    on_bench(scene)


def test_a_new_rule_takes_over_what_waits() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.held()
        waiting = [bench.submit(tokens) for tokens in (2, 3)]
        bench.engine.reschedule(ServerConfig(batching=BatchingConfig(max_batch_requests=8)))
        waiting.append(bench.submit(4))
        bench.model.gate.set()
        for ticket in (first, *waiting):
            await ticket.answer
        assert bench.model.batches == [[1], [2, 3, 4]]

    on_bench(scene)


def test_a_request_of_a_disconnected_client_is_not_computed() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.held()
        gone, stays = bench.submit(2), bench.submit(3)
        assert bench.engine.drop(gone)
        assert not bench.engine.drop(gone)
        assert not bench.engine.drop(first)
        assert bench.engine.pending.tokens == 3
        bench.model.gate.set()
        await first.answer
        await stays.answer
        assert bench.model.batches == [[1], [3]]

    on_bench(scene)


@lost_on_purpose
def test_a_lost_worker_is_replaced_and_answered_for() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.held()
        waiting = [bench.submit(2), bench.submit(3)]
        bench.engine.reschedule(ServerConfig(batching=BatchingConfig(max_batch_requests=8)))
        bench.model.fails_with = RuntimeError("the forward failed")
        used = bench.engine.usage
        bench.model.gate.set()
        await bench.replaced()
        with pytest.raises(Unavailable) as refused:
            await first.answer
        assert (refused.value.status, refused.value.reason) == (503, "worker-lost")
        for ticket in waiting:
            await ticket.answer
        assert bench.engine.restarts == 1
        assert bench.engine.usage.user_seconds >= used.user_seconds
        assert bench.model.batches == [[1], [2, 3]]  # by the rule that was asked for last
        assert (await bench.submit(4).answer).intent == 1

    on_bench(scene)


@lost_on_purpose
def test_a_killed_thread_is_replaced_too() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.held()
        ident = ctypes.c_ulong(bench.engine.worker.ident or 0)
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit)) == 1
        bench.model.gate.set()
        await bench.replaced()
        with pytest.raises(Unavailable):
            await first.answer
        assert (await bench.submit(5).answer).intent == 2

    on_bench(scene)


def test_a_worker_that_lives_is_left_alone() -> None:
    async def scene(bench: Bench) -> None:
        worker = bench.engine.worker
        bench.engine.replace_lost_worker()
        assert bench.engine.worker is worker
        assert bench.engine.restarts == 0

    on_bench(scene)


def test_a_task_on_the_worker_returns_its_result_or_error() -> None:
    async def scene(bench: Bench) -> None:
        def fails() -> None:
            raise ValueError("no")

        assert await bench.engine.on_worker(lambda: 5) == 5
        with pytest.raises(ValueError, match="no"):
            await bench.engine.on_worker(fails)
        assert (await bench.submit(1).answer).intent == 1

    on_bench(scene)


@lost_on_purpose
def test_what_waits_to_run_on_the_worker_survives_its_loss() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.held()
        bench.model.fails_with = RuntimeError("lost")
        task = asyncio.ensure_future(bench.engine.on_worker(lambda: 7))
        await asyncio.sleep(0)  # so that the task is in the inbox
        bench.model.gate.set()
        await bench.replaced()
        assert await task == 7
        with pytest.raises(Unavailable):
            await first.answer

    on_bench(scene)


def test_a_batch_over_the_memory_is_computed_in_parts_and_the_worker_lives() -> None:
    async def scene(bench: Bench) -> None:
        bench.engine.reschedule(ServerConfig(batching=BatchingConfig(max_batch_requests=8)))
        bench.room = 10
        first = await bench.held()
        tickets = [bench.submit(tokens) for tokens in (4, 5, 11, 2, 3)]
        bench.model.gate.set()
        assert (await first.answer).intent == 1
        assert [(await ticket.answer).intent for ticket in tickets if ticket.work.tokens != 11] == [1, 2, 2, 0]
        with pytest.raises(Unavailable) as refused:
            await tickets[2].answer
        assert (refused.value.status, refused.value.reason, refused.value.retry_after) == (503, "out-of-memory", 1)
        assert bench.model.batches == [[1], [4, 5], [2, 3]]
        assert [batch.tokens for batch in bench.seen] == [1, 9, 5]
        assert bench.cuts == 3
        assert bench.engine.restarts == 0

    on_bench(scene)
