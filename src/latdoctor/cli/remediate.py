"""`latdoctor remediate`, `rollback` and `recover`: what changes a server. Without --apply nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.console import notice_console
from latdoctor.cli.interrupt import stoppable
from latdoctor.cli.notifier import notifying
from latdoctor.cli.options import OutputFormat, OutputOption, SourceOptions
from latdoctor.cli.remediate_targets import again, settings_for
from latdoctor.cli.remediation_session import about, both, tell_results
from latdoctor.cli.request import settings_of
from latdoctor.errors import UsageError
from latdoctor.journal import state_dir
from latdoctor.journal.store import Journal
from latdoctor.pipeline import kept
from latdoctor.remediation import recovery, run_history
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.run_context import Tell, World, aside
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Outcome, Result
from latdoctor.remediation.target import Target
from latdoctor.report import remediation as shown


def rolled_back(run: str, target: str, *, as_json: bool) -> int:
    """The exit code; a run that was taken back as asked is a success."""
    journal, place = _journal()
    known = next((one for one in run_history.runs(journal.entries()) if one.id == run), None)
    screen = shown.told(notice_console(), known.plan if known else None)
    with notifying() as poke, stoppable(), aside(screen) as tell:
        enter = _enter(journal, place, target, both(tell, poke))
        result = recovery.roll_back(run, enter, lambda: run_history.runs(journal.entries()))
    tell_results([about(result, known.plan) if known else result], as_json=as_json)
    return 0 if result.outcome is Outcome.ROLLED_BACK else result.outcome.exit_code


def recovered(target: str, *, as_json: bool) -> int:
    """The exit code: the worst of all."""
    journal, place = _journal()
    with notifying() as poke, stoppable():
        unfinished = [run for run in run_history.runs(journal.entries()) if run.open]
        results = [_recovered(run, journal, place, target, poke) for run in unfinished]
    tell_results(results, as_json=as_json, nothing="no run is unfinished", at_work=True)
    codes = {result.outcome for result in results}
    return next((outcome.exit_code for outcome in (Outcome.INCOMPLETE, Outcome.HELD) if outcome in codes), 0)


def _recovered(run: RunState, journal: Journal, place: Path, target: str, poke: Callable[..., None]) -> Result:
    with aside(shown.told(notice_console(), run.plan)) as tell:
        return about(recovery.recover(run, _enter(journal, place, target, both(tell, poke))), run.plan)


def _journal() -> tuple[Journal, Path]:
    """The journal of what was done, and its folder; nothing is made where nothing was done. Raises UsageError."""
    place = state_dir.folder()
    state_dir.check_private(place)
    reading = Journal.reading(place / state_dir.JOURNAL)
    return (Journal.opened(reading.path) if reading.entries() else reading), place


def _enter(journal: Journal, place: Path, target: str, tell: Tell) -> recovery.Enter:
    """A way back in: nothing is observed then, so the look is one that fails."""

    def enter(to: Target) -> World:
        settings = settings_of(SourceOptions(target=target)) if target else settings_for(to)
        return World(journal, place, again(to, settings), _blind, kept, tell)

    return enter


def _blind(seconds: float) -> Observation:
    raise UsageError("nothing is watched here")


_HOW = "How it is done"


PlaybookId = Annotated[str | None, typer.Option("--playbook", metavar="ID", help="The playbook to run.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        readable=False,
        help="A diagnosis (diagnose -o json): its first named cause is mended.",
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
    typer.Option("--admin", metavar="URL", help="What is changed (default: the server whose page is watched)."),
]
Apply = Annotated[bool, typer.Option("--apply", help="Change it. Without: only the plan.", rich_help_panel=_HOW)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask first.", rich_help_panel=_HOW)]
Approve = Annotated[
    bool,
    typer.Option(
        "--approve",
        help="A playbook of high risk may run, or one that the SOP does not permit yet.",
        rich_help_panel=_HOW,
    ),
]
SavePlan = Annotated[
    Path | None,
    typer.Option(
        "--save-plan", metavar="FILE", readable=False, help="Keep the plan, for --plan.", rich_help_panel=_HOW
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
        "prometheus",
        "select",
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
    save_plan: SavePlan = None,
    playbooks: options.Playbooks = None,
    sources: SourceOptions,
    rules: options.Rules = None,
    incident: options.Incident = None,
    no_incident: options.NoIncident = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Remediate a cause by a playbook; failed steps roll back.

    It plans, changes, verifies, and keeps the change or takes it back.

    Without --apply it shows the plan and changes nothing; with it somebody has to have named the server: --server,
    --admin, --target, --from or --plan, or one target in latdoctor.yaml. The token of the admin interface is read from
    LATDOCTOR_ADMIN_TOKEN or the configured file (latdoctor.yaml: admin, admin_token, allow).

    Runs are journaled in LATDOCTOR_STATE (default ~/.local/state/latdoctor). A file STOP in that folder, or
    LATDOCTOR_STOP set to anything, is the kill switch: no run begins, and one at work takes everything back.

    Exit codes: 0 verified, or planned · 1 nothing was changed · 2 usage or an invalid file · 3 not verified, and taken
    back · 4 held for a human · 5 refused by a guard · 6 NOT taken back: see the commands it prints.
    """
    from latdoctor.cli.incident_context import IncidentSelector, check_selector
    from latdoctor.cli.remediation_session import Mending, mend

    how = Mending(
        playbook=playbook or "",
        diagnosis=from_,
        plan=plan,
        settings=tuple(set_ or ()),
        admin=tuple(admin or ()),
        apply=apply,
        yes=yes,
        approved=approve,
        save_plan=save_plan,
        playbooks=tuple(playbooks or ()),
        rules=tuple(rules or ()),
        as_json=output is OutputFormat.JSON,
        belongs=IncidentSelector(incident or "", no_incident),
    )
    check_selector(how.belongs)
    raise typer.Exit(mend(sources, how))


def rollback(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run: latdoctor runs list.")],
    target: options.Target = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Roll back what a run has changed.

    Exit codes: 0 taken back · 1 operational error · 2 usage · 5 nothing of it stands, or it is at work ·
    6 NOT taken back: see the commands it prints.
    """
    raise typer.Exit(rolled_back(run, target or "", as_json=output is OutputFormat.JSON))


def recover(
    target: options.Target = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Finish runs that were interrupted.

    Each target is then as before, or as after and verified.

    Exit codes: 0 all have ended · 1 operational error · 4 one is still at work · 6 NOT taken back: see the commands it
    prints.
    """
    raise typer.Exit(recovered(target or "", as_json=output is OutputFormat.JSON))
