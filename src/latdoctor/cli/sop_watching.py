"""`sop watch`: the clock of an incident, live, until Ctrl-C or until the incident is closed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.live import Live

from latdoctor.cli.interrupting import StoppedError, ended_by_sigterm
from latdoctor.cli.screen import notice_console, result_console
from latdoctor.cli.sop_acting import standing_of
from latdoctor.errors import OperationError
from latdoctor.incident.standing import Standing
from latdoctor.report.sop import changed, line, screen
from latdoctor.report.watching import Told, stamped
from latdoctor.text import clean

EVERY = 1.0  # seconds between two drawings


class View(Protocol):
    """Where it is shown."""

    def show(self, found: Standing) -> None: ...
    def failed(self, why: str) -> None: ...  # the journal could not be read just now


def watch(asked: str) -> int:
    """The exit code of how it stood last. Raises UsageError, StoppedError."""
    first = standing_of(asked, only_open=True)
    with ended_by_sigterm(), _view() as view:
        return follow(lambda: standing_of(first.incident, only_open=False), view, time.sleep)


def follow(look: Callable[[], Standing], view: View, sleep: Callable[[float], None]) -> int:
    """Shows it again and again, until Ctrl-C, until it is closed, or until nobody reads any more."""
    last: Standing | None = None
    try:
        while not getattr(sys.stdout, "gone", False):
            try:
                last = look()
            except OperationError as error:  # somebody else is writing, or the disk fails: it may pass
                if last is None:
                    raise
                view.failed(clean(error.what, 200))
            else:
                view.show(last)
                if not last.open:
                    break
            sleep(EVERY)
    except KeyboardInterrupt as stopped:
        if last is None:
            raise StoppedError("interrupted before anything was shown") from stopped
    return 0 if last is None else last.exit_code


@contextmanager
def _view() -> Iterator[View]:
    console = result_console()
    if not console.is_terminal or console.is_dumb_terminal:
        notice_console().print("a line for each change; Ctrl-C ends")
        yield Lines(time.time)
        return
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield Screen(live)


class Lines:
    """A line for each change of what is said."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: Standing | None = None

    def show(self, found: Standing) -> None:
        if changed(self._last, found):
            typer.echo(stamped(Told(self._now(), line(found))))
        self._last = found

    def failed(self, why: str) -> None:
        notice_console().print(why, soft_wrap=True)


class Screen:
    """The whole screen, drawn anew."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, found: Standing) -> None:
        self._live.update(screen(found), refresh=True)

    def failed(self, why: str) -> None:
        """What was shown last stays; it is drawn again in a second."""
