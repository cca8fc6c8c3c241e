"""What can be made to go wrong, as values: each names where it acts; all act for real.

`configure` turns a knob of the server, `agent` asks the fault agent inside the server to disturb a stage, `neighbour`
starts processes that take the machine's processors, memory or disk, `kill` ends a worker.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class Configure(Struct, frozen=True, forbid_unknown_fields=True, tag="configure", tag_field="kind"):
    """Knobs turned for the phase, and turned back after it."""

    knobs: dict[str, dict[str, Any]]


class Agent(Struct, frozen=True, forbid_unknown_fields=True, tag="agent", tag_field="kind"):
    """A disturbance inside the server's process, by its name in `agent.py`; `strength` in that one's unit."""

    name: Literal["loop-block", "gc-pauses", "lock-convoy", "slow-preprocess", "fsync", "leak"]
    strength: Annotated[float, Meta(gt=0, le=10_000)] = 1.0
    lifetime: Annotated[float, Meta(gt=0, le=3600)] = 60.0  # seconds; it removes itself after that


class Neighbour(Struct, frozen=True, forbid_unknown_fields=True, tag="neighbour", tag_field="kind"):
    """Other processes on the machine: `cpu` burns, `io` writes and syncs."""

    takes: Literal["cpu", "io"]
    processes: Annotated[int, Meta(ge=1, le=16)] = 2
    lifetime: Annotated[float, Meta(gt=0, le=3600)] = 60.0


class Kill(Struct, frozen=True, forbid_unknown_fields=True, tag="kill", tag_field="kind"):
    """SIGKILL for the server's process, as when the machine's memory ran out."""


Fault = Configure | Agent | Neighbour | Kill
