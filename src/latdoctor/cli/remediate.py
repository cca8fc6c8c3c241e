"""`latdoctor remediate`, `rollback` and `recover`: the commands that change a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from latdoctor.case_from_bundle import kept
from latdoctor.cli import options
from latdoctor.cli.configured_target import settings_of
from latdoctor.cli.console import notice_console
from latdoctor.cli.interrupt import stoppable
from latdoctor.cli.notifier import notifying
from latdoctor.cli.options import OutputFormat, OutputOption, SourceOptions, VerboseOption
from latdoctor.cli.proof_process import resume, unobserved
from latdoctor.cli.remediate_targets import access_again, settings_for
from latdoctor.cli.remediation_session import each, labelled_result, print_results
from latdoctor.journal import state_dir
from latdoctor.journal.entry import JournalEntry
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from latdoctor.remediation.rollback import OpenTarget, recover_run, roll_back_run
from latdoctor.remediation.run_context import EntryListener, RunContext, nonblocking
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Outcome, Result
from latdoctor.remediation.target import Target
from latdoctor.report.remediation_details import entry_printer
from latdoctor.report.remediation_steps import RunSummary, of_result


def roll_back(run: str, target: str, *, as_json: bool, verbose: bool) -> int:
    """Roll back a run. Returns the exit code: 0 where that succeeded."""
    journal, place = _journal()
    known = next((one for one in run_history.runs(journal.entries()) if one.id == run), None)
    entries = list(journal.entries(run))
    screen = entry_printer(notice_console(), known.plan if known else None, plain=True)
    with notifying() as poke, stoppable(), nonblocking(screen) as tell:
        enter = _enter(journal, place, target, each(entries.append, tell, lambda _: poke()))
        result = roll_back_run(run, enter, lambda: run_history.runs(journal.entries()))
    summary = of_result(labelled_result(result, known.plan), known.plan, entries) if known else of_result(result)
    print_results([summary], as_json=as_json, verbose=verbose)
    return 0 if result.outcome is Outcome.ROLLED_BACK else result.outcome.exit_code


def recover_all(target: str, *, as_json: bool, verbose: bool) -> int:
    """End every unfinished run. Returns the worst of their exit codes."""
    journal, place = _journal()
    with notifying() as poke, stoppable() as stop:
        unfinished = [run for run in run_history.runs(journal.entries()) if run.open]
        results = [_recovered(run, journal, place, target, poke, stop) for run in unfinished]
    print_results(results, as_json=as_json, verbose=verbose, nothing="no run is unfinished")
    codes = {one.result.outcome for one in results}
    return next((outcome.exit_code for outcome in (Outcome.INCOMPLETE, Outcome.HELD) if outcome in codes), 0)


def _recovered(
    run: RunState, journal: Journal, place: Path, target: str, poke: Callable[..., None], stop: Callable[[], str]
) -> RunSummary:
    """`stop` ends a proof that goes on, which then rolls back; a rollback is not interrupted."""
    entries: list[JournalEntry] = list(journal.entries(run.id))
    with nonblocking(entry_printer(notice_console(), run.plan, plain=True)) as tell:
        enter = _enter(journal, place, target, each(entries.append, tell, lambda _: poke()))

        def go_on(run: RunState, context: RunContext) -> Result:
            return resume(run, replace(context, stop_reason=stop))

        result = labelled_result(recover_run(run, enter, go_on), run.plan)
    return replace(of_result(result, run.plan, entries), at_work=True)


def _journal() -> tuple[Journal, Path]:
    """The journal and its folder; nothing is created where no run was made. Raises UsageError."""
    place = state_dir.folder()
    state_dir.check_private(place)
    reading = Journal.reading(place / state_dir.JOURNAL)
    return (Journal.opened(reading.path) if reading.entries() else reading), place


def _enter(journal: Journal, place: Path, target: str, tell: EntryListener) -> OpenTarget:
    """Access to the target of a run; a rollback observes nothing, so its observer raises."""

    def enter(to: Target) -> RunContext:
        settings = settings_of(SourceOptions(target=target)) if target else settings_for(to)
        return RunContext(journal, place, access_again(to, settings), unobserved, kept, tell)

    return enter


_HOW = "How it runs"


PlaybookId = Annotated[str | None, typer.Option("--playbook", metavar="ID", help="The playbook to run.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        readable=False,
        help="A diagnosis, whose first named cause is fixed, or a forecast, whose replicas are started (-o json).",
    ),
]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", readable=False, help="Execute exactly this saved plan.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the playbook (repeatable).")
]
Admin = Annotated[
    list[str] | None,
    typer.Option("--admin", metavar="URL", help="The address to change (default: the server of the page)."),
]
Apply = Annotated[
    bool, typer.Option("--apply", help="Change the target. Without it: only the plan.", rich_help_panel=_HOW)
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.", rich_help_panel=_HOW)]
Approve = Annotated[
    bool,
    typer.Option(
        "--approve",
        help="Permit a playbook of high risk, or one that the SOP does not permit yet.",
        rich_help_panel=_HOW,
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Stay until the proof is complete, instead of leaving it to the background.",
        rich_help_panel=_HOW,
    ),
]
SavePlan = Annotated[
    Path | None,
    typer.Option(
        "--save-plan", metavar="FILE", readable=False, help="Save the plan, for --plan.", rich_help_panel=_HOW
    ),
]


@options.source_options(
    without=(
        "metrics",
        "trace",
        "nsys",
        "tensorrt",
        "torch_memory",
        "log",
        "since",
        "until",
        "log_pattern",
        "changes",
        "window",
    )
)
def remediate(
    *,
    playbook: PlaybookId = None,
    from_: From = None,
    plan: PlanFile = None,
    set_: Settings = None,
    admin: Admin = None,
    apply: Apply = False,
    yes: Yes = False,
    approve: Approve = False,
    wait: Wait = False,
    save_plan: SavePlan = None,
    playbooks: options.Playbooks = None,
    sources: SourceOptions,
    rules: options.Rules = None,
    incident: options.Incident = None,
    no_incident: options.NoIncident = False,
    verbose: VerboseOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Remediate a cause by a playbook; failed steps roll back.

    It plans, changes, verifies, and keeps the change or rolls it back.

    Without --apply it shows the plan and changes nothing. With it the server must be named: --server, --admin,
    --target or --from, or one target in latdoctor.yaml. A saved plan (--plan) is made again and refused where it
    differs, and its address has to be named too. The token of the admin interface is read from LATDOCTOR_ADMIN_TOKEN
    or the configured file (latdoctor.yaml: admin, admin_token, allow).

    Runs are journaled in LATDOCTOR_STATE (default ~/.local/state/latdoctor). A file STOP in that folder, or
    LATDOCTOR_STOP set to any value, is the kill switch: no run begins, and a running one rolls back.

    Exit codes: 0 verified, or planned · 1 nothing was changed · 2 usage or an invalid file · 3 not verified and rolled
    back · 4 held for an operator · 5 refused by a guard · 6 NOT rolled back: see the commands it prints · 7
    applied, and its proof goes on in the background: latdoctor runs show RUN.
    """
    from latdoctor.cli.incident_journaling import IncidentSelector, check_selector
    from latdoctor.cli.remediation_session import RemediateOptions
    from latdoctor.cli.remediation_session import remediate as run_remediation

    given = RemediateOptions(
        playbook=playbook or "",
        basis=from_,
        plan=plan,
        settings=tuple(set_ or ()),
        admin=tuple(admin or ()),
        apply=apply,
        yes=yes,
        approved=approve,
        wait=wait,
        save_plan=save_plan,
        playbooks=tuple(playbooks or ()),
        rules=tuple(rules or ()),
        as_json=output is OutputFormat.JSON,
        verbose=verbose,
        belongs=IncidentSelector(incident or "", no_incident),
    )
    check_selector(given.belongs)
    raise typer.Exit(run_remediation(sources, given))


def rollback(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run: latdoctor runs list.")],
    target: options.Target = None,
    verbose: VerboseOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Roll back what a run has changed.

    Exit codes: 0 rolled back · 1 operational error · 2 usage · 5 none of its changes is in place, or it is running ·
    6 NOT rolled back: see the commands it prints.
    """
    raise typer.Exit(roll_back(run, target or "", as_json=output is OutputFormat.JSON, verbose=verbose))


def recover(
    target: options.Target = None,
    verbose: VerboseOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Finish runs that were interrupted.

    Afterwards each target is as before the run, or changed and verified.

    Exit codes: 0 all have ended · 1 operational error · 4 one is still running · 6 NOT rolled back: see the commands it
    prints.
    """
    raise typer.Exit(recover_all(target or "", as_json=output is OutputFormat.JSON, verbose=verbose))
