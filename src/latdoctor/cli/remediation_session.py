"""`latdoctor remediate` from its options to the plan, the confirmation, the runs and the printed results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import typer
from msgspec import UNSET

from latdoctor.case_from_bundle import history_of, kept, observer, pages_for
from latdoctor.cli import incident_journaling
from latdoctor.cli.collect_and_diagnose import rule_set
from latdoctor.cli.configured_target import settings_of
from latdoctor.cli.console import notice, notice_console, result_console
from latdoctor.cli.diagnosed_target import undiagnosed
from latdoctor.cli.interrupt import stoppable
from latdoctor.cli.named_values import named_values
from latdoctor.cli.notifier import notifying
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.plan_files import load_plan, save_plan
from latdoctor.cli.playbooks import library
from latdoctor.cli.proof_process import hand_over, sources_of
from latdoctor.cli.remediate_targets import (
    ChosenTargets,
    check_servers_named,
    choose_targets,
    limit_to_named,
)
from latdoctor.cli.resolve_request import ResolvedRequest, resolve_request
from latdoctor.cli.run_basis import REPLICAS, RunBasis, run_basis
from latdoctor.cli.saved_plan import address_named_again, saved_plan_refusal
from latdoctor.diagnosis.diagnose import slo_terms
from latdoctor.errors import LatdoctorError, OperationError, UsageError
from latdoctor.evidence.bundle import Context
from latdoctor.incident.events import SAMPLED
from latdoctor.incident.recorder import unreadable_as_error
from latdoctor.incident.sample_history import history_of_samples
from latdoctor.journal import state_dir
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.journal.entry import now as journal_clock
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from latdoctor.remediation.diagnosed_parameters import with_diagnosed
from latdoctor.remediation.executor import execute
from latdoctor.remediation.history import ReadHistory
from latdoctor.remediation.plan_comparison import saved_settings
from latdoctor.remediation.planner import Plan, PlanRequest, build_plan
from latdoctor.remediation.playbook import Playbook, Trigger
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.release import release_of
from latdoctor.remediation.run_context import EntryListener, RunContext, nonblocking
from latdoctor.remediation.run_result import Outcome, Result, slo_violations
from latdoctor.remediation.target import Pages
from latdoctor.report import remediation as report
from latdoctor.report.remediation_details import entry_printer
from latdoctor.report.remediation_plan import Planned
from latdoctor.report.remediation_steps import RunSummary, of_result

_QUESTION = "Change it now? (yes/no)"


@dataclass(frozen=True, slots=True)
class RemediateOptions:
    """The options of `latdoctor remediate` beside its sources."""

    playbook: str = ""
    basis: Path | None = None  # a diagnosis or a forecast
    plan: Path | None = None
    settings: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()
    apply: bool = False
    yes: bool = False
    wait: bool = False
    approved: bool = False
    save_plan: Path | None = None
    playbooks: tuple[Path, ...] = ()
    rules: tuple[Path, ...] = ()
    as_json: bool = False
    verbose: bool = False
    belongs: incident_journaling.IncidentSelector = field(default_factory=incident_journaling.IncidentSelector)


def remediate(sources: SourceOptions, options: RemediateOptions) -> int:
    """Plan, and with `--apply` run. Returns the exit code."""
    books = library(options.playbooks)
    request, settings = resolve_request(sources), settings_of(sources)
    plans: tuple[Plan, ...]
    if options.plan is not None:
        saved = _saved(options, options.plan)
        book, because = books.find(saved.playbook), saved.diagnosis
        named = address_named_again(saved.target, options.admin, settings, request, sources)
        request = limit_to_named(request, named, because)
        targets = choose_targets(book, settings, named, request.request.servers, sources)
        chosen = saved_settings(saved, book, books)
        again = PlanRequest(book, chosen, because, saved.forecast, saved.releases)
        fresh = build_plan(again, books, targets.chosen[0], saved.created_at)
        if refusal := saved_plan_refusal(saved, fresh, book):
            return _refused(refusal, options)
        plans = (saved,)
    else:
        given = named_values(options.settings)
        basis = run_basis(
            options.playbook,
            options.basis,
            given,
            books,
            on_cluster=bool(sources.kube or settings.kube),
            now=time.time(),
        )
        if basis.refusal is not None:
            return _refused(basis.refusal, options)
        book, because = basis.playbook, basis.diagnosis
        request = limit_to_named(request, options.admin, because)
        if options.apply:
            check_servers_named(request)
        targets = choose_targets(
            book, settings, options.admin, request.request.servers, sources, guessed=request.guessed
        )
        if len(targets.chosen) > book.guards.max_targets:
            return _refused(_too_many(book, len(targets.chosen)), options)
        if because and (refusal := undiagnosed(because, targets.chosen, settings, named=bool(options.admin))):
            return _refused(refusal, options)
        justified = _justified(basis, given, targets)
        if isinstance(justified, Result):
            return _refused(msgspec.structs.replace(justified, playbook=book.id), options)
        moment, plan_request = journal_clock(), justified
        at = unix_seconds(moment.at)
        plans = tuple(build_plan(plan_request, books, one, at, moment) for one in targets.chosen)
    if options.save_plan is not None:
        save_plan(plans, options.save_plan)
    places = (request.context.target, *request.request.servers)
    pages = tuple(
        replace(pages_for(one, request.request.servers, targets.known), guessed=request.guessed)
        for one in targets.chosen
    )
    if not options.apply or (book.trigger is not Trigger.INCIDENT and not any(one.changes for one in plans)):
        found = _with_context(plans, books, pages)
        report.plans(found, result_console(), as_json=options.as_json, verbose=options.verbose)
        incident_journaling.record_plans(options.belongs, plans, places)
        return Outcome.PLANNED.exit_code
    return _applied(plans, targets, pages, books, request, options)


def hold_reason() -> str:
    """Why the change is held after the plan was shown; empty after a yes at the terminal."""
    if not sys.stdin.isatty():
        return "no terminal to confirm at"
    while True:
        try:
            text: str = typer.prompt(_QUESTION, default="no", err=True)
        except typer.Abort:  # Ctrl-C or the end of the input
            notice("")
            return "not confirmed"
        word = text.strip().lower()
        if word in ("y", "yes"):
            return ""
        if word in ("n", "no"):
            return "declined"
        notice("yes or no?")


def print_results(
    ended: Sequence[RunSummary],
    *,
    as_json: bool,
    verbose: bool = False,
    untried: Sequence[str] = (),
    nothing: str = "",
) -> None:
    """Print results on stdout; on stderr where stdout cannot be written: the exit code does not name the run."""
    try:
        report.results(ended, result_console(), as_json=as_json, verbose=verbose, untried=untried, nothing=nothing)
        sys.stdout.flush()
    except OperationError as error:
        notice(f"latdoctor: {error}. The outcome:")
        report.results(ended, notice_console(), verbose=verbose, untried=untried, nothing=nothing)


def labelled_result(result: Result, plan: Plan, context: Context | None = None) -> Result:
    """The result with its target and playbook, and for a verified run the SLO terms that are still not met."""
    measures = result.measures
    if plan.releases is not UNSET:  # a replica that was given back has no latency any more
        measures = tuple(one for one in measures if one.after is not None)
    short = slo_violations(measures, slo_terms(context)) if context and result.outcome is Outcome.VERIFIED else ()
    return msgspec.structs.replace(result, target=plan.target.name, playbook=plan.playbook, unmet=short)


def each(*listeners: Callable[[JournalEntry], object]) -> EntryListener:
    """One listener for journal entries that calls all of `listeners`, in order."""

    def listen(entry: JournalEntry) -> None:
        for listener in listeners:
            listener(entry)

    return listen


def _justified(basis: RunBasis, given: Mapping[str, str], targets: ChosenTargets) -> PlanRequest | Result:
    """The playbook with its parameters and what justifies it, or why there is nothing to do."""
    book = basis.playbook
    if book.trigger is Trigger.PEAK_PASSED:
        entries = Journal.reading(state_dir.folder() / state_dir.JOURNAL).entries()
        released = release_of(entries, targets.chosen[0], basis.forecast, time.time())
        if isinstance(released, Result):
            return released
        settings = {REPLICAS: str(released.replicas), **given}
        return PlanRequest(book, settings, forecast=released.forecast, releases=released.run)
    if basis.forecast is not None:
        return PlanRequest(book, {REPLICAS: str(basis.forecast.replicas), **given}, forecast=basis.forecast)
    because = basis.diagnosis
    return PlanRequest(book, with_diagnosed(book, given, because.named if because else ()), because)


def _too_many(book: Playbook, count: int) -> Result:
    reason = f"{book.id} may change {book.guards.max_targets} at a time, and {count} were named"
    return Result("", Outcome.REFUSED, reason, "name fewer with --admin", playbook=book.id)


def _refused(result: Result, options: RemediateOptions) -> int:
    print_results([of_result(result)], as_json=options.as_json, verbose=options.verbose)
    return result.outcome.exit_code


def _with_context(plans: Sequence[Plan], books: Library, pages: Sequence[Pages]) -> list[Planned]:
    """Each plan with its playbook, its metrics pages and the unfinished run on its target."""
    unfinished = _unfinished(plans)
    return [
        Planned(plan, books.find(plan.playbook), page, run)
        for plan, page, run in zip(plans, pages, unfinished, strict=True)
    ]


def _applied(
    plans: Sequence[Plan],
    targets: ChosenTargets,
    pages: Sequence[Pages],
    books: Library,
    request: ResolvedRequest,
    options: RemediateOptions,
) -> int:
    """Run one target after the other; the first that is not verified is the last."""
    requests = [replace(request.request, servers=one.watched) for one in pages]
    rules = rule_set(options.rules)
    observers = [observer(one, request.context, request.baseline, rules) for one in requests]
    if not options.yes and (code := _held(_with_context(plans, books, pages), options)):
        return code
    place = state_dir.private_folder()
    results: list[RunSummary] = []
    journal = Journal.opened(place / state_dir.JOURNAL)
    incident = incident_journaling.join_for_apply(
        options.belongs, plans, (request.context.target, *request.request.servers)
    )
    slo = slo_terms(request.context).get("slo.p99")
    try:
        with notifying() as poke, stoppable() as stop:
            for plan, access, observe, one in zip(plans, targets.chosen, observers, requests, strict=True):
                entries: list[JournalEntry] = []
                with nonblocking(entry_printer(notice_console(), plan, plain=True)) as tell:
                    world = RunContext(
                        journal,
                        place,
                        access,
                        observe,
                        kept,
                        each(entries.append, tell, lambda _: poke()),
                        stop,
                        options.approved,
                        incident.begun,
                        incident.refusal,
                        history_of_run(request, journal),
                        None if options.wait else hand_over(place),
                        sources_of(replace(request, request=one), options.rules, options.playbooks),
                    )
                    ended = _ended(plan, books, world, first=not results)
                results.append(of_result(labelled_result(ended, plan, request.context), plan, entries, slo))
                if ended.outcome is not Outcome.VERIFIED:
                    break
    finally:  # results so far are printed after an unexpected exception too
        if results:
            untried = [plan.target.name for plan in plans[len(results) :]]
            print_results(results, as_json=options.as_json, verbose=options.verbose, untried=untried)
    return results[-1].result.outcome.exit_code


def history_of_run(request: ResolvedRequest, journal: Journal) -> ReadHistory:
    """From the named Prometheus server, else from what an incident's monitoring has sampled."""
    if request.request.prometheus is not None:
        return history_of(request.request.prometheus)
    return lambda _: history_of_samples(journal.entries(kinds=(SAMPLED,)), time.time())


