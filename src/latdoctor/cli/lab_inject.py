"""`latdoctor lab inject`: injects a fault into a running reference server, and removes it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.errors import UsageError

if TYPE_CHECKING:
    from latdoctor.lab.faults.injection import Fault, InjectionTargets
    from latdoctor.lab.run_report import ServerLoad
    from latdoctor.lab.scenario import Scenario


def proxy(
    to: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="The upstream address.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="The port; 0: a free one.")] = 0,
    control_port: Annotated[
        int, typer.Option("--control-port", min=0, max=65535, metavar="N", help="The control port; 0: a free one.")
    ] = 0,
    admin_token_file: Annotated[
        Path | None,
        typer.Option("--admin-token-file", metavar="FILE", help="The control token; else LATDOCTOR_ADMIN_TOKEN."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of the jitter and of the affected connections.")
    ] = 0,
) -> None:
    """Forward TCP connections, with network faults on request.

    Listens on this machine only. The control API adds and removes toxics: latency with jitter, bandwidth, reset,
    blackhole and slow close. Each ends after its lifetime. Prints the proxy's HOST:PORT and the control URL.

    Exit codes: 0 stopped · 1 a port is not available · 2 usage.
    """
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.lab.faults.tcp_proxy import ProxyOptions, run
    from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE, admin_token

    token = admin_token(admin_token_file)
    if not token:
        raise UsageError(
            "the control API needs a token", next_step=f"set {ADMIN_TOKEN_VARIABLE} or give --admin-token-file"
        )
    host, upstream = address(to)
    run(ProxyOptions(host, upstream, token, port, control_port, seed), announce=_say)


def address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[::1]:PORT`, with or without `http://`. Raises UsageError."""
    rest = text.removeprefix("http://").removesuffix("/")
    host, _, port = rest.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise UsageError(f"must be HOST:PORT, such as 127.0.0.1:8080 (got {text!r})")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _say(line: str) -> None:
    typer.echo(line)


WATCHED = 2.0  # seconds of each load measurement
RECOVERS_WITHIN = 30.0


SessionStoreAddress = Annotated[
    str,
    typer.Option(
        "--session-store", metavar="HOST:PORT", help="The Redis of the sessions; password: LATDOCTOR_REDIS_PASSWORD."
    ),
]


def inject(
    fault: Annotated[str, typer.Argument(metavar="FAULT", help="A shipped scenario with a fault, or a file.")] = "",
    server: Annotated[
        list[str] | None, typer.Option("--server", metavar="URL", help="A server started with --fault-agent.")
    ] = None,
    pid: Annotated[list[int] | None, typer.Option("--pid", metavar="N", help="The server's process.")] = None,
    router: Annotated[str, typer.Option("--router", metavar="URL", help="The router's address.")] = "",
    proxy: Annotated[str, typer.Option("--proxy", metavar="URL", help="A fault proxy's control address.")] = "",
    session_store: SessionStoreAddress = "",
    kube: Annotated[
        str, typer.Option("--kube", metavar="NAMESPACE/NAME", help="A Deployment of `latdoctor lab cluster`.")
    ] = "",
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help="The kubeconfig of that cluster, for --kube.")
    ] = None,
    lifetime: Annotated[str, typer.Option("--for", metavar="TIME", help="Lifetime of the fault.")] = "30s",
    strength: Annotated[
        float, typer.Option("--strength", metavar="N", help="Strength of a disturbance, instead of the scenario's.")
    ] = 0.0,
    admin_token_file: Annotated[
        Path | None,
        typer.Option("--admin-token-file", metavar="FILE", help="The admin token; else LATDOCTOR_ADMIN_TOKEN."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the faults, and exit.")] = False,
) -> None:
    """Inject a real fault into a server for a limited time.

    Prints the load of the server before, during and after the fault. Ctrl-C removes the fault at once; it also ends
    after its lifetime if this command is killed. A fault of a cluster (--kube) is reverted at the end or at Ctrl-C, and
    stays if this command is killed.

    Exit codes: 0 injected and removed · 1 the fault failed, or the server did not recover · 2 usage.
    """
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.lab.scenario import find

    if listing:
        _list()
        return
    if not fault:
        raise UsageError("FAULT is missing", next_step="latdoctor lab inject --list")
    seconds = _lifetime_seconds(lifetime)
    if kube:
        from latdoctor.cli.lab_inject_cluster import inject_into_cluster

        need_extra(("kubernetes",), "kubernetes")
        inject_into_cluster(fault, kube, kubeconfig, seconds, _waited)
        return
    addresses = tuple(server or ())
    site = _site(addresses, tuple(pid or ()), router, proxy, admin_token_file)
    if session_store:
        site = _with_session_store(site, session_store)
    chosen = find(fault)
    _inject(chosen.id, _faults(chosen, seconds, strength), site, addresses, seconds)


def _lifetime_seconds(text: str) -> float:
    """Raises UsageError."""
    from latdoctor.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error), where="--for") from error


