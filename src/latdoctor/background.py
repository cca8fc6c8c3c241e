"""Calls on daemon threads: one that is abandoned at its deadline, or many that run concurrently.

A daemon thread that hangs does not keep a command from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """A running `call` on a thread called `name`.

    It keeps the result of the call but not the call itself, because a traceback that shows variables would show the
    arguments of the call.
    """

    __slots__ = ("_ended", "_error", "_value")

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._ended = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

        def work() -> None:
            try:
                self._value = call()
            except BaseException as error:  # noqa: BLE001 - it is raised again on the waiting thread
                self._error = error
            self._ended.set()

        threading.Thread(target=work, name=name, daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Wait for at most `seconds` (None: without limit); return whether the call has ended."""
        return self._ended.wait(seconds)

    def outcome(self) -> T:
        """Return the result of an ended call. Raises what the call raised."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # the call has ended without an error


def run_concurrently(calls: Sequence[Callable[[], T]], at_once: int, name: str) -> tuple[T, ...]:
    """Return the results of `calls` in their order; at most `at_once` run at a time. Raises what a call raises."""
    results: dict[int, T] = {}
    pending = iter(enumerate(calls))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number, call = next(pending, (-1, None))
            if call is None:
                return
            results[number] = call()

    for worker in [BackgroundCall(work, name) for _ in range(min(at_once, len(calls)))]:
        worker.wait(None)
        worker.outcome()
    return tuple(results[number] for number in range(len(calls)))
