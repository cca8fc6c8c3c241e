"""Puts a run together: the plan, the way in, the way to look, the journal, the screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import typer

from latdoctor.cli import incident_context
from latdoctor.cli.config import TargetSettings
from latdoctor.cli.console import notice, notice_console, result_console
from latdoctor.cli.interrupt import stoppable
from latdoctor.cli.notifier import notifying
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.playbooks import library
from latdoctor.cli.remediate_targets import Ways, again, must_be_named, of_what_was_named, ways_in
from latdoctor.cli.request import Ask, ask, settings_of
from latdoctor.cli.session import rule_set
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis.diagnose import slo_terms
from latdoctor.diagnosis.document import parse_diagnosis
from latdoctor.errors import LatdoctorError, OperationError, UsageError
from latdoctor.evidence.bundle import Context
from latdoctor.incident.recorder import unreadable_as_error
from latdoctor.journal import state_dir
from latdoctor.journal.entry import JournalEntry
from latdoctor.journal.store import Journal
from latdoctor.pipeline import kept, observer, pages_for, remedy_of
from latdoctor.remediation import run_history
from latdoctor.remediation.executor import carry_out
from latdoctor.remediation.measures import unmet
from latdoctor.remediation.planner import Because, Plan, PlanRequest, planned
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_loader import Library
from latdoctor.remediation.run_context import Tell, World, aside
from latdoctor.remediation.run_result import Outcome, Result
from latdoctor.remediation.target import Pages
from latdoctor.report import remediation as plan_page
from latdoctor.report import remediation as shown

_QUESTION = "Change it now? (yes/no)"


def held(say: Callable[[str], None]) -> str:
    """Why it waits for a human, who has just been shown the plan; empty where one said yes."""
    if not sys.stdin.isatty():
        return "nobody can be asked here"
    while True:
        try:
            said: str = typer.prompt(_QUESTION, default="no", err=True)
        except typer.Abort:  # Ctrl-C or the end of the input
            notice("")
            return "nobody answered"
        word = said.strip().lower()
        if word in ("y", "yes"):
            return ""
        if word in ("n", "no"):
            return "the answer was no"
        notice("yes or no?")


MAX_BYTES = 64 << 20  # of a diagnosis or a plan


class SavedPlan(msgspec.Struct, frozen=True):
    """A plan as it is kept, with what tells whether it is still the same."""

    digest: str
    plan: Plan


def saved_plan(path: Path) -> Plan:
    """Raises UsageError for what is no plan, and for one that is not as it was written."""
    try:
        saved = msgspec.json.decode(bounded(path), type=SavedPlan)
    except UNDECODABLE as error:
        raise UsageError(f"it is no plan: {error}", where=str(path), next_step="--save-plan writes one") from error
    if saved.plan.digest != saved.digest:
        raise UsageError("it was changed since it was made", where=str(path), next_step="make the plan again")
    return saved.plan


def save_plan(plans: Sequence[Plan], path: Path) -> None:
    """Raises UsageError where there is not one plan, or it cannot be written."""
    if len(plans) != 1:
        raise UsageError(f"{len(plans)} targets have {len(plans)} plans; one is saved at a time", where="--save-plan")
    saved = SavedPlan(plans[0].digest, plans[0])
    try:
        with path.open("xb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(saved)))
    except OSError as error:
        raise UsageError(f"the plan cannot be written: {error.strerror}", where=str(path)) from error


def bounded(path: Path) -> bytes:
    """The file, if it is not too large. Raises UsageError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"it is larger than {MAX_BYTES >> 20} MiB", where=str(path))
    return raw


