"""`diagnose --watch`: look after look until Ctrl-C, which is an end like any other.

On a terminal the report is redrawn in place, into a pipe goes a line for each change, and with `-o json` a document on
one line for each look.
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

from latdoctor.cli.console import notice_console, result_console
from latdoctor.cli.incident_context import ChangeRecorder
from latdoctor.cli.interrupt import StoppedError, ended_by_sigterm
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.request import Looked, Need, ask
from latdoctor.cli.session import exit_code, the_diagnosis
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Clock
from latdoctor.collectors.pipes import is_stream
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import OperationError, SourceError, UsageError
from latdoctor.report import json_documents
from latdoctor.report.live import LATELY, Told, line, moment, screen, stamped, summary
from latdoctor.sanitize import clean
from latdoctor.units import format_value, parse_duration

EVERY = "10s"
SHORTEST, LONGEST = 1.0, 86400.0  # seconds between two looks


class Screen(Protocol):
    """Where a look that goes on is shown."""

    def show(self, diagnosis: Diagnosis, at: float) -> None: ...
    def failed(self, why: str, at: float) -> None: ...  # a look that brought nothing


def watch(
    given: SourceOptions, rules: RuleSet, heard: ChangeRecorder, *, every: str, as_json: bool, fail_on: str
) -> int:
    """Looks until it is interrupted. Gives the exit code of the last look: of its verdict, or of its failure.

    `heard` is told of each.

    Raises StoppedError where no look came to its end, and what the first look raises.
    """
    pause = pause_of(every or EVERY)
    _can_be_repeated(given)
    clock = SystemClock()
    looks = _Looks(given, rules, clock, heard)
    with ended_by_sigterm(), _screen(pause, as_json=as_json) as shown:
        return follow(looks, shown, clock, pause, lambda one: exit_code(one, fail_on))


def follow(
    diagnosis: Callable[[], Diagnosis], shown: Screen, clock: Clock, pause: float, code: Callable[[Diagnosis], int]
) -> int:
    """One diagnosis every `pause` seconds, shown, until Ctrl-C or until nobody reads any more."""
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
            raise StoppedError("interrupted before the first look came to its end") from stopped
    return 0 if last is None else last


def pause_of(text: str) -> float:
    """The seconds that --every says. Raises UsageError."""
    try:
        pause = parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error), where="--every", next_step=f"write it such as --every {EVERY}") from error
    if not SHORTEST <= pause <= LONGEST:
        raise UsageError(
            f"{text!r} is not between a second and a day",
            where="--every",
            next_step=f"write it such as --every {EVERY}",
        )
    return pause


def _can_be_repeated(given: SourceOptions) -> None:
    """Raises UsageError for what only one look can be made of."""
    if given.until:
        raise UsageError("--until is a moment, and --watch goes on", next_step="leave one of them out")
    for path in (path for path in given.files if is_stream(path)):
        raise UsageError(
            f"{clean(str(path), 200)} can be read once only", next_step="give a file, or leave --watch out"
        )


class _Looks:
    """Looks and diagnoses at each call."""

    def __init__(self, given: SourceOptions, rules: RuleSet, clock: Clock, heard: ChangeRecorder) -> None:
        self._given = given
        self._rules = rules
        self._clock = clock
        self._heard = heard
        self._told = ""

    def __call__(self) -> Diagnosis:
        wanted = ask(self._given, Need.DUE)  # each time: what is configured, and what "now" is, may have changed
        if wanted.notice != self._told and not sys.stdout.isatty():  # a screen that is redrawn names its target itself
            notice_console().print(wanted.notice)
        self._told = wanted.notice
        bundle = collect_bundle(COLLECTORS, wanted.request, wanted.context, self._clock, baseline=wanted.baseline)
        diagnosis = the_diagnosis(bundle, self._rules, wanted.named)
        self._heard(Looked(bundle, wanted.named), diagnosis)
        return diagnosis


@contextmanager
def _screen(pause: float, *, as_json: bool) -> Iterator[Screen]:
    """The way to show it that fits where stdout goes."""
    console = result_console()
    begun = f"one look every {format_value(pause, 'time')}; Ctrl-C ends"
    if as_json or not console.is_terminal or console.is_dumb_terminal:
        notice_console().print(begun)
        yield Documents() if as_json else Lines()
        return
    # Redrawn by this thread alone, and only when there is something new: nothing flickers, and a pager may be used.
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        live.update(Text(f"{begun}; the first is not over yet"), refresh=True)
        yield Redrawn(live, begun)


class Documents:
    """A JSON document on one line for each look, or `{"could_not_look": WHY, "at": UNIX SECONDS}` where it failed."""

    def show(self, diagnosis: Diagnosis, at: float) -> None:
        typer.echo(json_documents.diagnosis_line(diagnosis))

    def failed(self, why: str, at: float) -> None:
        typer.echo(json.dumps({"could_not_look": why, "at": at}))


class Lines:
    """A line for each change of what is said."""

    def __init__(self) -> None:
        self._said = ""

    def show(self, diagnosis: Diagnosis, at: float) -> None:
        self._tell(summary(diagnosis), line(diagnosis), at)

    def failed(self, why: str, at: float) -> None:
        self._tell(f"could not look: {why}", f"could not look: {why}", at)

    def _tell(self, said: str, message: str, at: float) -> None:
        if said != self._said:
            typer.echo(clean(stamped(Told(at, message))))
        self._said = said


class Redrawn:
    """The newest report on a terminal, with what changed lately above it."""

    def __init__(self, live: Live, ends: str) -> None:
        self._live = live
        self._ends = ends
        self._looks = 0
        self._said = ""
        self._lately: Sequence[Told] = ()
        self._newest: Diagnosis | None = None

    def show(self, diagnosis: Diagnosis, at: float) -> None:
        self._newest = diagnosis
        self._draw(summary(diagnosis), line(diagnosis), at)

    def failed(self, why: str, at: float) -> None:
        self._draw(f"could not look: {why}", f"could not look: {why}", at)

    def _draw(self, said: str, message: str, at: float) -> None:
        self._looks += 1
        if said != self._said:
            self._lately = (*self._lately, Told(at, clean(message)))[-LATELY:]
        self._said = said
        heading = f"look {self._looks} at {moment(at)}, {self._ends}"
        if self._newest is not None:
            self._live.update(screen(self._newest, self._lately, heading), refresh=True)