def _inject(
    name: str, faults: tuple[Fault, ...], site: InjectionTargets, servers: tuple[str, ...], seconds: float
) -> None:
    """Injects the faults for `seconds`, removes them, and waits until the servers recover."""
    from latdoctor.cli.console import notice_console, result_console
    from latdoctor.lab.faults.injection import inject as inject_fault
    from latdoctor.lab.run_report import measure_load

    def report(when: str) -> ServerLoad | None:
        if not servers:
            return None
        state = measure_load(servers, WATCHED)
        result_console().print(f"{when:8} {state.text}")
        return state

    before = report("before")
    with ExitStack() as undo:
        for one in faults:
            inject_fault(one, site, undo)
        notice_console().print(f"{name} is injected for at most {seconds:g} s; Ctrl-C removes it")
        if _waited(max(0.0, seconds - WATCHED)):
            report("during")
    if before is not None:
        _wait_recovered(before, servers, report)


def _wait_recovered(before: ServerLoad, servers: tuple[str, ...], report: Callable[[str], ServerLoad | None]) -> None:
    from latdoctor.errors import OperationError
    from latdoctor.lab.run_report import is_recovered

    deadline = time.monotonic() + RECOVERS_WITHIN
    while (after := report("after")) is not None and not is_recovered(before, after):
        if time.monotonic() > deadline:
            raise OperationError(
                f"the server did not recover within {RECOVERS_WITHIN:g} s of the end of the fault",
                next_step=f"latdoctor diagnose --server {servers[0]}/metrics",
            )


def _list() -> None:
    from rich.table import Table

    from latdoctor.cli.console import result_console
    from latdoctor.lab.cluster.cluster_faults import FAULTS
    from latdoctor.lab.scenario import find, names

    table = Table("fault", "mechanism", "description", box=None)
    for name in names():
        scenario = find(name)
        kinds = sorted({type(one).__name__.removesuffix("Fault").lower() for one in scenario.incident.faults})
        table.add_row(name, ", ".join(kinds) or "its load: lab run", scenario.title)
    for fault in FAULTS:
        table.add_row(fault.id, "cluster: --kube", fault.title)
    result_console().print(table)


def _faults(scenario: Scenario, seconds: float, strength: float) -> tuple[Fault, ...]:
    """The faults of `scenario`, lasting `seconds`. Raises UsageError for a scenario without any."""
    from latdoctor.errors import UsageError

    if not scenario.incident.faults:
        raise UsageError(
            f"{scenario.id} injects no fault: it is a scenario of load or start-up",
            next_step=f"latdoctor lab run {scenario.id}",
        )
    return tuple(_lasting(fault, seconds, strength) for fault in scenario.incident.faults)


def _lasting(fault: Fault, seconds: float, strength: float) -> Fault:
    from msgspec.structs import replace

    from latdoctor.lab.faults.injection import AgentFault, KillFault, NetworkFault, RestartFault

    match fault:
        case NetworkFault(_, toxic):
            return replace(fault, toxic=replace(toxic, lifetime=seconds))
        case AgentFault():
            return replace(fault, lifetime=seconds, strength=strength or fault.strength)
        case KillFault() | RestartFault():
            return fault
        case _:
            return replace(fault, lifetime=seconds)


def _site(
    servers: tuple[str, ...], pids: tuple[int, ...], router: str, proxy: str, token_file: Path | None
) -> InjectionTargets:
    from latdoctor.lab.admin_client import AdminClient
    from latdoctor.lab.faults.injection import InjectionTargets
    from latdoctor.lab.server.admin_http import admin_token
    from latdoctor.load.plan import check_address

    token = admin_token(token_file)
    for address in filter(None, (*servers, router, proxy)):
        check_address(address, remote=False)

    def admin(address: str) -> AdminClient | None:
        return AdminClient(address.rstrip("/").removesuffix("/metrics"), token) if address else None

    reached = tuple(one for one in map(admin, servers) if one is not None)
    return InjectionTargets(
        servers=reached,
        pids=pids,
        router=admin(router),
        clients_proxy=admin(proxy),
        dependency_proxy=admin(proxy),
        session_store_proxy=admin(proxy),
    )


def _with_session_store(site: InjectionTargets, text: str) -> InjectionTargets:
    """`site` with the Redis at `text`, on this machine only. Raises UsageError."""
    import os
    from dataclasses import replace

    from latdoctor.cli.lab import need_extra
    from latdoctor.lab.redis_server import RedisControl
    from latdoctor.lab.server.sessions.redis_store import PASSWORD_VARIABLE
    from latdoctor.load.plan import check_address

    need_extra(("redis",))
    host, port = address(text)
    check_address(f"http://{text}", remote=False)
    control = RedisControl(host, port, os.environ.get(PASSWORD_VARIABLE, ""))
    return replace(site, session_store=control)


def _waited(seconds: float) -> bool:
    """False where Ctrl-C or SIGTERM arrived earlier."""
    received: list[int] = []
    before = {
        one: signal.signal(one, lambda number, _: received.append(number)) for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        deadline = time.monotonic() + seconds
        while not received and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(0.1, left))
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    return not received
