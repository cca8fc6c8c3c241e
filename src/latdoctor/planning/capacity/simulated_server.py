"""Simulated servers that work on several requests at a time: sharing their speed, or in batches."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

Speed = Callable[[int], float]  # requests of mean size per second with so many in service


class SimulatedServer(ABC):
    """At most `width` requests are in service; the others wait in order of arrival. Times in seconds."""

    def __init__(self, width: float, speed: Speed) -> None:
        self._width, self._speed = width, speed
        self._now = 0.0
        self._waiting: deque[tuple[float, float]] = deque()  # time of arrival, size

    def arrive(self, size: float) -> None:
        """A request arrives now. `size`: its work relative to the mean."""
        self._waiting.append((self._now, size))

    def advance(self, until: float) -> list[float]:
        """Goes on to the time `until`, or to the end of all requests; the latencies of those done."""
        took: list[float] = []
        while (done := self._next_done()) <= until and math.isfinite(done):
            took += self.complete()
        if math.isfinite(until):
            self._work(until - self._now)
            self._now = until
        return took

    @abstractmethod
    def complete(self) -> list[float]:
        """Goes on to the end of the next request or batch; the latencies of what is done."""

    @abstractmethod
    def _next_done(self) -> float:
        """The time at which the next request or batch is done, after what waits has begun; infinite without any."""

    @abstractmethod
    def _work(self, seconds: float) -> None:
        """Time passes in which nothing is done."""


class SharedServer(SimulatedServer):
    """All requests in service progress equally fast, and a free place is taken at once.

    Limited processor sharing (F. Zhang and L. Lipsky, Modelling Restricted Processor Sharing, 2006). In virtual time
    all progress alike, so that the order in which requests are done is known when they begin.
    """

    def __init__(self, width: float, speed: Speed) -> None:
        super().__init__(width, speed)
        self._each: dict[int, float] = {}  # speed of each request by the number in service
        self._virtual = 0.0
        self._service: list[tuple[float, float]] = []  # virtual time at which it is done, time of arrival

    def complete(self) -> list[float]:
        self._now = self._next_done()
        self._virtual, arrived = heapq.heappop(self._service)
        return [self._now - arrived]

    def _next_done(self) -> float:
        while self._waiting and len(self._service) < self._width:
            arrived, size = self._waiting.popleft()
            heapq.heappush(self._service, (self._virtual + size, arrived))
        if not self._service:
            return math.inf
        return self._now + (self._service[0][0] - self._virtual) / self._speed_of_each()

    def _work(self, seconds: float) -> None:
        if self._service:
            self._virtual += seconds * self._speed_of_each()

    def _speed_of_each(self) -> float:
        count = len(self._service)
        if count not in self._each:
            self._each[count] = self._speed(count) / count
        return self._each[count]


class BatchServer(SimulatedServer):
    """Takes what waits as a batch, whose requests are done together; who arrives meanwhile waits for the next."""

    def __init__(self, width: float, speed: Speed) -> None:
        super().__init__(width, speed)
        self._batch: list[float] = []  # times of arrival
        self._done = math.inf

    def complete(self) -> list[float]:
        self._now = self._next_done()
        took = [self._now - arrived for arrived in self._batch]
        self._batch, self._done = [], math.inf
        return took

    def _next_done(self) -> float:
        if not self._batch and self._waiting:
            work = 0.0
            while self._waiting and len(self._batch) < self._width:
                arrived, size = self._waiting.popleft()
                self._batch.append(arrived)
                work += size
            self._done = self._now + work / self._speed(len(self._batch))
        return self._done

    def _work(self, seconds: float) -> None:
        """A batch is done at a fixed time."""
