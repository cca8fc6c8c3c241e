"""A call for which nobody has to wait: it is made on a thread of its own, and left behind where it takes too long.

The thread is a daemon: what hangs for ever must not keep a command from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """`call`, under way since this was made, on a thread called `name`.

    It keeps what came of the call, and not the call: with what it was given, that would be shown by a traceback which
    shows variables.
    """

    __slots__ = ("_ended", "_error", "_value")

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._ended = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

        def work() -> None:
            try:
                self._value = call()
            except BaseException as error:  # noqa: BLE001 - it is raised again, on the thread that waits
                self._error = error
            self._ended.set()

        threading.Thread(target=work, name=name, daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, as soon as it has and after so many seconds at most."""
        return self._ended.wait(seconds)

    def outcome(self) -> T:
        """What the call gave, once it has ended. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # it has ended, and without an error
