"""Ctrl-C: what was asked to be kept is told of, so that nobody believes to hold what is not there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from latdoctor.errors import LatdoctorError

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class StoppedError(LatdoctorError):
    """The user stopped the command."""

    exit_code = INTERRUPTED


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Takes SIGTERM as Ctrl-C meanwhile: what was started is ended, and what was made for it is taken away."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible(keep: Path | None) -> Iterator[None]:
    """Turns Ctrl-C into StoppedError. `keep`: what was to be written, which did not exist before."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        if keep is None:
            raise StoppedError("interrupted; nothing was kept") from stopped
        if keep.exists():
            raise StoppedError(f"interrupted; {keep} was written and is kept") from stopped
        raise StoppedError(f"interrupted; nothing was kept: {keep} was not written") from stopped


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
