"""Injects faults into servers, processes, connections and the machine, and removes them."""

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
    """Where faults can be injected: servers, processes, router, proxies."""

    servers: tuple[AdminClient, ...] = ()
    pids: tuple[int, ...] = ()
    router: AdminClient | None = None
    clients_proxy: AdminClient | None = None
    dependency_proxy: AdminClient | None = None
    restart: Callable[[Knobs], None] | None = None


def inject(fault: Fault, targets: InjectionTargets, undo: ExitStack) -> None:
    """Injects `fault`; its removal is registered with `undo`.

    Raises UsageError if a required target is missing, OperationError if the injection fails.
    """
    match fault:
        case ConfigureFault(knobs, lifetime, only):
            slot = f"knobs-{secrets.token_hex(4)}"
            servers = targets.servers if only is None else targets.servers[only : only + 1]
            _at_each(servers, slot, {"knobs": typed_knobs(knobs), "lifetime": lifetime}, undo)
        case AgentFault(name, strength, lifetime):
            _at_each(targets.servers, name, {"strength": strength, "lifetime": lifetime}, undo)
        case NeighborFault():
            undo.enter_context(neighbours(fault))
        case LimitFault():
            _limit(fault, targets, undo)
        case NetworkFault(between, toxic):
            _add_toxic(
                _needed(targets.clients_proxy if between == "clients" else targets.dependency_proxy, "proxy"),
                toxic,
                undo,
            )
        case WeightsFault(weights, lifetime):
            router = _needed(targets.router, "router")
            _at_each((router,), "weights", {"weights": weights, "lifetime": lifetime}, undo)
        case KillFault(replica):
            _needed(targets.router, "router").put("/faults/kill", {"replica": replica})
        case RestartFault(knobs):
            if targets.restart is None:
                raise UsageError("only a server that the laboratory started itself can be restarted")
            targets.restart(knobs)


def _limit(fault: LimitFault, targets: InjectionTargets, undo: ExitStack) -> None:
    if not targets.pids:
        raise UsageError("this fault acts on a process", next_step="--pid N of the server")
    limited = {"cpu": cpu_quota, "memory": memory_squeeze}[fault.of]
    for pid in targets.pids:
        undo.enter_context(limited(pid, fault.share, fault.lifetime))


def _at_each(servers: Sequence[AdminClient], name: str, body: object, undo: ExitStack) -> None:
    if not servers:
        raise UsageError("this fault acts inside a server", next_step="--server URL of one started with --fault-agent")
    for server in servers:
        server.put(f"/faults/{name}", body)
        undo.callback(server.delete, f"/faults/{name}")


def _add_toxic(proxy: AdminClient, toxic: Toxic, undo: ExitStack) -> None:
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
