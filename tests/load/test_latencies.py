"""Histograms: three digits, and merging that loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import SourceError
from latdoctor.load.latencies import Latencies, merged, quantile, rank

TIMES = st.lists(st.floats(1e-6, 3600), max_size=60)


@settings(max_examples=40)
@given(parts=st.lists(TIMES, max_size=5))
def test_merging_parts_gives_the_histogram_of_the_whole(parts: list[list[float]]) -> None:
    whole = Latencies(value for part in parts for value in part)
    again = merged(Latencies(part).encoded() for part in parts)
    assert again.encoded() == whole.encoded()
    assert again.count == sum(map(len, parts))
    assert again.longest == whole.longest
    for percent in (0, 50, 95, 99, 100):
        assert again.percentile(percent) == whole.percentile(percent)


@given(times=st.lists(st.floats(1e-6, 3600), min_size=1, max_size=60), percent=st.sampled_from([50, 95, 99, 100]))
def test_percentiles_are_right_to_three_digits(times: list[float], percent: float) -> None:
    exact = quantile(sorted(times), percent / 100)
    assert Latencies(times).percentile(percent) == pytest.approx(exact, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(1, 0.5, 1), (100, 0.07, 7), (13, 0.95, 13), (100, 0.99, 99), (101, 0.99, 100)]
)
def test_ranks_are_rounded_up_and_not_by_a_rounding_error(count: int, share: float, expected: int) -> None:
    assert rank(count, share) == expected
    assert quantile([float(value) for value in range(1, count + 1)], share) == expected


def test_nothing_has_no_percentile_and_hours_are_one_hour() -> None:
    assert (Latencies().percentile(99), Latencies().longest, Latencies().count) == (None, None, 0)
    assert merged([]).count == 0
    assert Latencies([0.0, 1e9]).longest == pytest.approx(3600, rel=1e-3)


@pytest.mark.parametrize(
    "text", ["", "no histogram", "é", "HISTFAAAAAA=", Latencies([1.0]).encoded()[:-12], "A" * (1 << 21)]
)
def test_what_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(SourceError):
        merged([text])


def test_other_buckets_are_refused() -> None:
    from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]  # it ships no types

    with pytest.raises(SourceError):
        merged([HdrHistogram(1, 1000, 2).encode().decode()])
