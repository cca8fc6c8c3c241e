"""Arrival processes: each yields the times of its requests, in seconds from the start of its phase.

All but `Replay` and `Population` rescale the time of a process of unit rate by the inverse of the expected number of
arrivals (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 7.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Annotated

from msgspec import Meta, Struct

from latdoctor.load.distributions import Quantiles

Rate = Annotated[float, Meta(gt=0, le=10_000)]  # requests per second
RateOrNone = Annotated[float, Meta(ge=0, le=10_000)]
PhaseSeconds = Annotated[float, Meta(gt=0, le=86_400)]  # seconds


class Constant(Struct, frozen=True, forbid_unknown_fields=True, tag="constant", tag_field="kind"):
    """Evenly spaced; the first at time 0."""

    rate: Rate

    def expected(self, seconds: float) -> float:
        return self.rate * seconds

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        count = math.ceil(self.expected(seconds))
        yield from _below(seconds, (index / self.rate for index in range(count)))


class Poisson(Struct, frozen=True, forbid_unknown_fields=True, tag="poisson", tag_field="kind"):
    """Independent users: exponential gaps."""

    rate: Rate

    def expected(self, seconds: float) -> float:
        return self.rate * seconds

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        steps = _cumulated(lambda: rng.expovariate(1))
        yield from _below(seconds, (step / self.rate for step in steps))


class Gamma(Struct, frozen=True, forbid_unknown_fields=True, tag="gamma", tag_field="kind"):
    """Gamma gaps: `cv` is their coefficient of variation; 1 is Poisson, above 1 is bursty."""

    rate: Rate
    cv: Annotated[float, Meta(ge=0.05, le=20)] = 1.0

    def expected(self, seconds: float) -> float:
        return self.rate * seconds

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        shape = 1 / self.cv**2  # a gamma of mean 1 has the variance 1/shape
        steps = _cumulated(lambda: rng.gammavariate(shape, 1 / shape))
        yield from _below(seconds, (step / self.rate for step in steps))


class Renewal(Struct, frozen=True, forbid_unknown_fields=True, tag="renewal", tag_field="kind"):
    """Independent gaps with the shape of `gaps`; `rate` alone says how long they are."""

    rate: Rate
    gaps: Quantiles

    def __post_init__(self) -> None:
        if self.gaps.mean <= 0:
            raise ValueError("all gaps are 0")

    def expected(self, seconds: float) -> float:
        return self.rate * seconds

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        unit = self.gaps.mean * self.rate
        steps = _cumulated(lambda: self.gaps.draw(rng))
        yield from _below(seconds, (step / unit for step in steps))


class OnOff(Struct, frozen=True, forbid_unknown_fields=True, tag="on-off", tag_field="kind"):
    """Bursts: Poisson arrivals at `on_rate` for `on_s`, then at `off_rate` for `off_s`, repeated.

    The first burst begins after `start_s` at `off_rate`.
    """

    on_rate: Rate
    on_s: PhaseSeconds
    off_s: PhaseSeconds
    off_rate: RateOrNone = 0.0
    start_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0

    def expected(self, seconds: float) -> float:
        calm = min(seconds, self.start_s)
        cycles, rest = divmod(seconds - calm, self.on_s + self.off_s)
        on = cycles * self.on_s + min(rest, self.on_s)
        return on * self.on_rate + (seconds - on) * self.off_rate

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        steps = _cumulated(lambda: rng.expovariate(1))
        yield from _below(seconds, (self._instant(step) for step in steps))

    def _instant(self, step: float) -> float:
        calm = self.start_s * self.off_rate
        if step < calm:
            return step / self.off_rate
        burst = self.on_s * self.on_rate
        cycles, rest = divmod(step - calm, burst + self.off_s * self.off_rate)
        start = self.start_s + cycles * (self.on_s + self.off_s)
        if rest < burst:
            return start + rest / self.on_rate
        return start + self.on_s + (rest - burst) / self.off_rate


class Ramp(Struct, frozen=True, forbid_unknown_fields=True, tag="ramp", tag_field="kind"):
    """Poisson arrivals with a rate that changes linearly over the phase."""

    from_rate: RateOrNone
    to_rate: RateOrNone

    def expected(self, seconds: float) -> float:
        return (self.from_rate + self.to_rate) / 2 * seconds

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        slope = (self.to_rate - self.from_rate) / seconds
        whole = self.expected(seconds)
        for step in _cumulated(lambda: rng.expovariate(1)):
            if step >= whole:
                return
            # The positive root of from·t + slope·t²/2 = step, in the form that is also valid for a slope of zero.
            root = math.sqrt(max(0.0, self.from_rate**2 + 2 * slope * step))
            yield min(2 * step / (self.from_rate + root), math.nextafter(seconds, 0))


class Replay(Struct, frozen=True, forbid_unknown_fields=True, tag="replay", tag_field="kind"):
    """Recorded arrival times, in seconds from the first; `speed` 2 replays them twice as fast.

    `sessions` (-1: none) and `tokens` (0: unknown) are those of the same recorded requests, where the recording has
    them; the mix supplies the rest. Turns are sent at their recorded times, whatever the answers to those before.
    """

    at: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(min_length=1, max_length=500_000)]
    speed: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    sessions: tuple[Annotated[int, Meta(ge=-1, le=1_000_000)], ...] = ()
    tokens: tuple[Annotated[int, Meta(ge=0, le=100_000)], ...] = ()

    def __post_init__(self) -> None:
        for column in (self.sessions, self.tokens):
            if column and len(column) != len(self.at):
                raise ValueError(f"{len(column)} values for {len(self.at)} recorded requests")
        if (self.sessions or self.tokens) and list(self.at) != sorted(self.at):
            raise ValueError("recorded requests must be in the order of their times")

    def expected(self, seconds: float) -> float:
        return float(sum(1 for time in self.at if time / self.speed < seconds))

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        yield from _below(seconds, (time / self.speed for time in sorted(self.at)))


class Population(Struct, frozen=True, forbid_unknown_fields=True, tag="population", tag_field="kind"):
    """A closed population of `size` users, who begin evenly over `ramp_s` seconds; only for a phase with `users`.

    A user who ends a session is followed by a new one, so the number of users, not the rate, is constant.
    """

    size: Annotated[int, Meta(ge=1, le=20_000)]
    ramp_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0

    def expected(self, seconds: float) -> float:
        return float(sum(1 for _ in self._starts(seconds)))

    def times(self, seconds: float, rng: Random) -> Iterator[float]:
        yield from self._starts(seconds)

    def _starts(self, seconds: float) -> Iterator[float]:
        return _below(seconds, (index * self.ramp_s / self.size for index in range(self.size)))


Arrivals = Constant | Poisson | Gamma | Renewal | OnOff | Ramp | Replay | Population


def _cumulated(gap: Callable[[], float]) -> Iterator[float]:
    total = 0.0
    while True:
        total += gap()
        yield total


def _below(seconds: float, times: Iterator[float]) -> Iterator[float]:
    for time in times:
        if time >= seconds:
            return
        yield time
