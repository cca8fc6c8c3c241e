"""An event loop whose time is virtual: it jumps to the next timer, so that minutes of load take milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from latdoctor.load.openloop import OpenLoop
from latdoctor.load.outcome import Reply
from latdoctor.load.plan import LoadPlan, schedule
from latdoctor.load.summary import LoadResult, RawRun, summarise

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is left that could ever happen"
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def stall(self, seconds: float) -> None:
        """Time goes by while nothing runs."""
        self._jumping.now += seconds


def virtually(start: Callable[[Callable[[], float]], Coroutine[Any, Any, T]]) -> T:
    """Runs `start(clock)` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(start(runner.get_loop().time))


class OneWorker:
    """A server that computes one request at a time, `service` seconds each, and stands still in `frozen`."""

    def __init__(self, service: float, frozen: tuple[float, float] = (0.0, 0.0)) -> None:
        self._service, self._frozen, self._free = service, frozen, 0.0
        self.seen: list[tuple[float, str, int]] = []

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        now = asyncio.get_running_loop().time()
        self.seen.append((now, request_id, attempt))
        start = max(now, self._free)
        begin, end = self._frozen
        self._free = (end if begin <= start < end else start) + self._service
        await asyncio.sleep(self._free - now)
        return Reply("200")


class StallsHere:
    """Answers at once, but the first request stalls the generator itself (its whole loop) for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.stall(self._seconds)
        self._seconds = 0.0
        return Reply("200")


class Scripted:
    """Answers the n-th attempt of each request with the n-th status, and with the last one from then on."""

    def __init__(self, *statuses: str, retry_after: float | None = None, takes: float = 0.01) -> None:
        self._statuses, self._retry_after, self._takes = statuses, retry_after, takes
        self.seen: list[tuple[float, str, int]] = []

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        self.seen.append((asyncio.get_running_loop().time(), request_id, attempt))
        status = self._statuses[min(attempt, len(self._statuses) - 1)]
        await asyncio.sleep(1e6 if status == "never" else self._takes)
        return Reply(status, self._retry_after)


def played(plan: LoadPlan, server: OneWorker | Scripted | StallsHere) -> LoadResult:
    """The result of `plan` against `server`, in virtual time."""
    planned = schedule(plan)

    async def play(clock: Callable[[], float]) -> LoadResult:
        run = OpenLoop(plan, planned, server, clock)
        begin = clock()
        await run.run()
        more = run.added, run.sessions, tuple(run.changes)
        ran = RawRun("virtual", 0.0, clock() - begin, 0.0, run.most_in_flight, run.stopped, tuple(run.outcomes), *more)
        return summarise(plan, planned, ran)

    return virtually(play)
