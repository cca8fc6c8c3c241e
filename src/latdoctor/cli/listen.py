"""`latdoctor listen`: alerts come in, and what they tell of is looked at while they fire."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.sop import Sops

PLACE = "127.0.0.1:9095"
_HOW = "What comes in"

Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.", rich_help_panel=_HOW)]
AuthFile = Annotated[
    Path | None,
    typer.Option(
        "--auth-file",
        metavar="FILE",
        readable=False,
        help="What a sender has to show: a token, or `Basic USER:PASSWORD`.",
        rich_help_panel=_HOW,
    ),
]
CloseOnResolve = Annotated[
    bool,
    typer.Option(
        "--close-on-resolve",
        help="Close an incident when its last alert is resolved. Without: it waits for `sop close`.",
        rich_help_panel=_HOW,
    ),
]
Every = Annotated[
    str, typer.Option("--every", metavar="TIME", help="How often the service is sampled while an incident is open.")
]
SopOption = Annotated[
    str | None, typer.Option("--sop", metavar="ID", help="The SOP that is followed (default slow-inference).")
]


def listen(
    place: Listen = PLACE,
    auth_file: AuthFile = None,
    close_on_resolve: CloseOnResolve = False,
    sop: SopOption = None,
    sops: Sops = None,
    every: Every = "10s",
    server: options.Server = None,
    log: options.Log = None,
    prometheus: options.Prometheus = None,
    select: options.Select = None,
    log_pattern: options.LogPattern = None,
    changes: options.Changes = None,
    pid: options.Pid = None,
    nvml: options.Nvml = None,
    target: options.Target = None,
    window: options.WindowOption = None,
    slo: options.Slo = None,
    slo_errors: options.SloErrors = None,
    baseline: options.BaselineOption = None,
    rules: options.Rules = None,
) -> None:
    """Take alerts in, confirm them, and watch the incident.

    An Alertmanager sends its notifications to /alerts here (webhook_config). A new alert opens an incident, others of
    its group join it, repetitions add nothing; what was answered 200 is in the journal. With a source given (as for
    diagnose) the service is looked at: is the alert real, what is wrong, and how it goes on, until Ctrl-C.

    The token may also stand in LATDOCTOR_LISTEN_AUTH, or in a file that LATDOCTOR_LISTEN_AUTH_FILE names; one is needed
    unless it listens on the loopback interface.

    Exit codes: 0 ended by Ctrl-C or SIGTERM · 1 it cannot listen there · 2 usage, or an invalid file.
    """
    from latdoctor.cli.listening import Listening, listen_until_ended

    asked = options.given(
        server, None, None, log, prometheus=prometheus, select=select, log_pattern=log_pattern, changes=changes,
        pid=pid, nvml=nvml, target=target, window=window, slo=slo, slo_errors=slo_errors, baseline=baseline,
    )  # fmt: skip
    how = Listening(place, auth_file, close_on_resolve, sop or "", tuple(sops or ()), every, tuple(rules or ()))
    listen_until_ended(asked, how)
