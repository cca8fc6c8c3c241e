"""Fault definitions. All faults are real and end by themselves after their lifetime.

`configure` turns knobs of the server, `agent` disturbs a stage inside it, `neighbour` starts processes that take the
machine's processors or its disk, `network` spoils a connection, `limit` keeps the server short of something, `weights`
sends one replica too much, `kill` ends a replica, `restart` starts the server anew."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from latdoctor.lab.faults.toxics import Toxic

Lifetime = Annotated[float, Meta(gt=0, le=3600)]  # seconds; what was injected removes itself after that


Knobs = dict[str, dict[str, Any]]


class ConfigureFault(Struct, frozen=True, forbid_unknown_fields=True, tag="configure", tag_field="kind"):
    """Live knobs changed, and restored at the end unless another client has changed them since.

    `only`: of this one of several replicas, counted from 0.
    """

    knobs: Knobs
    lifetime: Lifetime = 60.0
    only: Annotated[int, Meta(ge=0, le=31)] | None = None


class AgentFault(Struct, frozen=True, forbid_unknown_fields=True, tag="agent", tag_field="kind"):
    """A disturbance inside the server's process, by its name in the fault agent; `strength` in that one's unit."""

    name: Literal[
        "loop-block",
        "gc-pauses",
        "lock-convoy",
        "slow-preprocess",
        "fsync",
        "leak",
        "fragment",
        "hoard",
    ]
    strength: Annotated[float, Meta(gt=0, le=10_000)] = 1.0
    lifetime: Lifetime = 60.0


class NeighborFault(Struct, frozen=True, forbid_unknown_fields=True, tag="neighbour", tag_field="kind"):
    """Other processes on the machine: `cpu` burns, `io` writes and syncs."""

    takes: Literal["cpu", "io"]
    processes: Annotated[int, Meta(ge=1, le=16)] = 2
    lifetime: Lifetime = 60.0


class NetworkFault(Struct, frozen=True, forbid_unknown_fields=True, tag="network", tag_field="kind"):
    """A toxic on the way from the clients to the server, or from the server to its dependency."""

    between: Literal["clients", "dependency"]
    toxic: Toxic


class LimitFault(Struct, frozen=True, forbid_unknown_fields=True, tag="limit", tag_field="kind"):
    """What the server's process may use: `cpu`: so many processors; `memory`: this share of its mapped file pages."""

    of: Literal["cpu", "memory"]
    share: Annotated[float, Meta(gt=0, le=16)]
    lifetime: Lifetime = 60.0


class WeightsFault(Struct, frozen=True, forbid_unknown_fields=True, tag="weights", tag_field="kind"):
    """What the router sends to each replica."""

    weights: dict[str, Annotated[float, Meta(ge=0, le=1000)]]
    lifetime: Lifetime = 60.0


class KillFault(Struct, frozen=True, forbid_unknown_fields=True, tag="kill", tag_field="kind"):
    """SIGKILL for a replica, as when the machine's memory ran out; its supervisor starts another."""

    replica: str = "0"


class RestartFault(Struct, frozen=True, forbid_unknown_fields=True, tag="restart", tag_field="kind"):
    """The server's process ended and started anew, with these knobs put in."""

    knobs: Knobs = {}


Fault = (
    ConfigureFault | AgentFault | NeighborFault | NetworkFault | LimitFault | WeightsFault | KillFault | RestartFault
)
