"""What a rule found per subject, or why it found nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from latdoctor.evidence.model import Bucket

NOTHING_COUNTED = "counted nothing"  # in the reason of a Trouble and of its Gap: there was nothing to measure


class Trouble(Struct, frozen=True):
    """Why a value that the page should give cannot be used. `unused` means that there was nothing to measure."""

    reason: str
    unused: bool = False
    next_step: str = ""


class Histogram(Struct, frozen=True):
    """Observations per bucket within the window, in the page's own unit, and their sum where it is known."""

    buckets: tuple[Bucket, ...]
    total: float | None

    @property
    def count(self) -> float:
        return sum(bucket.count for bucket in self.buckets)


class Found(Struct, frozen=True):
    """A value in base units, or a text, or a histogram; `place` names the samples that it came from.

    `first` and `last` are the pages that had it; negative numbers count from the end.
    """

    value: float | str | Histogram
    place: str
    note: str = ""
    first: int = 0
    last: int = -1

    @property
    def is_finite(self) -> bool:
        """Sums of huge numbers may overflow, which is no value either."""
        if isinstance(self.value, Histogram):
            return math.isfinite(self.value.count)
        return isinstance(self.value, str) or math.isfinite(self.value)


class Missing(Struct, frozen=True):
    """The pages have none of the samples that the rule reads."""

    names: tuple[str, ...]


# By subject; None stands for all of them.
Outcome = Mapping[str | None, Found | Trouble]


def notes(*parts: str) -> str:
    """The parts that say something, as one note."""
    return "; ".join(part for part in parts if part)
