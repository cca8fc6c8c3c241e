"""`latdoctor lab serve`, and the other commands of the laboratory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import lab_bench, lab_inject, lab_load, lab_proxy, lab_run, lab_telemetry
from latdoctor.cli.lab_extra import need_extra

if TYPE_CHECKING:
    from latdoctor.lab.server import routing
    from latdoctor.lab.server.lifecycle import Agent

app = typer.Typer(help="A server whose incidents are real, to try latdoctor on.", no_args_is_help=True)

app.command("inject")(lab_inject.inject)
app.command("load")(lab_load.load)
app.command("run")(lab_run.run)
app.command("telemetry")(lab_telemetry.telemetry)
app.command("proxy")(lab_proxy.proxy)
app.add_typer(lab_bench.app, name="bench")


@app.command()
def serve(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="The port; 0: a free one.")] = 8080,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Allow an address that other machines can reach.")
    ] = False,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Groups of knobs, as YAML.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="GROUP.KNOB=VALUE", help="One knob; may be repeated, and wins over the file."),
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        typer.Option("--admin-token-file", metavar="FILE", help="The admin token; else LATDOCTOR_ADMIN_TOKEN."),
    ] = None,
    access_log: Annotated[
        Path | None, typer.Option("--access-log", metavar="FILE", help="Append a JSON line for each request.")
    ] = None,
    replica: Annotated[str, typer.Option("--replica", metavar="NAME", help="The name in its metrics.")] = "0",
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, max=32, metavar="N", help="So many of them, behind a router.")
    ] = None,
    fault_agent: Annotated[
        bool, typer.Option("--fault-agent", help="Let faults be injected through the admin interface.")
    ] = False,
) -> None:
    """Run the reference inference server.

    An intent model behind a batching queue. It answers POST /v1/intent with {"text": …} or {"audio_seconds": …}, and
    shows GET /metrics, /healthz and /readyz. The admin interface (/admin, /debug) answers this machine only, and needs
    a token.

    With --replicas the router listens on the port and each replica on a free one; their addresses follow the router's
    on standard output, a line each. --set router.KNOB=VALUE turns the router's own knobs, and the access log of
    replica 0 is FILE.0.

    Exit codes: 0 stopped in order · 1 the port cannot be had · 2 usage or an invalid configuration.
    """
    need_extra()
    from latdoctor.lab.server import replicated
    from latdoctor.lab.server.configured import configured
    from latdoctor.lab.server.guard import admin_token
    from latdoctor.lab.server.lifecycle import ServeOptions
    from latdoctor.lab.server.lifecycle import serve as run

    router, settings = replicated.router_config(set_ or ()) if replicas else (None, set_ or ())
    options = ServeOptions(
        config=configured(config, settings),
        host=host,
        port=port,
        allow_remote=allow_remote,
        admin_token=admin_token(admin_token_file),
        access_log=access_log,
        replica=replica,
        agent=_agent() if fault_agent else None,
    )
    if replicas and router:
        replicated.serve(options, replicas, router, _router_agent() if fault_agent else None)
    else:
        run(options)


def _agent() -> Agent:
    """What injects faults; nothing of it is loaded without being asked for."""
    from latdoctor.lab.faults.agent import attach

    return attach


def _router_agent() -> routing.Agent:
    from latdoctor.lab.faults.router_agent import attach

    return attach