def _ended(plan: Plan, books: Library, world: RunContext, *, first: bool) -> Result:
    """Run one plan. An exception means that nothing of it was changed; a usage error of the first plan is raised."""
    try:
        return execute(plan, books, world)
    except LatdoctorError as error:
        if first and isinstance(error, UsageError):
            raise
        where = f"{error.where}: " if error.where else ""
        return Result("", Outcome.FAILED, f"{where}{error.what}", error.next_step)


def _held(found: Sequence[Planned], options: RemediateOptions) -> int:
    """Ask for confirmation. Returns the exit code where it is not granted, else 0."""
    report.plans(found, notice_console(), verbose=options.verbose, confirming=True)
    reason = hold_reason()
    if not reason:
        return 0
    waiting = Result("", Outcome.HELD, reason, "the same command with --yes")
    held = [of_result(labelled_result(waiting, one.plan), one.plan) for one in found]
    print_results(held, as_json=options.as_json, verbose=options.verbose)
    return Outcome.HELD.exit_code


def _unfinished(plans: Sequence[Plan]) -> tuple[str, ...]:
    """For each plan the unfinished run on its target, or an empty text.

    An unreadable journal is reported on stderr; the plan is shown all the same.
    """
    try:
        journal = Journal.reading(state_dir.folder() / state_dir.JOURNAL)
        with unreadable_as_error(journal):
            known = run_history.runs(journal.entries())
    except LatdoctorError as error:
        notice(f"cannot check for an unfinished run on the target: {error}")
        return ("",) * len(plans)
    found = (run_history.unfinished(known, plan.target) for plan in plans)
    return tuple(run.id if run else "" for run in found)


def _saved(options: RemediateOptions, path: Path) -> Plan:
    """Raises UsageError for a file that is no plan, and for options that contradict it."""
    if options.playbook or options.basis or options.settings:
        raise UsageError(
            "--plan already contains the playbook and its parameters",
            next_step="give --plan with the target alone, or leave it out",
        )
    return load_plan(path)
