"""Distributions of a quantity of a load: turns of a session, times to think, patience, lengths."""

from __future__ import annotations

import math
from random import Random
from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0, le=1e6)]
NotNegative = Annotated[float, Meta(ge=0, le=1e6)]
MOST_QUANTILES = 101


class ConstantValue(Struct, frozen=True, forbid_unknown_fields=True, tag="constant", tag_field="kind"):
    """Always `value`."""

    value: NotNegative

    @property
    def mean(self) -> float:
        return self.value

    def draw(self, rng: Random) -> float:
        rng.random()  # as many numbers as the others, so that another kind changes nothing else of a user
        return self.value


class Exponential(Struct, frozen=True, forbid_unknown_fields=True, tag="exponential", tag_field="kind"):
    """Without memory: what is left does not depend on the time so far."""

    mean: Positive

    def draw(self, rng: Random) -> float:
        return -self.mean * math.log1p(-rng.random())


class LogNormal(Struct, frozen=True, forbid_unknown_fields=True, tag="lognormal", tag_field="kind"):
    """The logarithm is normal with the standard deviation `sigma`: usual for the times that people take."""

    median: Positive
    sigma: Annotated[float, Meta(ge=0, le=5)]

    @property
    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)

    def draw(self, rng: Random) -> float:
        return self.median * math.exp(self.sigma * _normal(rng.random()))


class Geometric(Struct, frozen=True, forbid_unknown_fields=True, tag="geometric", tag_field="kind"):
    """1, 2, 3 …: after each the same probability to end."""

    mean: Annotated[float, Meta(ge=1, le=1e6)]

    def draw(self, rng: Random) -> float:
        chance = rng.random()
        if self.mean <= 1:
            return 1.0
        return 1.0 + math.floor(math.log1p(-chance) / math.log1p(-1 / self.mean))


class Quantiles(Struct, frozen=True, forbid_unknown_fields=True, tag="quantiles", tag_field="kind"):
    """Quantiles at equal steps of probability, from the least value to the largest; linear between them."""

    at: Annotated[tuple[NotNegative, ...], Meta(min_length=2, max_length=MOST_QUANTILES)]

    def __post_init__(self) -> None:
        if list(self.at) != sorted(self.at):
            raise ValueError("quantiles must not decrease")

    @property
    def mean(self) -> float:
        return (sum(self.at) - (self.at[0] + self.at[-1]) / 2) / (len(self.at) - 1)

    def draw(self, rng: Random) -> float:
        return self.value(rng.random())

    def value(self, probability: float) -> float:
        """The quantile of `probability` in [0, 1)."""
        place = probability * (len(self.at) - 1)
        index = int(place)
        low, high = self.at[index], self.at[index + 1]
        return low + (place - index) * (high - low)


Distribution = ConstantValue | Exponential | LogNormal | Geometric | Quantiles


def _normal(probability: float) -> float:
    """The quantile of the normal distribution."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(min(max(probability, 1e-15), 1 - 1e-15))
