"""`latdoctor remediate`, `rollback` and `recover`: what changes a server. Without --apply nothing is changed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli import options

_HOW = "How it is done"


class Form(StrEnum):
    """How the outcome is printed."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Form, typer.Option("--output", "-o", help="How the outcome is printed.")]


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


def remediate(
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
    server: options.Server = None,
    pid: options.Pid = None,
    nvml: options.Nvml = None,
    target: options.Target = None,
    slo: options.Slo = None,
    slo_errors: options.SloErrors = None,
    baseline: options.BaselineOption = None,
    rules: options.Rules = None,
    incident: options.Incident = None,
    no_incident: options.NoIncident = False,
    output: OutputOption = Form.TEXT,
) -> None:
    """Mend a cause by a playbook, and take back what fails.

    It plans, changes, verifies, and keeps the change or takes it back.

    Without --apply it shows the plan and changes nothing; with it somebody has to have named the server: --server,
    --admin, --target, --from or --plan, or one target in latdoctor.yaml. The token of the admin interface is read from
    LATDOCTOR_ADMIN_TOKEN or the configured file (latdoctor.yaml: admin, admin_token, allow).

    Runs are journaled in LATDOCTOR_STATE (default ~/.local/state/latdoctor). A file STOP in that folder, or
    LATDOCTOR_STOP set to anything, is the kill switch: no run begins, and one at work takes everything back.

    Exit codes: 0 verified, or planned · 1 nothing was changed · 2 usage or an invalid file · 3 not verified, and taken
    back · 4 held for a human · 5 refused by a guard · 6 NOT taken back: see the commands it prints.
    """
    from latdoctor.cli.marking import Belongs, must_be_known
    from latdoctor.cli.mending import Mending, mend

    asked = options.given(
        server, None, None, None, pid=pid, nvml=nvml, target=target, slo=slo, slo_errors=slo_errors, baseline=baseline
    )
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
        as_json=output is Form.JSON,
        belongs=Belongs(incident or "", no_incident),
    )
    must_be_known(how.belongs)
    raise typer.Exit(mend(asked, how))


def rollback(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run: latdoctor runs list.")],
    target: options.Target = None,
    output: OutputOption = Form.TEXT,
) -> None:
    """Take back what a run has changed.

    Exit codes: 0 taken back · 1 operational error · 2 usage · 5 nothing of it stands, or it is at work ·
    6 NOT taken back: see the commands it prints.
    """
    from latdoctor.cli.undoing import rolled_back

    raise typer.Exit(rolled_back(run, target or "", as_json=output is Form.JSON))


def recover(
    target: options.Target = None,
    output: OutputOption = Form.TEXT,
) -> None:
    """End runs that were killed on their way.

    Each target is then as before, or as after and verified.

    Exit codes: 0 all have ended · 1 operational error · 4 one is still at work · 6 NOT taken back: see the commands it
    prints.
    """
    from latdoctor.cli.undoing import recovered

    raise typer.Exit(recovered(target or "", as_json=output is Form.JSON))
