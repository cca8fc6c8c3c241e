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
