"""Quantiles and means out of distributions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.detectors.quantiles import quantile, quantiles
from latdoctor.evidence.model import AT_MOST, Bucket, Distribution, Evidence, Gap, Origin, Reading, Window

ORIGIN = Origin("server/last.prom", "vllm:e2e_request_latency_seconds")
PLACES = (Bucket(0.0, 0.1, 50), Bucket(0.1, 0.3, 100), Bucket(0.3, 0.5, 48), Bucket(0.5, math.inf, 2))


def latency(*buckets: Bucket, total: float | None = None, signal: str = "latency", note: str = "") -> Distribution:
    return Distribution(signal, "model/m", buckets, ORIGIN, total, Window(10.0, 20.0), note=note)


def derived(
    *distributions: Distribution, readings: tuple[Reading, ...] = ()
) -> tuple[dict[str, Reading], tuple[Gap, ...]]:
    found = quantiles(Evidence(distributions=distributions, readings=readings))
    return {reading.signal: reading for reading in found.readings}, found.gaps


def test_interpolates_inside_the_bucket_and_names_it() -> None:
    found, gaps = derived(latency(*PLACES, total=44.0))
    assert not gaps
    assert found["latency.p50"].value == pytest.approx(0.2)
    assert found["latency.p50"].note == "interpolated in the bucket 100 ms–300 ms, of 200 observations"
    assert found["latency.p95"].value == pytest.approx(0.3 + 0.2 * 40 / 48)
    assert found["latency.mean"].value == pytest.approx(0.22)
    one = found["latency.p99"]
    assert (one.subject, one.window, one.labels) == ("model/m", Window(10.0, 20.0), ())
    assert one.origin == Origin("server/last.prom", "vllm:e2e_request_latency_seconds, p99")


def test_above_the_highest_bound_only_that_bound_is_known() -> None:
    found, _ = derived(latency(Bucket(0, 0.5, 100), Bucket(0.5, math.inf, 100)))
    assert (found["latency.p99"].value, found["latency.p99"].bound) == (math.nextafter(0.5, 1), "at least")
    assert found["latency.p99"].note == "above the highest bound 500 ms, of 200 observations"
    assert found["latency.p50"].bound == "", "that one lies in a bucket"


def test_below_the_lowest_bound_only_that_bound_is_known() -> None:
    found, _ = derived(latency(Bucket(-math.inf, 0.5, 100)))
    assert (found["latency.p50"].value, found["latency.p50"].bound) == (0.5, "at most")
    assert found["latency.p50"].note == "below the lowest bound 500 ms, of 100 observations"


def test_without_any_bound_there_is_no_quantile() -> None:
    found, gaps = derived(latency(Bucket(-math.inf, math.inf, 100), total=20.0))
    assert found.keys() == {"latency.mean"}
    assert {signal for gap in gaps for signal in gap.signals} == {"latency.p50", "latency.p95", "latency.p99"}


def test_exact_buckets_give_exact_values() -> None:
    found, _ = derived(latency(Bucket(1, 1, 60), Bucket(5, 5, 140), signal="batch.size"))
    assert found["batch.size.p50"].value == 5
    assert found["batch.size.mean"].value == pytest.approx(3.8)
    assert found["batch.size.mean"].note == "of 200 observations"


@pytest.mark.parametrize(
    ("count", "given_", "hidden"),
    [
        (2, {"latency.mean"}, {"latency.p50", "latency.p95", "latency.p99"}),
        (3, {"latency.mean", "latency.p50"}, {"latency.p95", "latency.p99"}),
        (19, {"latency.mean", "latency.p50"}, {"latency.p95", "latency.p99"}),
        (20, {"latency.mean", "latency.p50", "latency.p95"}, {"latency.p99"}),
        (99, {"latency.mean", "latency.p50", "latency.p95"}, {"latency.p99"}),
        (100, {"latency.mean", "latency.p50", "latency.p95", "latency.p99"}, set()),
    ],
)
def test_few_observations_give_no_high_quantile(count: float, given_: set[str], hidden: set[str]) -> None:
    found, gaps = derived(latency(Bucket(0, 1, count)))
    assert found.keys() == given_
    assert {signal for gap in gaps for signal in gap.signals} == hidden
    assert all(gap.subject == "model/m" and "needed" in gap.reason for gap in gaps)


@pytest.mark.parametrize(
    "buckets",
    [(), (Bucket(0, 1, 0),), (Bucket(0, 1, math.nan),), (Bucket(0, 1, -5), Bucket(1, 2, 500)), (Bucket(2, 1, 500),)],
)
def test_nothing_observed_or_nonsense_is_a_gap(buckets: tuple[Bucket, ...]) -> None:
    found, gaps = derived(latency(*buckets))
    assert not found
    assert [set(gap.signals) for gap in gaps] == [{"latency.mean", "latency.p50", "latency.p95", "latency.p99"}]


def test_without_a_sum_the_mean_is_estimated_and_never_beyond_the_bounds() -> None:
    found, gaps = derived(latency(Bucket(0, 1, 10), Bucket(1, 3, 10)))
    assert (found["latency.mean"].value, found["latency.mean"].note) == (
        1.25,
        "estimated from the middles of the buckets",
    )
    found, gaps = derived(latency(*PLACES))
    assert "latency.mean" not in found
    assert [gap.signals for gap in gaps] == [("latency.mean",)]


def test_what_a_source_told_is_left_alone() -> None:
    told = Reading("latency.p99", "model/m", 9.0, ORIGIN)
    found, _ = derived(latency(*PLACES), readings=(told,))
    assert found.keys() == {"latency.p50", "latency.p95"}


def test_only_catalogued_signals_are_derived_and_the_note_is_kept() -> None:
    found, _ = derived(latency(*PLACES, signal="itl", note="lifetime"))
    assert found.keys() == {"itl.p99"}
    assert found["itl.p99"].note.endswith("; lifetime")


def test_of_two_windows_the_later_counts() -> None:
    old = Distribution("itl", "model/m", (Bucket(7, 7, 100),), ORIGIN, window=Window(0, 5))
    new = Distribution("itl", "model/m", (Bucket(3, 3, 100),), ORIGIN, window=Window(5, 9))
    for pair in ((old, new), (new, old)):
        assert derived(*pair)[0]["itl.p99"].value == 3


BOUNDS = st.lists(st.floats(0, 1e6), min_size=2, max_size=12, unique=True).map(sorted)


@given(BOUNDS, st.data())
def test_quantiles_rise_and_stay_within_the_buckets(bounds: list[float], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 1000), min_size=len(bounds) - 1, max_size=len(bounds) - 1))
    buckets = tuple(Bucket(low, high, n) for low, high, n in zip(bounds, bounds[1:], counts, strict=False))
    if not sum(counts):
        return
    values = [quantile(latency(*buckets), share / 20)[0] for share in range(21)]
    assert values == sorted(values)
    assert bounds[0] <= values[0] <= values[-1] <= bounds[-1]


def test_of_a_histogram_whose_first_bucket_holds_nearly_all_only_the_bound_is_known() -> None:
    """Dynamo's first bucket of a request's duration ends at two seconds."""
    found, _ = derived(latency(Bucket(0.0, 2.0, 196), Bucket(2.0, 4.0, 4), total=21.0))
    assert (found["latency.p50"].value, found["latency.p50"].bound) == (2.0, AT_MOST)
    assert (found["latency.p99"].bound, found["latency.mean"].value) == ("", pytest.approx(0.105))
