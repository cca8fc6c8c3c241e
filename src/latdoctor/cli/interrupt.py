"""Signals: Ctrl-C ends a command with a message about its output file, and asks a remediation run to roll back."""

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
    """Treats SIGTERM as Ctrl-C in the block: started processes end and temporary files are removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible(keep: Path | None) -> Iterator[None]:
    """Turns Ctrl-C into StoppedError. `keep`: the file to be written, which did not exist before."""
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
    """The signal that asked the run to end; empty until one arrives."""

    def __init__(self) -> None:
        self._signal = ""

    def ask(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name

    def __call__(self) -> str:
        return self._signal


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ctrl-C, SIGTERM and the loss of the terminal ask a run to end, which rolls it back.

    Repeated signals have no effect, and the rollback is not interrupted. Signals that were ignored before, as by
    `nohup`, stay ignored.
    """
    stop = Stop()
    handled = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.ask) for number in handled}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
