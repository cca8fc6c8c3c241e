"""A simulated server that works on several requests at a time and shares its speed equally among them."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable


class SharedServer:
    """At most `width` requests are in service; the others wait in order of arrival.

    `speed`: requests of mean size per second with so many in service. Times in seconds. In virtual time all requests in
    service progress equally fast, so that the order in which they are done is known when they begin.
    """

    def __init__(self, width: float, speed: Callable[[int], float]) -> None:
        self._width, self._speed = width, speed
        self._each: dict[int, float] = {}  # speed of each request by the number in service
        self._now = self._virtual = 0.0
        self._service: list[tuple[float, float]] = []  # virtual time at which it is done, time at which it arrived
        self._waiting: deque[tuple[float, float]] = deque()  # time at which it arrived, size

    def arrive(self, size: float) -> None:
        """A request arrives now. `size`: its work relative to the mean."""
        if len(self._service) < self._width:
            heapq.heappush(self._service, (self._virtual + size, self._now))
        else:
            self._waiting.append((self._now, size))

    def complete(self) -> float:
        """Goes on to the end of the next request; its latency."""
        self._now = self._next_done()
        self._virtual, arrived = heapq.heappop(self._service)
        if self._waiting:
            follows, size = self._waiting.popleft()
            heapq.heappush(self._service, (self._virtual + size, follows))
        return self._now - arrived

    def advance(self, until: float) -> list[float]:
        """Goes on to the time `until`, or to the end of all requests; the latencies of those done."""
        took = []
        while self._service and self._next_done() <= until:
            took.append(self.complete())
        if math.isfinite(until):
            if self._service:
                self._virtual += (until - self._now) * self._speed_of_each()
            self._now = until
        return took

    def _next_done(self) -> float:
        return self._now + (self._service[0][0] - self._virtual) / self._speed_of_each()

    def _speed_of_each(self) -> float:
        count = len(self._service)
        if count not in self._each:
            self._each[count] = self._speed(count) / count
        return self._each[count]
