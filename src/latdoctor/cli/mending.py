"""Puts a run together: the plan, the way in, the way to look, the journal, the screen."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import msgspec
import typer

from latdoctor.cli.answering import rule_set
from latdoctor.cli.asking import Ask, ask, settings_of
from latdoctor.cli.configuration import TargetSettings
from latdoctor.cli.mending_targets import accesses, again
from latdoctor.cli.options import Given
from latdoctor.cli.playbooks import library
from latdoctor.cli.screen import notice_console, result_console
from latdoctor.errors import UsageError
from latdoctor.journal import state
from latdoctor.journal.store import Journal
from latdoctor.looking import kept, observer, pages_for, remedy_of
from latdoctor.remedy import history, recovering
from latdoctor.remedy.observation import Observation
from latdoctor.remedy.plan import Asked, Because, Plan, planned
from latdoctor.remedy.playbook import Playbook
from latdoctor.remedy.playbook_files import Library
from latdoctor.remedy.result import Outcome, Result
from latdoctor.remedy.run import carry_out
from latdoctor.remedy.target import Access, Target
from latdoctor.remedy.telling import Tell, aside
from latdoctor.remedy.world import World
from latdoctor.report import mending as shown
from latdoctor.report.document import parse as parse_diagnosis

MAX_BYTES = 64 << 20  # of a diagnosis or a plan


@dataclass(frozen=True, slots=True)
class Mending:
    """What was asked of `latdoctor remediate`."""

    playbook: str = ""
    diagnosis: Path | None = None
    plan: Path | None = None
    settings: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()
    apply: bool = False
    yes: bool = False
    approved: bool = False
    save_plan: Path | None = None
    playbooks: tuple[Path, ...] = ()
    rules: tuple[Path, ...] = ()
    as_json: bool = False


class SavedPlan(msgspec.Struct, frozen=True):
    """A plan as it is kept, with what tells whether it is still the same."""

    digest: str
    plan: Plan


def mend(given: Given, how: Mending) -> int:
    """The exit code."""
    books = library(how.playbooks)
    wanted, settings = ask(given), settings_of(given)
    plans: tuple[Plan, ...]
    if how.plan is not None:
        plans = (_saved(how),)
        ways = tuple(again(plan.target, settings) for plan in plans)
    else:
        book, because = _chosen(how, books)
        ways = accesses(book, settings, how.admin, wanted.request.servers, given.pid)
        if len(ways) > book.guards.max_targets:
            return _too_many(book, len(ways), how)
        plans = tuple(planned(Asked(book, _settings(how), because), books, way, time.time()) for way in ways)
    if how.save_plan is not None:
        _save(plans, how.save_plan)
    if not how.apply:
        shown.plans(plans, books, result_console(), as_json=how.as_json)
        return Outcome.PLANNED.exit_code
    return _applied(plans, ways, books, wanted, how)


def _too_many(book: Playbook, count: int, how: Mending) -> int:
    reason = f"{book.id} may change {book.guards.max_targets} at a time, and {count} were named"
    refused = Result("", Outcome.REFUSED, reason, "name fewer with --admin")
    shown.results([refused], result_console(), as_json=how.as_json)
    return refused.outcome.exit_code


def _applied(plans: Sequence[Plan], ways: Sequence[Access], books: Library, wanted: Ask, how: Mending) -> int:
    """One target after the other; the first that does not verify is the last."""
    if not how.yes and not _agreed(plans, books):
        return Outcome.HELD.exit_code
    place = own_folder()
    rules = rule_set(how.rules)
    results: list[Result] = []
    journal = Journal.opened(place / state.JOURNAL)
    with _stoppable() as stop:
        for plan, access in zip(plans, ways, strict=True):
            request = replace(wanted.request, servers=pages_for(access, wanted.request.servers))
            observe = observer(request, wanted.context, wanted.baseline, rules)
            with aside(shown.told(notice_console(), plan)) as tell:
                world = World(journal, place, access, observe, kept, tell, stop, how.approved)
                results.append(carry_out(plan, books, world))
            if results[-1].outcome is not Outcome.VERIFIED:
                break
    shown.results(results, result_console(), as_json=how.as_json)
    return results[-1].outcome.exit_code


def rolled_back(run: str, target: str, *, as_json: bool) -> int:
    """The exit code; a run that was taken back as asked is a success."""
    journal, place = _journal()
    with _stoppable(), aside(shown.told(notice_console())) as tell:
        enter = _enter(journal, place, target, tell)
        result = recovering.roll_back(run, enter, lambda: history.runs(journal.entries()))
    shown.results([result], result_console(), as_json=as_json)
    return 0 if result.outcome is Outcome.ROLLED_BACK else result.outcome.exit_code


def recovered(target: str, *, as_json: bool) -> int:
    """The exit code: the worst of all."""
    journal, place = _journal()
    with _stoppable(), aside(shown.told(notice_console())) as tell:
        enter = _enter(journal, place, target, tell)
        results = [recovering.recover(run, enter) for run in history.runs(journal.entries()) if run.open]
    shown.results(results, result_console(), as_json=as_json, nothing="no run is unfinished")
    codes = {result.outcome for result in results}
    return next((outcome.exit_code for outcome in (Outcome.INCOMPLETE, Outcome.HELD) if outcome in codes), 0)


def _journal() -> tuple[Journal, Path]:
    place = own_folder()
    return Journal.opened(place / state.JOURNAL), place


def own_folder() -> Path:
    """The state folder, made where it is missing. Raises UsageError."""
    place = state.folder()
    state.must_be(place)
    return place


def _enter(journal: Journal, place: Path, target: str, tell: Tell) -> recovering.Enter:
    """A way back in: nothing is observed then, so the look is one that fails."""
    settings = settings_of(Given(target=target)) if target else TargetSettings()

    def enter(to: Target) -> World:
        return World(journal, place, again(to, settings), _blind, kept, tell)

    return enter


def _blind(seconds: float) -> Observation:
    raise UsageError("nothing is watched here")


def _chosen(how: Mending, books: Library) -> tuple[Playbook, Because | None]:
    """The playbook that was named, or the one of the first named cause that has one. Raises UsageError."""
    if bool(how.playbook) == (how.diagnosis is not None):
        raise UsageError(
            "say which playbook: --playbook ID, or --from FILE with a diagnosis, one of the two",
            next_step="latdoctor playbooks list",
        )
    if how.diagnosis is None:
        return books.find(how.playbook), None
    try:
        diagnosis = parse_diagnosis(_read(how.diagnosis))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"it is no diagnosis: {error}", where=str(how.diagnosis), next_step="latdoctor diagnose … -o json > FILE"
        ) from error
    remedy = remedy_of(diagnosis)
    if remedy is not None:
        return books.find(remedy[0]), remedy[1]
    named = ", ".join(cause.id for cause in diagnosis.causes if cause.named) or "no cause"
    raise UsageError(f"it names {named}, and no playbook mends that", where=str(how.diagnosis))


def _settings(how: Mending) -> Mapping[str, str]:
    """Raises UsageError."""
    found: dict[str, str] = {}
    for text in how.settings:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            raise UsageError(f"{text!r} is not NAME=VALUE, each name once", where="--set")
        found[name] = value
    return found


def _saved(how: Mending) -> Plan:
    """Raises UsageError for what is no plan, and for one that is not as it was written."""
    if how.playbook or how.diagnosis or how.settings or how.admin or how.plan is None:
        raise UsageError("a saved plan says all of it", next_step="give --plan alone, or leave it out")
    try:
        saved = msgspec.json.decode(_read(how.plan), type=SavedPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"it is no plan: {error}", where=str(how.plan), next_step="--save-plan writes one") from error
    if saved.plan.digest != saved.digest:
        raise UsageError("it was changed since it was made", where=str(how.plan), next_step="make the plan again")
    return saved.plan


def _save(plans: Sequence[Plan], path: Path) -> None:
    if len(plans) != 1:
        raise UsageError(f"{len(plans)} targets have {len(plans)} plans; one is saved at a time", where="--save-plan")
    saved = SavedPlan(plans[0].digest, plans[0])
    try:
        with path.open("xb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(saved)))
    except OSError as error:
        raise UsageError(f"the plan cannot be written: {error.strerror}", where=str(path)) from error


def _read(path: Path) -> bytes:
    """Raises UsageError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"it is larger than {MAX_BYTES >> 20} MiB", where=str(path))
    return raw


def _agreed(plans: Sequence[Plan], books: Library) -> bool:
    """Whether somebody at the terminal says yes; where there is none, nobody does."""
    notices = notice_console()
    shown.plans(plans, books, notices, as_json=False)
    if not sys.stdin.isatty():
        notices.print("held: nobody can be asked here. Next: the same with --yes")
        return False
    said: str = typer.prompt("Change it now? (yes/no)", default="no", err=True)
    return said.strip().lower() == "yes"


@contextmanager
def _stoppable() -> Iterator[Stop]:
    """Ctrl-C, SIGTERM and the loss of the terminal ask a run to end, which takes everything back.

    Asked again they change nothing, and taking back does not heed them.
    """
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """Whether somebody asked the run to end, and how."""

    def __init__(self) -> None:
        self._why = ""

    def ask(self, number: int, frame: FrameType | None) -> None:
        self._why = signal.Signals(number).name

    def __call__(self) -> str:
        return self._why
