"""A load plan: phases with arrivals and request mixes, timeouts, retries, and the SLO."""

from __future__ import annotations

import hashlib
import re
import socket
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from latdoctor import strict_yaml
from latdoctor.errors import DefinitionError, OperationError, Problem, UsageError
from latdoctor.http.safe_address import is_loopback
from latdoctor.load.arrivals import Arrivals, PhaseSeconds, Population, Replay
from latdoctor.load.mix import MALFORMED, Conversations, Mix, RequestContent, draw
from latdoctor.load.users import Users

_CONNECT_S = 3.0


def check_address(address: str, *, remote: bool) -> None:
    """Raises UsageError for an invalid or (unless `remote`) remote address, OperationError where nothing listens."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError as error:
        raise UsageError(f"invalid address {address!r}: {error}") from error
    if parts.scheme != "http" or not host:
        raise UsageError(f"must be an http address, such as http://127.0.0.1:8080 (got {address!r})")
    if not remote and not is_loopback(host):
        raise UsageError(f"{host} is not this machine", next_step="add --allow-remote if its owner agrees to the load")
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise OperationError(
            f"nothing answers ({error.strerror or error})", where=address, next_step="latdoctor lab serve"
        ) from error


MAX_PHASES = 150


class LoadPhase(Struct, frozen=True, forbid_unknown_fields=True):
    """A period with one arrival process and one request mix. With `users`, the arrivals are those of users."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    seconds: PhaseSeconds
    arrivals: Arrivals
    mix: Mix = Mix()
    users: Users | None = None

    def __post_init__(self) -> None:
        if self.users is None and isinstance(self.arrivals, Population):
            raise ValueError("a population needs `users`")
        if self.users is not None and self.mix.sessions:
            raise ValueError("`mix.sessions` must be 0 with `users`: each user is a session")
        if self.users is not None and isinstance(self.arrivals, Replay) and self.arrivals.sessions:
            raise ValueError("recorded sessions cannot be those of `users`")


class RetryKind(StrEnum):
    """When a failed attempt is repeated."""

    NONE = "none"
    IMMEDIATE = "immediate"
    BACKOFF = "backoff"  # after a random time up to base·2ⁿ, and never less than the server's Retry-After


class RetryPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """The retry policy for refused, failed and timed-out requests.

    The backoff has full jitter (M. Brooker, Exponential Backoff and Jitter, 2015).
    """

    kind: RetryKind = RetryKind.NONE
    attempts: Annotated[int, Meta(ge=1, le=20)] = 3  # in all, the first included
    base_ms: Annotated[float, Meta(gt=0, le=60_000)] = 100.0
    max_ms: Annotated[float, Meta(gt=0, le=600_000)] = 5000.0


class LoadPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole run, fixed before it begins. Times are seconds unless the name says otherwise.

    `timeout_s`: of one attempt. `slo_s`: a response within this time is good. Requests of the first `warm_up_s` are
    sent but not measured. `max_in_flight` limits memory: requests beyond it count as not sent. `late_ms`: the lateness
    of the generator (P99) beyond which the run counts as spoiled.
    """

    phases: Annotated[tuple[LoadPhase, ...], Meta(min_length=1, max_length=MAX_PHASES)]
    seed: int = 0
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    slo_s: Annotated[float, Meta(gt=0, le=600)] = 0.5
    retry: RetryPolicy = RetryPolicy()
    warm_up_s: Annotated[float, Meta(ge=0, le=600)] = 0.0
    max_in_flight: Annotated[int, Meta(ge=1, le=20_000)] = 5000
    late_ms: Annotated[float, Meta(gt=0, le=10_000)] = 10.0

    def __post_init__(self) -> None:
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            raise ValueError("two phases have the same name")
        if self.warm_up_s >= self.seconds:
            raise ValueError("the warm-up is as long as the whole run")

    @property
    def seconds(self) -> float:
        """The length of the schedule; the last responses arrive after it."""
        return sum(phase.seconds for phase in self.phases)

    def starts(self) -> tuple[float, ...]:
        """The start of each phase, in seconds from the start of the run."""
        return tuple(sum(phase.seconds for phase in self.phases[:index]) for index in range(len(self.phases)))


def read(path: Path) -> LoadPlan:
    """Read the plan in a YAML or JSON file. Raises DefinitionError with the line of the problem."""
    node = strict_yaml.load(path)
    try:
        return msgspec.convert(node.plain(), LoadPlan, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        raise DefinitionError([Problem(_where(node, place.rstrip("`")), what)]) from error


def _where(node: strict_yaml.Node, place: str) -> str:
    """The line of the value with msgspec's path, such as `.phases[1].seconds`; of its parent where it is missing."""
    for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", place):
        child: strict_yaml.Node | None = None
        if key and isinstance(node.value, dict):
            child = node.value.get(key)
        elif index and isinstance(node.value, tuple):
            child = node.value[int(index)]
        if child is None:
            break
        node = child
    return node.where


