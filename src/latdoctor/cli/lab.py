"""`latdoctor lab serve`, and the other commands of the lab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import (
    lab_bench,
    lab_cluster,
    lab_inject,
    lab_load,
    lab_load_export,
    lab_load_recorded,
    lab_model,
    lab_real,
    lab_run,
)

if TYPE_CHECKING:
    from latdoctor.lab.server import serve_replicas
    from latdoctor.lab.server.config import ServerConfig
    from latdoctor.lab.server.edge_group import EdgeAgent
    from latdoctor.lab.server.edge_nodes import EdgeNodes
    from latdoctor.lab.server.load_balancing import RouterConfig
    from latdoctor.lab.server.serve import Agent


def telemetry(
    cause: Annotated[str | None, typer.Argument(metavar="CAUSE", help="The fault; see --list.")] = None,
    output: Annotated[Path | None, typer.Option("--output", metavar="DIR", help="The folder to create.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same bytes.")] = 0,
    severity: Annotated[
        float, typer.Option("--severity", metavar="S", help="Severity: greater than 0, at most 1.")
    ] = 0.7,
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Write the ground truth to this file.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the faults, and write nothing.")] = False,
) -> None:
    """Generate synthetic telemetry of a GPU machine.

    NVML samples, metrics pages, logs, traces and TensorRT files with noise and healthy GPUs, marked as generated.
    DIR/bundle is for `latdoctor diagnose`, DIR/raw has the same as files. Neither contains the ground truth: --truth
    writes it to another place.

    Exit codes: 0 written · 2 usage, or a file cannot be written.
    """
    if list_:
        _list()
        return
    from latdoctor.errors import UsageError
    from latdoctor.lab.telemetry.generate import generate_telemetry, must_be_apart, write, write_truth

    if cause is None or output is None:
        what = "CAUSE is missing" if cause is None else "--output is missing"
        raise UsageError(what, next_step="latdoctor lab telemetry CAUSE --output DIR, or --list")
    if truth is not None:
        must_be_apart(truth, output)
    telemetry = generate_telemetry(cause, seed, severity)
    write(telemetry, output)
    if truth is not None:
        write_truth(telemetry.truth, truth)
    typer.echo(f"{telemetry.mark}\nwrote {output}. Next: latdoctor diagnose {output / 'bundle'}")


def _list() -> None:
    from rich.table import Table

    from latdoctor.cli.console import result_console
    from latdoctor.lab.telemetry.generate import INCIDENT_KINDS

    table = Table("cause", "visible in", "diagnosed", box=None, pad_edge=False)
    for kind in INCIDENT_KINDS:
        table.add_row(kind.id, kind.shows, "" if kind.healthy else "yes" if kind.named else "not yet")
    console = result_console()
    console.print(table)
    console.print(f"{len(INCIDENT_KINDS)} kinds. Next: latdoctor lab telemetry CAUSE --output DIR")


FOR_LOAD = ("aiohttp", "hdrh", "uvloop")  # of the load generator, which can run without a server
_NEEDED = (*FOR_LOAD, "httptools", "safetensors", "scipy", "starlette", "torch", "uvicorn")


def need_extra(names: Sequence[str] = _NEEDED, extra: str = "lab") -> None:
    """Raises UsageError where a package of the extra is missing."""
    from importlib.util import find_spec

    from latdoctor.errors import UsageError

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(f"this command needs {', '.join(missing)}", next_step=f"pip install 'latdoctor[{extra}]'")


app = typer.Typer(help="A reference server with real incidents, to try latdoctor on.", no_args_is_help=True)

app.command("cluster")(lab_cluster.cluster)
app.command("inject")(lab_inject.inject)
app.command("load")(lab_load.load)
app.command("load-fit")(lab_load_recorded.load_fit)
app.command("load-replay")(lab_load_recorded.load_replay)
app.command("load-export")(lab_load_export.load_export)
app.command("run")(lab_run.run)
app.command("telemetry")(telemetry)
app.command("proxy")(lab_inject.proxy)
app.add_typer(lab_bench.app, name="bench")
app.add_typer(lab_model.app, name="model")
app.add_typer(lab_real.app, name="real")


@app.command()
def serve(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="The port; 0: a free one.")] = 8080,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Allow an address that other machines can reach.")
    ] = False,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration file, YAML.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="GROUP.KNOB=VALUE", help="One setting; repeatable, overrides the file."),
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        typer.Option("--admin-token-file", metavar="FILE", help="The admin token; else LATDOCTOR_ADMIN_TOKEN."),
    ] = None,
    access_log: Annotated[
        Path | None, typer.Option("--access-log", metavar="FILE", help="Append a JSON line for each request.")
    ] = None,
    replica: Annotated[str, typer.Option("--replica", metavar="NAME", help="The replica's name in its metrics.")] = "0",
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, max=32, metavar="N", help="Number of replicas behind a router.")
    ] = None,
    edge: Annotated[
        int, typer.Option("--edge", min=0, max=8, metavar="N", help="Edge nodes with a light model; with --replicas.")
    ] = 0,
    fault_agent: Annotated[
        bool, typer.Option("--fault-agent", help="Let faults be injected through the admin interface.")
    ] = False,
) -> None:
    """Run the reference inference server.

    An intent model behind a batching queue. It answers POST /v1/intent with {"text": …} or {"audio_seconds": …}, and
    serves GET /metrics, /healthz and /readyz. The admin interface (/admin, /debug) is limited to this machine and needs
    a token.

    With --replicas the router listens on the port, each replica on a free one; their addresses follow the router's, one
    per line. --set router.KNOB=VALUE changes the router's settings; the access log of replica 0 is FILE.0. The nodes of
    --edge answer simple requests before the replicas; --set edge.GROUP.KNOB=VALUE changes their settings.

    Exit codes: 0 stopped · 1 the port is not available · 2 usage or an invalid configuration.
    """
    need_extra()
    from latdoctor.lab.server import serve_replicas
    from latdoctor.lab.server.admin_http import admin_token
    from latdoctor.lab.server.serve import ServeOptions
    from latdoctor.lab.server.serve import serve as run

    server, router, nodes = _configured(config, set_ or (), replicas, edge)
    agent = _agent() if fault_agent else None
    token = admin_token(admin_token_file)
    options = ServeOptions(server, host, port, allow_remote, token, access_log, replica, agent)
    if replicas and router:
        agents = (_router_agent(), _edge_agent()) if fault_agent else (None, None)
        serve_replicas.serve(options, replicas, router, agents[0], edge=nodes, edge_agent=agents[1])
    else:
        run(options)


def _configured(
    file: Path | None, settings: Sequence[str], replicas: int | None, edge: int
) -> tuple[ServerConfig, RouterConfig | None, EdgeNodes | None]:
    """The configuration of the replicas, of the router and of the edge nodes. Raises UsageError, DefinitionError."""
    from latdoctor.errors import UsageError
    from latdoctor.lab.server.config import load_config, with_settings
    from latdoctor.lab.server.edge_nodes import edge_nodes
    from latdoctor.lab.server.load_balancing import parse_router_settings

    if not replicas:
        if edge:
            raise UsageError("--edge needs a router in front of the nodes", next_step="--replicas N")
        return load_config(file, settings), None, None
    router, others = parse_router_settings(settings)
    base = load_config(file)
    if not edge:
        return with_settings(base, others), router, None
    nodes, others = edge_nodes(edge, base, others)
    return with_settings(base, others), router, nodes


def _agent() -> Agent:
    """The fault agent, imported only with --fault-agent."""
    from latdoctor.lab.faults.server_agent import attach

    return attach


def _router_agent() -> serve_replicas.Agent:
    from latdoctor.lab.faults.router_agent import attach

    return attach


def _edge_agent() -> EdgeAgent:
    from latdoctor.lab.faults.edge_agent import attach

    return attach