def tell_results(
    results: Sequence[Result],
    *,
    as_json: bool,
    untried: Sequence[str] = (),
    nothing: str = "",
    at_work: bool = False,
) -> None:
    """On stdout; on stderr where that cannot be written, for the exit code alone does not say which run it was.

    `at_work`: a result that is held is of a run that only has to be waited for.
    """
    try:
        shown.results(results, result_console(), as_json=as_json, untried=untried, nothing=nothing, at_work=at_work)
        sys.stdout.flush()
    except OperationError as error:
        notice(f"latdoctor: {error}. How it ended:")
        shown.results(results, notice_console(), as_json=False, untried=untried, nothing=nothing, at_work=at_work)


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
    belongs: incident_context.IncidentSelector = field(default_factory=incident_context.IncidentSelector)


def mend(given: SourceOptions, how: Mending) -> int:
    """The exit code."""
    books = library(how.playbooks)
    wanted, settings = ask(given), settings_of(given)
    plans: tuple[Plan, ...]
    if how.plan is not None:
        plans = (_saved(how, how.plan),)
        ways = Ways(tuple(again(plan.target, settings) for plan in plans))
        wanted = of_what_was_named(wanted, [plan.target.admin for plan in plans], plans[0].because)
    else:
        book, because = _chosen(how, books)
        wanted = of_what_was_named(wanted, how.admin, because)
        if how.apply:
            must_be_named(wanted)
        ways = ways_in(book, settings, how.admin, wanted.request.servers, given.pid, guessed=wanted.guessed)
        if len(ways.chosen) > book.guards.max_targets:
            return _refused(_too_many(book, len(ways.chosen)), how)
        if because and (why := _elsewhere(because, ways, settings, how)):
            return _refused(why, how)
        plans = tuple(
            planned(PlanRequest(book, _settings(how), because), books, way, time.time()) for way in ways.chosen
        )
    if how.save_plan is not None:
        save_plan(plans, how.save_plan)
    looked_at = (wanted.context.target, *wanted.request.servers)
    pages = tuple(
        replace(pages_for(way, wanted.request.servers, ways.known), guessed=wanted.guessed) for way in ways.chosen
    )
    if not how.apply:
        unfinished = _unfinished(plans)
        plan_page.plans(plans, books, result_console(), as_json=how.as_json, pages=pages, unfinished=unfinished)
        incident_context.record_plans(how.belongs, plans, looked_at)
        return Outcome.PLANNED.exit_code
    return _applied(plans, ways, pages, books, wanted, how)


def _too_many(book: Playbook, count: int) -> Result:
    reason = f"{book.id} may change {book.guards.max_targets} at a time, and {count} were named"
    return Result("", Outcome.REFUSED, reason, "name fewer with --admin", playbook=book.id)


def _elsewhere(because: Because, ways: Ways, settings: TargetSettings, how: Mending) -> Result | None:
    """Why not, where what would be changed is nothing that the diagnosis saw, and nobody said that it is meant."""
    if how.admin or (settings.admin and because.target == settings.name):
        return None
    targets = (way.target for way in ways.chosen if way.target.admin)
    other = next((target for target in targets if not because.saw(target.admin)), None)
    if other is None:
        return None
    return Result(
        "",
        Outcome.REFUSED,
        f"the diagnosis is of {because.target}, and {other.admin} is none of what it saw",
        "diagnose that server, or say that it is to be changed: --admin URL",
        target=other.name,
    )


def _refused(refused: Result, how: Mending) -> int:
    tell_results([refused], as_json=how.as_json)
    return refused.outcome.exit_code


