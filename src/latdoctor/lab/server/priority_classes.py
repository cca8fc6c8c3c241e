"""Priority classes with quotas: who is computed, who waits and who is refused when there is not room for all.

Pure decisions. A request needs a seat to be computed, and waits for one in a place. Each class has a share of both, and
lends what it does not use, as in the API Priority and Fairness of Kubernetes: a seat that gets free goes to the waiting
class that has the least of its share, and a class that waits within its share takes the place of the newest request of
the class that is farthest over its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct


class Entry(StrEnum):
    """What happens to a request that comes in."""

    SEATED = "seated"
    WAITING = "waiting"
    REFUSED = "refused"


class ClassRule(Struct, frozen=True):
    """`shares` by class, together at most 1, of the `seats` of requests in the engine and of the `places` before it."""

    shares: Mapping[str, float]
    seats: int
    places: int


class ClassQuotas:
    """The requests of all classes, by a number that the caller gives each of them. Used on one thread."""

    def __init__(self, rule: ClassRule) -> None:
        self._rule = rule
        self._seated: dict[int, str] = {}
        self._waiting: dict[str, deque[int]] = {}

    def enter(self, name: str, request: int) -> tuple[Entry, int | None]:
        """What happens to the request, and another one that loses its place for it."""
        if len(self._seated) < self._rule.seats:
            self._seated[request] = name
            return Entry.SEATED, None
        if self.waiting_in_all < self._rule.places:
            self._line(name).append(request)
            return Entry.WAITING, None
        if self.waiting(name) >= self._quota(name):
            return Entry.REFUSED, None
        over = [other for other in self._waiting if self.waiting(other) > self._quota(other)]
        if not over:
            return Entry.REFUSED, None
        farthest = max(over, key=lambda other: (self.waiting(other) - self._quota(other), other))
        displaced = self._waiting[farthest].pop()
        self._line(name).append(request)
        return Entry.WAITING, displaced

    def leave(self, request: int) -> Sequence[int]:
        """The request is answered, or its client has gone; the requests that get a seat now."""
        if self._seated.pop(request, None) is None:
            for line in self._waiting.values():
                if request in line:
                    line.remove(request)
        return self._fill()

    def configure(self, rule: ClassRule) -> Sequence[int]:
        """Applies another rule to what comes; the requests that get a seat now. None loses its seat or its place."""
        self._rule = rule
        return self._fill()

    def seated(self, name: str) -> int:
        return Counter(self._seated.values())[name]

    def waiting(self, name: str) -> int:
        return len(self._waiting.get(name, ()))

    @property
    def waiting_in_all(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _fill(self) -> Sequence[int]:
        found = []
        while len(self._seated) < self._rule.seats and self.waiting_in_all:
            seated = Counter(self._seated.values())
            name = min(
                (one for one, line in self._waiting.items() if line),
                key=lambda one: (seated[one] / (self._rule.shares.get(one, 0.0) or 1e-9), self._waiting[one][0]),
            )
            request = self._waiting[name].popleft()
            self._seated[request] = name
            found.append(request)
        return found

    def _line(self, name: str) -> deque[int]:
        return self._waiting.setdefault(name, deque())

    def _quota(self, name: str) -> int:
        """The places that the class has for itself."""
        return int(self._rule.shares.get(name, 0.0) * self._rule.places + 1e-9)
