"""Latency distributions: mergeable HDR histograms, and nearest-rank quantiles."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from hdrh.codec import HdrCookieException, HdrLengthException  # type: ignore[import-untyped]
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from latdoctor.errors import SourceError

_LOWEST, _HIGHEST, _DIGITS = 1, 3_600_000_000, 3  # microseconds
_MAX_TEXT = 1 << 20
_REFUSALS = (HdrCookieException, HdrLengthException)


class Latencies:
    """A distribution of times in seconds, capped at one hour."""

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        self._counts = HdrHistogram(_LOWEST, _HIGHEST, _DIGITS)
        for value in seconds:
            self._counts.record_value(min(_HIGHEST, max(_LOWEST, round(value * 1e6))))

    def add(self, counts: HdrHistogram) -> None:
        """Add the counts of another histogram. Raises ValueError if its buckets differ."""
        settings = (counts.lowest_trackable_value, counts.highest_trackable_value, counts.significant_figures)
        if settings != (_LOWEST, _HIGHEST, _DIGITS):
            raise ValueError(f"its range and digits are {settings}")
        self._counts.add(counts)

    @property
    def count(self) -> int:
        return int(self._counts.get_total_count())

    @property
    def longest(self) -> float | None:
        """Seconds, within three digits; None without values."""
        return self._counts.get_max_value() / 1e6 if self.count else None

    def percentile(self, percent: float) -> float | None:
        """Seconds, within three digits, by nearest rank as in `quantile`; None without values."""
        if not self.count:
            return None
        # The library rounds a rank to the nearest, `quantile` rounds up; an integer rank is exact.
        whole = 100 * rank(self.count, percent / 100) / self.count
        return float(self._counts.get_value_at_percentile(whole) / 1e6)

    def values(self) -> Iterator[float]:
        """All values in ascending order, within three digits. Seconds."""
        for one in self._counts.get_recorded_iterator():
            yield from repeat(one.value_iterated_to / 1e6, one.count_added_in_this_iter_step)

    def encoded(self) -> str:
        """Encode it for any HdrHistogram library (V2, compressed, base64)."""
        return str(self._counts.encode().decode("ascii"))


def merged(texts: Iterable[str]) -> Latencies:
    """Merge encoded histograms. Raises SourceError for an invalid one."""
    whole = Latencies()
    for text in texts:
        if len(text) > _MAX_TEXT:
            raise SourceError(f"a histogram of more than {_MAX_TEXT} characters")
        try:
            whole.add(HdrHistogram.decode(text.encode("ascii")))
        except (*_REFUSALS, ValueError, RuntimeError, IndexError, zlib.error) as error:
            raise SourceError(f"not a histogram of latencies ({error})") from error
    return whole


def rank(count: int, share: float) -> int:
    """The rank (from 1) of the smallest of `count` values that `share` of them do not exceed."""
    return max(1, math.ceil(round(count * share, 9)))  # 0.07 · 100 is 7.000000000000001 in floating point


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that `share` of all do not exceed (nearest rank); None without values."""
    return ordered[rank(len(ordered), share) - 1] if ordered else None