def _applied(
    plans: Sequence[Plan],
    ways: Ways,
    pages: Sequence[Pages],
    books: Library,
    wanted: Ask,
    how: Mending,
) -> int:
    """One target after the other; the first that does not verify is the last."""
    requests = [replace(wanted.request, servers=one.watched) for one in pages]
    rules = rule_set(how.rules)
    looks = [observer(request, wanted.context, wanted.baseline, rules) for request in requests]
    if not how.yes and (waits := _waits(plans, books, pages, how)):
        return waits
    place = own_folder()
    results: list[Result] = []
    journal = Journal.opened(place / state_dir.JOURNAL)
    incident = incident_context.join_for_apply(how.belongs, plans, (wanted.context.target, *wanted.request.servers))
    try:
        with notifying() as poke, stoppable() as stop:
            for plan, access, observe in zip(plans, ways.chosen, looks, strict=True):
                with aside(shown.told(notice_console(), plan)) as tell:
                    world = World(
                        journal,
                        place,
                        access,
                        observe,
                        kept,
                        both(tell, poke),
                        stop,
                        how.approved,
                        incident.begun,
                        incident.refusal,
                    )
                    ended = _ended(plan, books, world, first=not results)
                results.append(about(ended, plan, wanted.context))
                if results[-1].outcome is not Outcome.VERIFIED:
                    break
    finally:  # after a mistake of ours too what was done until then is told
        if results:
            untried = [plan.target.name for plan in plans[len(results) :]]
            tell_results(results, as_json=how.as_json, untried=untried)
    return results[-1].outcome.exit_code


def both(tell: Tell, poke: Callable[..., None]) -> Tell:
    """Whoever looks at the screen, and whoever is told of the incident."""

    def heard(entry: JournalEntry) -> None:
        tell(entry)
        poke()

    return heard


def _ended(plan: Plan, books: Library, world: World, *, first: bool) -> Result:
    """How it ended. What is raised was raised before anything of it was changed; a mistake of usage ends the first."""
    try:
        return carry_out(plan, books, world)
    except LatdoctorError as error:
        if first and isinstance(error, UsageError):
            raise
        where = f"{error.where}: " if error.where else ""
        return Result("", Outcome.FAILED, f"{where}{error.what}", error.next_step)


def about(result: Result, plan: Plan, context: Context | None = None) -> Result:
    """The result with what it is of, and, where it verified, what of the promise to users is still not met."""
    short = unmet(result.measures, slo_terms(context)) if context and result.outcome is Outcome.VERIFIED else ()
    return msgspec.structs.replace(result, target=plan.target.name, playbook=plan.playbook, unmet=short)


def _waits(plans: Sequence[Plan], books: Library, pages: Sequence[Pages], how: Mending) -> int:
    """The exit code where a human must say yes first and does not; 0 where one did."""
    notices = notice_console()
    plan_page.plans(plans, books, notices, as_json=False, pages=pages, unfinished=_unfinished(plans), asking=True)
    why = held(notices.print)
    if not why:
        return 0
    waiting = Result("", Outcome.HELD, why, "the same with --yes")
    tell_results([about(waiting, plan) for plan in plans], as_json=how.as_json)
    return Outcome.HELD.exit_code


def _unfinished(plans: Sequence[Plan]) -> tuple[str, ...]:
    """For each plan the run that is not finished on its target, or nothing.

    A journal that cannot be read is told on stderr, and keeps no plan from being shown.
    """
    try:
        journal = Journal.reading(state_dir.folder() / state_dir.JOURNAL)
        with unreadable_as_error(journal):
            known = run_history.runs(journal.entries())
    except LatdoctorError as error:
        notice(f"whether a run there is unfinished is not known: {error}")
        return ("",) * len(plans)
    found = (run_history.unfinished(known, plan.target) for plan in plans)
    return tuple(run.id if run else "" for run in found)


def own_folder() -> Path:
    """The state folder, made where it is missing. Raises UsageError."""
    place = state_dir.folder()
    state_dir.ensure_private(place)
    return place


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
        diagnosis = parse_diagnosis(bounded(how.diagnosis))
    except UNDECODABLE as error:
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


def _saved(how: Mending, path: Path) -> Plan:
    """Raises UsageError for what is no plan, for one that is not as it was written, and for anything said beside it."""
    if how.playbook or how.diagnosis or how.settings or how.admin:
        raise UsageError("a saved plan says all of it", next_step="give --plan alone, or leave it out")
    return saved_plan(path)
