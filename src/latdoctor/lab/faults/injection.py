"""Fault definitions, their injection into servers, processes, connections and the machine, and their removal.

All faults are real and end by themselves after their lifetime: `configure` changes knobs of the server, `agent`
disturbs a stage inside it, `neighbour` starts processes that use the machine's CPUs or its disk, `network` degrades a
connection, `session-store` breaks the Redis that keeps the sessions, `limit` limits a process's CPU or memory,
`edge-route` loses the way to the edge tier,
`weights` sends too much to one replica, `canary` sends a share of the requests to another version of the model, `kill`
kills a replica, `restart` restarts the server.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import UsageError
from latdoctor.lab.admin_client import AdminClient, AdminRefusedError, typed_knobs
from latdoctor.lab.faults.noisy_neighbor import noisy_neighbors
from latdoctor.lab.faults.process_limits import LimitKind, cpu_quota, memory_squeeze
from latdoctor.lab.faults.session_store import SessionStore, StoreFaultKind, store_fault
from latdoctor.lab.faults.toxics import Toxic

GONE = 404

Lifetime = Annotated[float, Meta(gt=0, le=3600)]  # seconds, after which the fault removes itself
Knobs = dict[str, dict[str, Any]]


class ConfigureFault(Struct, frozen=True, forbid_unknown_fields=True, tag="configure", tag_field="kind"):
    """Live knobs changed, and restored at the end unless another client has changed them since.

    `only`: of this one of several replicas, counted from 0.
    """

    knobs: Knobs
    lifetime: Lifetime = 60.0
    only: Annotated[int, Meta(ge=0, le=31)] | None = None


class AgentFault(Struct, frozen=True, forbid_unknown_fields=True, tag="agent", tag_field="kind"):
    """A disturbance inside the server's process, by its name in the fault agent; `strength` in its own unit."""

    name: Literal[
        "loop-block", "gc-pauses", "lock-convoy", "slow-preprocess", "fsync", "leak", "fragment", "hoard",
        "poison-answers", "control-blind", "control-swings",
    ]  # fmt: skip
    strength: Annotated[float, Meta(gt=0, le=10_000)] = 1.0
    lifetime: Lifetime = 60.0


class NeighborFault(Struct, frozen=True, forbid_unknown_fields=True, tag="neighbour", tag_field="kind"):
    """Other processes on the machine: `cpu` burns, `io` writes and syncs."""

    takes: Literal["cpu", "io"]
    processes: Annotated[int, Meta(ge=1, le=16)] = 2
    lifetime: Lifetime = 60.0


class NetworkFault(Struct, frozen=True, forbid_unknown_fields=True, tag="network", tag_field="kind"):
    """A toxic on the way from the clients to the server, or from the server to its dependency or session store."""

    between: Literal["clients", "dependency", "session-store"]
    toxic: Toxic


class SessionStoreFault(Struct, frozen=True, forbid_unknown_fields=True, tag="session-store", tag_field="kind"):
    """What goes wrong with the Redis that keeps the sessions."""

    does: StoreFaultKind
    lifetime: Lifetime = 60.0


class LimitFault(Struct, frozen=True, forbid_unknown_fields=True, tag="limit", tag_field="kind"):
    """A limit on the process of each server or edge node: so many CPUs, or this share of its mapped file pages."""

    of: LimitKind
    share: Annotated[float, Meta(gt=0, le=16)]
    lifetime: Lifetime = 60.0
    on: Literal["servers", "edge"] = "servers"


class EdgeRouteFault(Struct, frozen=True, forbid_unknown_fields=True, tag="edge-route", tag_field="kind"):
    """The way from the router to its edge nodes swallows requests; the nodes themselves are well."""

    lifetime: Lifetime = 60.0


class WeightsFault(Struct, frozen=True, forbid_unknown_fields=True, tag="weights", tag_field="kind"):
    """The router's weights, by replica."""

    weights: dict[str, Annotated[float, Meta(ge=0, le=1000)]]
    lifetime: Lifetime = 60.0


