"""Signals ask a run to end; nothing ends it but its own way out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Whether somebody asked the run to end, and how."""

    def __init__(self) -> None:
        self._why = ""

    def ask(self, number: int, frame: FrameType | None) -> None:
        self._why = signal.Signals(number).name

    def __call__(self) -> str:
        return self._why


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ctrl-C, SIGTERM and the loss of the terminal ask a run to end, which takes everything back.

    Asked again they change nothing, and taking back does not heed them. What whoever started the run had ignored, as
    `nohup` does the loss of the terminal, stays ignored.
    """
    stop = Stop()
    heeded = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.ask) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
