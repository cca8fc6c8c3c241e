"""Load balancing: the router's configuration, and the policies that choose the replica for the next request."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import UsageError
from latdoctor.lab.server.edge_routing import EdgeRule
from latdoctor.lab.server.outlier_ejection import OutlierRule

GROUP = "router."  # prefix of the router's settings on the command line


class Policy(StrEnum):
    """How the router chooses a replica."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    WEIGHTED = "weighted"
    POWER_OF_TWO = "power-of-two"


Weight = Annotated[float, Meta(ge=0, le=1000)]


VersionName = Annotated[str, Meta(max_length=40, pattern=r"^[ -~]*$")]


class SplitBy(StrEnum):
    """What decides whether a request goes to the canary: each request by itself, or its session."""

    REQUEST = "request"
    SESSION = "session"


class RouterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The router's knobs, all of them live.

    `model_version`: of all replicas; empty: the one that they were started with. `canary_version`: of the last
    `canary_replicas` of them, which get `canary_share` of the requests; empty: no canary. With `canary_judge` the
    canary is promoted or rolled back by itself (`canary_controller`); slow is then what takes longer than
    `canary_slo_ms` (0: than nineteen of twenty answers of the other version). `outlier_…`: the rule of
    `outlier_ejection`, off by default. `edge_…`: the rule of `edge_routing`.
    """

    policy: Policy = Policy.LEAST_LOADED
    weights: dict[str, Weight] = {}  # by replica; 1 where none is given
    slow_start_ms: Annotated[float, Meta(ge=0, le=600_000)] = 10_000
    timeout_ms: Annotated[float, Meta(gt=0, le=600_000)] = 30_000  # of one request at one replica
    sticky: bool = False  # whether a session goes to the same replica for as long as that one is ready and not ejected
    outlier_failures: Annotated[int, Meta(ge=0, le=1000)] = 0  # in a row, that eject a replica; 0: never
    outlier_latency_ratio: Annotated[float, Meta(ge=0, le=1000)] = 0  # of its median to the others' that ejects it
    outlier_ejection_ms: Annotated[float, Meta(ge=1, le=600_000)] = 5000  # the first time; then it grows
    outlier_share: Annotated[float, Meta(ge=0, le=1)] = 0.5  # of the replicas that may be ejected at the same time
    edge_bypass: bool = False  # no request goes to the edge tier, where there is one
    edge_max_words: Annotated[int, Meta(ge=0, le=10_000)] = 12
    edge_max_chars: Annotated[int, Meta(ge=0, le=65_536)] = 160
    edge_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.6  # below it, the centre computes the request
    edge_max_in_flight: Annotated[int, Meta(ge=0, le=10_000)] = 4  # of a node; beyond, the centre is next; 0: any
    edge_timeout_ms: Annotated[float, Meta(gt=0, le=600_000)] = 200
    model_version: VersionName = ""
    canary_version: VersionName = ""
    canary_share: Annotated[float, Meta(ge=0, le=1)] = 0.1
    canary_by: SplitBy = SplitBy.REQUEST
    canary_replicas: Annotated[int, Meta(ge=1, le=1000)] = 1
    canary_judge: bool = False
    canary_slo_ms: Annotated[float, Meta(ge=0, le=600_000)] = 0
    probe_set: Annotated[str, Meta(max_length=4096)] = ""  # a file of texts and their intents: `probe_set`
    control: Literal["off", "observe", "on"] = "off"  # weights follow measured latency: `control.route_feedback`
    control_slo_ms: Annotated[float, Meta(gt=0, le=600_000)] = 500
    standby_replicas: Annotated[int, Meta(ge=0, le=1000)] = 0  # the last ones: drawn in when the latency rises

    @property
    def outlier_rule(self) -> OutlierRule:
        return OutlierRule(
            failures=self.outlier_failures,
            latency_ratio=self.outlier_latency_ratio,
            seconds=self.outlier_ejection_ms / 1000,
            share=self.outlier_share,
        )

    @property
    def edge_rule(self) -> EdgeRule:
        return EdgeRule(
            bypass=self.edge_bypass,
            max_words=self.edge_max_words,
            max_chars=self.edge_max_chars,
            confidence=self.edge_confidence,
            max_in_flight=self.edge_max_in_flight,
            seconds=self.edge_timeout_ms / 1000,
        )

    @property
    def by_session(self) -> bool:
        """Whether the session of a request matters."""
        return self.sticky or (self.canary_version != "" and self.canary_by is SplitBy.SESSION)


def patched_router_config(config: RouterConfig, changes: dict[str, Any]) -> RouterConfig:
    """`config` with some fields changed; weights are merged by replica. Raises UsageError."""
    whole = msgspec.to_builtins(config)
    weights = changes.get("weights", {})
    if not isinstance(weights, dict):
        raise UsageError("weights must be an object: replica → weight")
    merged = {name: weight for name, weight in {**whole["weights"], **weights}.items() if weight is not None}
    try:
        return msgspec.convert({**whole, **changes, "weights": merged}, RouterConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"the router's configuration is not valid: {error}") from error


def digest(value: Any) -> str:
    """Equal values have equal digests, for ETags."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def parse_router_settings(settings: Sequence[str]) -> tuple[RouterConfig, tuple[str, ...]]:
    """The router's configuration from the settings that begin with `router.`, and the others. Raises UsageError.

    Weights are written `router.weights=0:9,1:1`.
    """
    own: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name.startswith(GROUP):
            if not equals:
                raise UsageError(f"{setting!r} sets no knob", next_step=f"write {GROUP}KNOB=VALUE")
            knob = name.removeprefix(GROUP)
            own[knob] = _weights(value) if knob == "weights" else value
    try:
        config = msgspec.convert(own, RouterConfig, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the router's configuration is not valid: {error}") from error
    return config, tuple(setting for setting in settings if not setting.startswith(GROUP))


def _weights(text: str) -> dict[str, str]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(colon for _, colon, _ in pairs):
        raise UsageError(f"{text!r} are no weights", next_step=f"write {GROUP}weights=0:9,1:1")
    return {name.strip(): weight for name, _, weight in pairs}


LEAST_SHARE = 0.1


class Candidate(Struct, frozen=True):
    """A replica that may be chosen. Weight 0: only by `round-robin`."""

    name: str
    weight: float
    in_flight: int
    ready_for: float  # seconds


class Balancer(Protocol):
    def choose(self, candidates: Sequence[Candidate]) -> str | None:
        """The name of the replica for the next request, or None if there is no candidate."""


def slow_start_weight(weight: float, ready_for: float, slow_start: float) -> float:
    """The weight that counts for a replica that has been ready for so many seconds."""
    if slow_start <= 0 or ready_for >= slow_start:
        return weight
    return weight * max(LEAST_SHARE, ready_for / slow_start)


class _RoundRobin:
    """Smooth weighted round-robin: all gain their weight, the richest is chosen and pays for all."""

    def __init__(self, slow_start: float, *, by_weight: bool) -> None:
        self._slow_start = slow_start
        self._by_weight = by_weight
        self._credit: dict[str, float] = {}

    def choose(self, candidates: Sequence[Candidate]) -> str | None:
        weights = {
            one.name: slow_start_weight(one.weight if self._by_weight else 1.0, one.ready_for, self._slow_start)
            for one in candidates
        }
        # An absent replica loses its credit: when it returns, it must not be flooded with what it missed.
        credit = {name: self._credit.get(name, 0.0) + weight for name, weight in weights.items() if weight > 0}
        self._credit = credit
        if not credit:
            return None
        chosen = max(credit, key=lambda name: credit[name])
        credit[chosen] -= sum(weights.values())
        return chosen


class _LeastLoaded:
    def __init__(self, slow_start: float) -> None:
        self._slow_start = slow_start
        self._turn = 0
        self._last: dict[str, int] = {}

    def choose(self, candidates: Sequence[Candidate]) -> str | None:
        loads = {
            one.name: (one.in_flight + 1) / weight
            for one in candidates
            if (weight := slow_start_weight(one.weight, one.ready_for, self._slow_start)) > 0
        }
        if not loads:
            return None
        chosen = min(loads, key=lambda name: (loads[name], self._last.get(name, 0)))
        self._turn += 1
        self._last[chosen] = self._turn
        return chosen


class _PowerOfTwo:
    """The less loaded one of two that are drawn (Mitzenmacher 2001): nearly as even as the least loaded of all, and
    several routers, each with the loads that it knows, do not all choose the same one.
    """

    def __init__(self, slow_start: float) -> None:
        self._slow_start = slow_start
        self._source = random.Random(0)  # noqa: S311 - no secret

    def choose(self, candidates: Sequence[Candidate]) -> str | None:
        loads = {
            one.name: (one.in_flight + 1) / weight
            for one in candidates
            if (weight := slow_start_weight(one.weight, one.ready_for, self._slow_start)) > 0
        }
        drawn = self._source.sample(sorted(loads), min(2, len(loads)))
        return min(drawn, key=lambda name: loads[name], default=None)


def build(policy: Policy, slow_start: float) -> Balancer:
    """The balancer of that policy; `slow_start` in seconds, 0 for none."""
    if policy is Policy.POWER_OF_TWO:
        return _PowerOfTwo(slow_start)
    if policy is Policy.LEAST_LOADED:
        return _LeastLoaded(slow_start)
    return _RoundRobin(slow_start, by_weight=policy is Policy.WEIGHTED)


class CanarySplit:
    """Decides which requests go to the canary: exactly its share of the requests, or its share of the sessions."""

    def __init__(self) -> None:
        self._owed = 0.0

    def to_canary(self, config: RouterConfig, session: str | None) -> bool:
        """A request without a session counts by itself. A session stays where it is while the share does not change,
        and one that is in a small share is in a larger one too.
        """
        if config.canary_by is SplitBy.SESSION and session is not None:
            return _draw(session, config.canary_version) < config.canary_share
        self._owed += config.canary_share
        if self._owed < 1:
            return False
        self._owed -= 1
        return True


def sticky_replica(session: str, candidates: Sequence[Candidate]) -> str | None:
    """The one of `candidates` that a session belongs to, each with a share of all sessions as large as its weight.

    Weighted rendezvous hashing (Thaler and Ravishankar 1998; Schindelhauer and Schomaker 2005): when one leaves, only
    its sessions move, and they return with it. No slow start here: sessions would move twice.
    """
    scores = {one.name: -one.weight / math.log(_draw(session, one.name)) for one in candidates if one.weight > 0}
    return max(scores, key=lambda name: scores[name], default=None)


def _draw(session: str, name: str) -> float:
    """A number inside 0..1, the same in every process."""
    digest = hashlib.blake2b(f"{name}/{session}".encode(errors="replace"), digest_size=6).digest()
    return (int.from_bytes(digest) + 0.5) / (1 << 48)