class CanaryFault(Struct, frozen=True, forbid_unknown_fields=True, tag="canary", tag_field="kind"):
    """A canary of another version of the model behind the router, with this share of the requests."""

    version: Annotated[str, Meta(min_length=1, max_length=40)]
    share: Annotated[float, Meta(gt=0, le=1)] = 0.1
    lifetime: Lifetime = 60.0


class KillFault(Struct, frozen=True, forbid_unknown_fields=True, tag="kill", tag_field="kind"):
    """SIGKILL for a replica, as by the kernel's OOM killer; its supervisor starts another."""

    replica: str = "0"


class RestartFault(Struct, frozen=True, forbid_unknown_fields=True, tag="restart", tag_field="kind"):
    """A restart of the server's process with these knobs changed."""

    knobs: Knobs = {}


Fault = (
    ConfigureFault
    | AgentFault
    | NeighborFault
    | NetworkFault
    | SessionStoreFault
    | LimitFault
    | EdgeRouteFault
    | WeightsFault
    | CanaryFault
    | KillFault
    | RestartFault
)


@dataclass(frozen=True, slots=True)
class InjectionTargets:
    """Where faults can be injected: servers, processes, router, proxies."""

    servers: tuple[AdminClient, ...] = ()
    pids: tuple[int, ...] = ()
    edge_pids: tuple[int, ...] = ()
    router: AdminClient | None = None
    clients_proxy: AdminClient | None = None
    dependency_proxy: AdminClient | None = None
    session_store: SessionStore | None = None
    session_store_proxy: AdminClient | None = None
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
        case NeighborFault(takes, processes, lifetime):
            undo.enter_context(noisy_neighbors(takes, processes, lifetime))
        case LimitFault():
            _limit(fault, targets, undo)
        case NetworkFault(between, toxic):
            _add_toxic(_needed(_proxy(between, targets), "proxy"), toxic, undo)
        case SessionStoreFault(does, lifetime):
            undo.enter_context(store_fault(does, _session_store(targets), lifetime))
        case WeightsFault() | CanaryFault() | KillFault() | EdgeRouteFault():
            _at_router(fault, _needed(targets.router, "router"), undo)
        case RestartFault(knobs):
            _restart(targets)(knobs)


def _restart(targets: InjectionTargets) -> Callable[[Knobs], None]:
    if targets.restart is None:
        raise UsageError("only a server that the laboratory started itself can be restarted")
    return targets.restart


def _proxy(between: str, targets: InjectionTargets) -> AdminClient | None:
    proxies = {
        "clients": targets.clients_proxy,
        "dependency": targets.dependency_proxy,
        "session-store": targets.session_store_proxy,
    }
    return proxies[between]


def _session_store(targets: InjectionTargets) -> SessionStore:
    if targets.session_store is None:
        raise UsageError("this fault acts on a session store", next_step="--session-store HOST:PORT of its Redis")
    return targets.session_store


def _at_router(
    fault: WeightsFault | CanaryFault | KillFault | EdgeRouteFault, router: AdminClient, undo: ExitStack
) -> None:
    match fault:
        case EdgeRouteFault(lifetime):
            _at_each((router,), "edge-route", {"lifetime": lifetime}, undo)
        case WeightsFault(weights, lifetime):
            _at_each((router,), "weights", {"weights": weights, "lifetime": lifetime}, undo)
        case CanaryFault(version, share, lifetime):
            _at_each((router,), "canary", {"version": version, "share": share, "lifetime": lifetime}, undo)
        case KillFault(replica):
            router.put("/faults/kill", {"replica": replica})


def _limit(fault: LimitFault, targets: InjectionTargets, undo: ExitStack) -> None:
    pids = targets.edge_pids if fault.on == "edge" else targets.pids
    if not pids:
        raise UsageError("this fault acts on a process", next_step="--pid N of the server")
    limit = cpu_quota if fault.of is LimitKind.CPU else memory_squeeze
    for pid in pids:
        undo.enter_context(limit(pid, fault.share, fault.lifetime))


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
