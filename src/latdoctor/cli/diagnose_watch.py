"""`diagnose --watch`: repeated diagnoses until Ctrl-C, which is a normal end.

On a terminal the answer is redrawn in place; a pipe gets a line for each change, and with `-o json` a document on one
line for each diagnosis.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.live import Live
from rich.text import Text

from latdoctor.cli.collect_and_diagnose import diagnosis_of, exit_code
from latdoctor.cli.console import notice_console, result_console
from latdoctor.cli.incident_journaling import ChangeRecorder
from latdoctor.cli.interrupt import StoppedError, ended_by_sigterm
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import BaselineNeed, CollectedEvidence, resolve_request
from latdoctor.cli.several_services import check_one_service
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Clock
from latdoctor.collectors.piped_input import is_stream
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import OperationError, SourceError, UsageError
from latdoctor.report import machine_formats
from latdoctor.report.console import LATELY, StatusChange, line, moment, screen, stamped, summary
from latdoctor.sanitize import clean
from latdoctor.units import format_value, parse_duration

EVERY = "10s"
SHORTEST, LONGEST = 1.0, 86400.0  # seconds between two diagnoses


class Screen(Protocol):
    """The output of a repeated diagnosis."""

    def show(self, diagnosis: Diagnosis, at: float) -> None: ...
    def failed(self, why: str, at: float) -> None: ...  # no diagnosis was possible


def watch(
    sources: SourceOptions, rules: RuleSet, recorder: ChangeRecorder, *, every: str, as_json: bool, fail_on: str
) -> int:
    """Diagnose until it is interrupted. Returns the exit code of the last diagnosis: of its verdict, or of its error.

    `recorder` is called with each diagnosis.

    Raises StoppedError where no diagnosis was completed, and the error of the first one.
    """
    pause = pause_of(every or EVERY)
    _check_repeatable(sources)
    clock = SystemClock()
    diagnoses = _RepeatedDiagnosis(sources, rules, clock, recorder)
    with ended_by_sigterm(), _screen(pause, as_json=as_json) as shown:
        return follow(diagnoses, shown, clock, pause, lambda one: exit_code(one, fail_on))


def follow(
    diagnosis: Callable[[], Diagnosis], shown: Screen, clock: Clock, pause: float, code: Callable[[Diagnosis], int]
) -> int:
    """Diagnose every `pause` seconds and show it, until Ctrl-C or until the reader closes the pipe."""
    last: int | None = None
    try:
        while not getattr(sys.stdout, "gone", False):
            begun = clock.now()
            try:
                found = diagnosis()
            except (OperationError, SourceError) as error:
                if last is None:
                    raise
                last = error.exit_code
                shown.failed(clean(error.what), clock.now())
            else:
                last = code(found)
                shown.show(found, clock.now())
            clock.sleep(max(0.0, pause - (clock.now() - begun)))
    except KeyboardInterrupt as stopped:
        if last is None:
            raise StoppedError("interrupted before the first diagnosis was complete") from stopped
    return 0 if last is None else last


def pause_of(text: str) -> float:
    """The value of --every in seconds. Raises UsageError."""
    try:
        pause = parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error), where="--every", next_step=f"write it such as --every {EVERY}") from error
    if not SHORTEST <= pause <= LONGEST:
        raise UsageError(
            f"must be between 1s and 24h (got {text!r})",
            where="--every",
            next_step=f"write it such as --every {EVERY}",
        )
    return pause


def _check_repeatable(sources: SourceOptions) -> None:
    """Raises UsageError for sources that can be read only once."""
    if sources.until:
        raise UsageError("--until ends the diagnosed period, and --watch has no end", next_step="leave one of them out")
    for path in (path for path in sources.files if is_stream(path)):
        raise UsageError(
            f"{clean(str(path), 200)} can be read only once", next_step="name a file, or leave --watch out"
        )


class _RepeatedDiagnosis:
    """Collects evidence and diagnoses it at each call."""

    def __init__(self, sources: SourceOptions, rules: RuleSet, clock: Clock, recorder: ChangeRecorder) -> None:
        self._given = sources
        self._rules = rules
        self._clock = clock
        self._recorder = recorder
        self._notice = ""

    def __call__(self) -> Diagnosis:
        # Resolved each time: the configuration and "now" may have changed.
        resolved = resolve_request(self._given, BaselineNeed.REQUIRED)
        check_one_service(resolved)
        if resolved.notice != self._notice and not sys.stdout.isatty():  # a redrawn screen names its target itself
            notice_console().print(resolved.notice)
        self._notice = resolved.notice
        bundle = collect_bundle(COLLECTORS, resolved.request, resolved.context, self._clock, baseline=resolved.baseline)
        diagnosis = diagnosis_of(bundle, self._rules, resolved.named)
        self._recorder(CollectedEvidence(bundle, resolved.named), diagnosis)
        return diagnosis


@contextmanager
def _screen(pause: float, *, as_json: bool) -> Iterator[Screen]:
    """The output that fits stdout: documents, lines or a redrawn screen."""
    console = result_console()
    begun = f"one diagnosis every {format_value(pause, 'time')}; Ctrl-C ends"
    if as_json or not console.is_terminal or console.is_dumb_terminal:
        notice_console().print(begun)
        yield Documents() if as_json else Lines()
        return
    # Redrawn by this thread only, and only with new content: nothing flickers, and a pager can be used.
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        live.update(Text(f"{begun}; the first one is running"), refresh=True)
        yield Redrawn(live, begun)


class Documents:
    """A JSON document on one line for each diagnosis, or `{"could_not_look": REASON, "at": UNIX SECONDS}`."""

    def show(self, diagnosis: Diagnosis, at: float) -> None:
        typer.echo(machine_formats.diagnosis_line(diagnosis))

    def failed(self, why: str, at: float) -> None:
        typer.echo(json.dumps({"could_not_look": why, "at": at}))


class Lines:
    """A line for each change of the answer."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, diagnosis: Diagnosis, at: float) -> None:
        self._print(summary(diagnosis), line(diagnosis), at)

    def failed(self, why: str, at: float) -> None:
        self._print(f"no diagnosis: {why}", f"no diagnosis: {why}", at)

    def _print(self, key: str, message: str, at: float) -> None:
        if key != self._last:
            typer.echo(clean(stamped(StatusChange(at, message))))
        self._last = key


class Redrawn:
    """The newest answer on a terminal, below the latest changes."""

    def __init__(self, live: Live, ends: str) -> None:
        self._live = live
        self._ends = ends
        self._count = 0
        self._last = ""
        self._lately: Sequence[StatusChange] = ()
        self._newest: Diagnosis | None = None

    def show(self, diagnosis: Diagnosis, at: float) -> None:
        self._newest = diagnosis
        self._draw(summary(diagnosis), line(diagnosis), at)

    def failed(self, why: str, at: float) -> None:
        self._draw(f"no diagnosis: {why}", f"no diagnosis: {why}", at)

    def _draw(self, key: str, message: str, at: float) -> None:
        self._count += 1
        if key != self._last:
            self._lately = (*self._lately, StatusChange(at, clean(message)))[-LATELY:]
        self._last = key
        heading = f"diagnosis {self._count} at {moment(at)}, {self._ends}"
        if self._newest is not None:
            self._live.update(screen(self._newest, self._lately, heading), refresh=True)
