"""Load balancing policies: which replica gets the next request."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, get_args

from msgspec import Struct

PolicyName = Literal["round-robin", "least-loaded", "weighted"]


POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


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


class _InTurn:
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
        # Who is away loses its credit: a replica that comes back must not be flooded with what it missed.
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


_BUILDERS: dict[PolicyName, Callable[[float], Balancer]] = {
    "round-robin": lambda slow_start: _InTurn(slow_start, by_weight=False),
    "least-loaded": _LeastLoaded,
    "weighted": lambda slow_start: _InTurn(slow_start, by_weight=True),
}


def build(policy: PolicyName, slow_start: float) -> Balancer:
    """The rule of that name; `slow_start` in seconds, 0 for none."""
    return _BUILDERS[policy](slow_start)


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
