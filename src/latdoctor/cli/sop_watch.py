"""`sop watch`: the clock of an incident, live, until Ctrl-C or until the incident is closed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.live import Live

from latdoctor.cli.console import notice_console, result_console
from latdoctor.cli.interrupt import StoppedError, ended_by_sigterm
from latdoctor.cli.sop_incident import current_status, opened_as
from latdoctor.errors import OperationError
from latdoctor.incident.status import IncidentStatus
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.report.console import StatusChange, stamped
from latdoctor.report.sop import changed, line, page, screen
from latdoctor.sanitize import clean

EVERY = 1.0  # seconds between two drawings


class WatchDisplay(Protocol):
    """Output of the live view."""

    def show(self, found: IncidentStatus) -> None: ...
    def failed(self, why: str) -> None: ...  # the journal could not be read just now


def watch(requested: str) -> int:
    """Exit code of the last status. Raises UsageError, StoppedError."""
    with ended_by_sigterm():
        reader = StatusReader(requested)
        with _display() as view:
            return follow(reader, view, time.sleep)


class StatusReader:
    """Current status at each call. The journal is read again only after a change.

    Raises UsageError where there is no such incident open, and OperationError.
    """

    def __init__(self, requested: str) -> None:
        self._meant, self._sop, self._place = opened_as(requested, only_open=True)
        self._stamp = self._now()

    def __call__(self) -> IncidentStatus:
        stamp = self._now()
        if stamp != self._stamp:
            self._meant, _, _ = opened_as(self._meant.incident.id, only_open=False)
            self._stamp = stamp
        return current_status(self._sop, self._meant, self._place)

    def _now(self) -> tuple[int, int]:
        try:
            stat = (self._place / JOURNAL).stat()
        except OSError as error:
            raise OperationError(f"the journal cannot be read: {error.strerror}", where=str(self._place)) from error
        return stat.st_mtime_ns, stat.st_size


def follow(read_status: Callable[[], IncidentStatus], view: WatchDisplay, sleep: Callable[[float], None]) -> int:
    """Show the status repeatedly, until Ctrl-C, the closing, or a closed stdout."""
    last: IncidentStatus | None = None
    try:
        while not getattr(sys.stdout, "gone", False):
            try:
                last = read_status()
            except OperationError as error:  # another process is writing, or the disk fails: it may pass
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
def _display() -> Iterator[WatchDisplay]:
    console = result_console()
    if not console.is_terminal or console.is_dumb_terminal:
        notice_console().print("a line for each change; Ctrl-C ends")
        yield LineDisplay(time.time)
        return
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        view = ScreenDisplay(live)
        yield view
    if view.last is not None:
        console.print(page(view.last))


class LineDisplay:
    """One line for each change."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: IncidentStatus | None = None

    def show(self, found: IncidentStatus) -> None:
        if changed(self._last, found):
            typer.echo(stamped(StatusChange(self._now(), line(found))))
        self._last = found

    def failed(self, why: str) -> None:
        notice_console().print(why, soft_wrap=True)


class ScreenDisplay:
    """Full-screen display."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.last: IncidentStatus | None = None

    def show(self, found: IncidentStatus) -> None:
        self.last = found
        self._live.update(screen(found), refresh=True)

    def failed(self, why: str) -> None:
        """Keep the last screen; it is drawn again in a second."""
