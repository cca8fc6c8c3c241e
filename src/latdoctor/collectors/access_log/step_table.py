"""Requests of a long log as sums for each step of time: what is kept of those too many to keep one by one.

Durations are counted in buckets that are 4.7 % wide, so a quantile of a step is that close. Where a log spans more than
MAX_STEPS steps (or as many as the caller wants), they double in width: memory depends on the number of steps, not of
requests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from latdoctor.collectors.access_log.entry import is_failure
from latdoctor.collectors.access_log.histogram import bin_of, quantile_of
from latdoctor.collectors.access_log.requests import REASONS, RequestColumns

MAX_STEPS = 7200


@dataclass(slots=True)
class Step:
    """Counts of the requests that ended in a step of time; `arrived` of those that came in it."""

    requests: int = 0
    arrived: int = 0
    known: int = 0  # with a status
    failed: int = 0
    durations: Counter[int] = field(default_factory=Counter)  # of answers, by bucket
    reasons: Counter[int] = field(default_factory=Counter)
    stages: dict[str, tuple[float, int]] = field(default_factory=dict)  # seconds and requests

    def add(self, other: Step) -> None:
        self.requests += other.requests
        self.arrived += other.arrived
        self.known += other.known
        self.failed += other.failed
        self.durations.update(other.durations)
        self.reasons.update(other.reasons)
        for name, (seconds, count) in other.stages.items():
            before = self.stages.get(name, (0.0, 0))
            self.stages[name] = before[0] + seconds, before[1] + count

    def latency(self, q: float) -> float:
        """The quantile of the durations, of which there is at least one."""
        return quantile_of(self.durations, q)


class StepTable:
    """Steps of one replica's requests by time. `width` in seconds; a step begins at a multiple of it."""

    def __init__(self, most: int | None = None) -> None:
        self.width = 1
        self._most = most or MAX_STEPS
        self.requests = 0
        self.first_line = 0
        self._steps: dict[int, Step] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, rows: RequestColumns) -> None:
        """Add requests, all of which have a time."""
        if len(rows) and not self.first_line:
            self.first_line = rows.number[0]
        self.requests += len(rows)
        for row, ended in enumerate(rows.ended):
            duration, status = rows.duration[row], rows.status[row]
            self._at(ended - max(0.0, duration)).arrived += 1
            step = self._at(ended)
            step.requests += 1
            if status >= 0:
                step.known += 1
                step.failed += is_failure(status)
            if rows.failure[row] >= 0:
                step.reasons[rows.failure[row]] += 1
            if duration >= 0 and rows.answered[row]:
                step.durations[bin_of(duration)] += 1
                for name in rows.stages:
                    if (seconds := rows.stage(name, row)) >= 0:
                        before = step.stages.get(name, (0.0, 0))
                        step.stages[name] = before[0] + seconds, before[1] + 1

    def _at(self, time: float) -> Step:
        place = int(time // self.width)
        found = self._steps.get(place)
        if found is None:
            if len(self._steps) >= self._most:
                self.widen(self.width * 2)
                return self._at(time)
            found = self._steps[place] = Step()
        return found

    def widen(self, width: int) -> None:
        """Join steps until they are `width` wide, a multiple of their width."""
        factor, self.width = width // self.width, width
        before, self._steps = self._steps, {}
        for place, step in before.items():
            self._steps.setdefault(place // factor, Step()).add(step)

    def steps(self) -> Iterator[tuple[float, Step]]:
        """Each step and its end, in the order of time."""
        for place in sorted(self._steps):
            yield (place + 1.0) * self.width, self._steps[place]

    @property
    def reasons(self) -> list[int]:
        """Of the failed requests: indexes of REASONS."""
        found = {place for step in self._steps.values() for place in step.reasons}
        return [place for place in range(len(REASONS)) if place in found]

    @property
    def start(self) -> float:
        """Where its first step begins; infinity without any."""
        return min(self._steps, default=math.inf) * self.width
