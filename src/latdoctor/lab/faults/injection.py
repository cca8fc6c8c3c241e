"""Puts faults in and takes them out again, wherever they act."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from latdoctor.errors import UsageError
from latdoctor.lab.admin_client import AdminClient, AdminRefusedError, typed_knobs
from latdoctor.lab.faults.noisy_neighbor import neighbours
from latdoctor.lab.faults.process_limits import cpu_quota, memory_squeeze
from latdoctor.lab.faults.toxics import Toxic
from latdoctor.lab.faults.types import (
    AgentFault,
    ConfigureFault,
    Fault,
    KillFault,
    Knobs,
    LimitFault,
    NeighborFault,
    NetworkFault,
    RestartFault,
    WeightsFault,
)

GONE = 404


@dataclass(frozen=True, slots=True)
class InjectionTargets:
    """What can be reached: the servers (one, or the replicas), and what else there is."""

    servers: tuple[AdminClient, ...] = ()
    pids: tuple[int, ...] = ()
    router: AdminClient | None = None
    clients_proxy: AdminClient | None = None
    dependency_proxy: AdminClient | None = None
    restart: Callable[[Knobs], None] | None = None


def inject(fault: Fault, site: InjectionTargets, undo: ExitStack) -> None:
    """Puts `fault` in; what takes it out is left with `undo`.

    Raises UsageError where the site lacks what the fault needs, OperationError where it is refused or cannot be had.
    """
    match fault:
        case ConfigureFault(knobs, lifetime, only):
            slot = f"knobs-{secrets.token_hex(4)}"
            servers = site.servers if only is None else site.servers[only : only + 1]
            _at_each(servers, slot, {"knobs": typed_knobs(knobs), "lifetime": lifetime}, undo)
        case AgentFault(name, strength, lifetime):
            _at_each(site.servers, name, {"strength": strength, "lifetime": lifetime}, undo)
        case NeighborFault():
            undo.enter_context(neighbours(fault))
        case LimitFault():
            _limit(fault, site, undo)
        case NetworkFault(between, toxic):
            _spoil(_needed(site.clients_proxy if between == "clients" else site.dependency_proxy, "proxy"), toxic, undo)
        case WeightsFault(weights, lifetime):
            router = _needed(site.router, "router")
            _at_each((router,), "weights", {"weights": weights, "lifetime": lifetime}, undo)
        case KillFault(replica):
            _needed(site.router, "router").put("/faults/kill", {"replica": replica})
        case RestartFault(knobs):
            if site.restart is None:
                raise UsageError("only a server that the laboratory started itself can be restarted")
            site.restart(knobs)


def _limit(fault: LimitFault, site: InjectionTargets, undo: ExitStack) -> None:
    if not site.pids:
        raise UsageError("this fault acts on a process", next_step="--pid N of the server")
    limited = {"cpu": cpu_quota, "memory": memory_squeeze}[fault.of]
    for pid in site.pids:
        undo.enter_context(limited(pid, fault.share, fault.lifetime))


def _at_each(servers: Sequence[AdminClient], name: str, asked: object, undo: ExitStack) -> None:
    if not servers:
        raise UsageError("this fault acts inside a server", next_step="--server URL of one started with --fault-agent")
    for server in servers:
        server.put(f"/faults/{name}", asked)
        undo.callback(server.delete, f"/faults/{name}")


def _spoil(proxy: AdminClient, toxic: Toxic, undo: ExitStack) -> None:
    proxy.ask("POST", "/toxics", msgspec.to_builtins(toxic))

    def remove() -> None:
        try:
            proxy.delete(f"/toxics/{toxic.name}")
        except AdminRefusedError as refused:
            if refused.status != GONE:  # its lifetime has ended before
                raise

    undo.callback(remove)


def _needed(found: AdminClient | None, what: str) -> AdminClient:
    if found is None:
        raise UsageError(f"this fault needs a {what}", next_step=f"--{what} URL of its admin interface")
    return found
