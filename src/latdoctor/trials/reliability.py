"""How far a stated probability can be believed: Brier score, log loss, calibration error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

BINS = 10
_LEAST = 5  # statements in a bin
_CLIP = 1e-4  # a probability is stated with four digits


class Stated(Struct, frozen=True):
    """The probability of the top cause, and whether it was right."""

    probability: float
    right: bool


class Bin(Struct, frozen=True):
    """Statements of about the same probability: how sure they were on average, and how often right."""

    of: int
    probability: float
    right: float


def brier(stated: Sequence[Stated]) -> float:
    """Mean squared distance of the probability from what came true (Brier 1950)."""
    return sum((one.probability - one.right) ** 2 for one in stated) / len(stated)


def log_loss(stated: Sequence[Stated]) -> float:
    """Mean −ln of the probability that was given to what came true."""
    total = 0.0
    for one in stated:
        p = min(1 - _CLIP, max(_CLIP, one.probability))
        total -= math.log(p if one.right else 1 - p)
    return total / len(stated)


def bins(stated: Sequence[Stated], most: int = BINS) -> tuple[Bin, ...]:
    """Bins of equal mass: equally many statements in each, ten at most and none of fewer than five.

    Bins of equal width are nearly all empty where most statements are sure (Nixon et al. 2019).
    """
    ordered = sorted(stated, key=lambda one: (one.probability, one.right))
    count = max(1, min(most, len(ordered) // _LEAST))
    edges = [round(number * len(ordered) / count) for number in range(count + 1)]
    parts = [ordered[low:high] for low, high in pairwise(edges) if high > low]
    return tuple(
        Bin(len(part), sum(one.probability for one in part) / len(part), sum(one.right for one in part) / len(part))
        for part in parts
    )


def ece(stated: Sequence[Stated]) -> float:
    """The expected calibration error: how far sureness and rightness are apart, on average over the bins."""
    return sum(one.of * abs(one.probability - one.right) for one in bins(stated)) / len(stated)