MAX_REQUESTS = 500_000  # their records are in memory until the run ends


class PlannedRequest(Struct, frozen=True, gc=False):
    """A planned request: `at` in seconds from the start of the run, `phase` an index."""

    index: int
    at: float
    phase: int
    ask: RequestContent


def schedule(plan: LoadPlan) -> tuple[PlannedRequest, ...]:
    """Return the requests of `plan` by time, without those of users, which depend on the answers.

    Raises UsageError for none or more than MAX_REQUESTS. Times and contents have separate random generators, so another
    mix does not change the times.
    """
    expected = sum(expected_requests(phase) for phase in plan.phases)
    if expected > MAX_REQUESTS:
        raise UsageError(f"the plan has {expected:.0f} requests", next_step=f"plan at most {MAX_REQUESTS} per run")
    planned: list[PlannedRequest] = []
    conversations = Conversations()  # continued across phases
    for number, (phase, start) in enumerate(zip(plan.phases, plan.starts(), strict=True)):
        if phase.users is not None:
            continue
        instants = phase.arrivals.times(phase.seconds, generator(plan.seed, f"{number}/arrivals"))
        contents = generator(plan.seed, f"{number}/mix")
        for row, at in enumerate(instants):
            ask = _recorded(phase, row, draw(phase.mix, contents))
            planned.append(PlannedRequest(len(planned), start + at, number, conversations.joined(ask)))
    if not planned and not any(phase.users for phase in plan.phases):
        raise UsageError("the plan has no requests", next_step="use a higher rate or a longer time")
    return tuple(planned)


def expected_requests(phase: LoadPhase) -> float:
    """The expected number of requests; of a population, those of the first session of each user."""
    return phase.arrivals.expected(phase.seconds) * (phase.users.turns.mean if phase.users else 1.0)


def _recorded(phase: LoadPhase, row: int, ask: RequestContent) -> RequestContent:
    """`ask` with what the recording of a replay has of its request `row`."""
    if not isinstance(phase.arrivals, Replay) or ask.kind == MALFORMED:
        return ask
    if phase.arrivals.tokens and (tokens := phase.arrivals.tokens[row]):
        size = "long" if tokens >= phase.mix.long_tokens[0] else "short"
        ask = msgspec.structs.replace(ask, tokens=tokens, kind=f"{size}-{ask.kind.partition('-')[2]}")
    if phase.arrivals.sessions:
        session = phase.arrivals.sessions[row]
        ask = msgspec.structs.replace(ask, session=session if session >= 0 else None)
    return ask


def generator(seed: int, purpose: str) -> Random:
    """Return a random generator for one purpose; every Python hashes text seeds the same way."""
    return Random(f"{seed}/{purpose}")  # noqa: S311  # a repeatable schedule, no secret


def digest(planned: tuple[PlannedRequest, ...]) -> str:
    """A digest of the schedule, to prove that two runs offered the same load."""
    return hashlib.sha256(msgspec.json.encode(planned)).hexdigest()[:16]


def plan_digest(plan: LoadPlan, planned: tuple[PlannedRequest, ...]) -> str:
    """The digest of what is fixed before the run: the schedule, and how users are drawn, if there are any."""
    if not any(phase.users for phase in plan.phases):
        return digest(planned)
    return hashlib.sha256(msgspec.json.encode((planned, plan.phases, plan.seed))).hexdigest()[:16]
