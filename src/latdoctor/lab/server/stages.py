"""Stages of a request before and after the queue. Each can be wrapped while the server runs (fault injection).

    preprocess → session → dependency → (queue, forward) → postprocess → send

A stage returns whether it applied to the request: only then is its duration observed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from time import perf_counter
from types import TracebackType
from typing import TypeAlias

from latdoctor.errors import UsageError
from latdoctor.lab.server.request_context import RequestContext


class TimedLock:
    """A mutual exclusion lock that reports every wait in seconds, zero where it was free."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._lock = threading.Lock()
        self._observe = observe

    def __enter__(self) -> None:
        if self._lock.acquire(blocking=False):
            self._observe(0.0)
            return
        started = perf_counter()
        self._lock.acquire()
        self._observe(perf_counter() - started)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


Call: TypeAlias = Callable[[RequestContext], bool]  # runs on a request thread
AsyncCall: TypeAlias = Callable[[RequestContext], Awaitable[bool]]  # runs on the event loop: it only waits
Observe: TypeAlias = Callable[[float], None]

ON_THREAD = ("preprocess", "session", "postprocess", "send")
ON_LOOP = ("dependency",)
NAMES = ("preprocess", "session", "dependency", "postprocess", "send")


class Stages:
    """Runs the stages. Those on a thread share one hop there and back; wrappers are applied from the inside out."""

    def __init__(
        self, calls: Mapping[str, Call], dependency: AsyncCall, observe: Mapping[str, Observe], threads: Executor
    ) -> None:
        self._plain = {name: calls[name] for name in ON_THREAD}
        self._plain_dependency = dependency
        self._calls = dict(self._plain)
        self._dependency = dependency
        self._observe = observe
        self._threads = threads
        self._wrappers: dict[str, list[Callable[[Call], Call]]] = {name: [] for name in ON_THREAD}
        self._loop_wrappers: list[Callable[[AsyncCall], AsyncCall]] = []

    def wrap(self, name: str, wrapper: Callable[[Call], Call]) -> Callable[[], None]:
        """Puts `wrapper` around a stage that runs on a thread; what is returned takes it away again.

        Raises UsageError for another name.
        """
        if name not in self._wrappers:
            raise UsageError(f"there is no stage {name!r} on a thread", next_step=f"one of {', '.join(ON_THREAD)}")
        self._wrappers[name].append(wrapper)
        self._rebuild()
        return lambda: self._remove(name, wrapper)

    def wrap_dependency(self, wrapper: Callable[[AsyncCall], AsyncCall]) -> Callable[[], None]:
        """The same for the stage `dependency`, which runs on the event loop."""
        self._loop_wrappers.append(wrapper)
        self._rebuild()
        return lambda: self._remove_dependency(wrapper)

    async def before(self, exchange: RequestContext) -> None:
        """The stages before the queue. Raises Refused for a request that goes no further."""
        await self._on_thread(("preprocess", "session"), exchange)
        started = perf_counter()
        applied = await self._dependency(exchange)
        self._note("dependency", started, applied=applied)

    async def after(self, exchange: RequestContext) -> None:
        """The stages after the computation; then `exchange.body` is what is sent."""
        await self._on_thread(("postprocess", "send"), exchange)

    async def elsewhere(self, run: Callable[[], None]) -> None:
        """Runs what would block on a request thread."""
        await asyncio.get_running_loop().run_in_executor(self._threads, run)

    async def _on_thread(self, names: tuple[str, ...], exchange: RequestContext) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._run, names, exchange)

    def _run(self, names: tuple[str, ...], exchange: RequestContext) -> None:
        for name in names:
            started = perf_counter()
            applied = self._calls[name](exchange)
            self._note(name, started, applied=applied)

    def _note(self, name: str, started: float, *, applied: bool) -> None:
        if applied and name in self._observe:
            self._observe[name](perf_counter() - started)

    def _rebuild(self) -> None:
        for name, wrappers in self._wrappers.items():
            call = self._plain[name]
            for wrapper in wrappers:
                call = wrapper(call)
            self._calls[name] = call
        dependency = self._plain_dependency
        for loop_wrapper in self._loop_wrappers:
            dependency = loop_wrapper(dependency)
        self._dependency = dependency

    def _remove(self, name: str, wrapper: Callable[[Call], Call]) -> None:
        if wrapper in self._wrappers[name]:
            self._wrappers[name].remove(wrapper)
            self._rebuild()

    def _remove_dependency(self, wrapper: Callable[[AsyncCall], AsyncCall]) -> None:
        if wrapper in self._loop_wrappers:
            self._loop_wrappers.remove(wrapper)
            self._rebuild()
