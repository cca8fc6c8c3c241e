"""Two peaks in the batch sizes: how often it cries wolf, and how often it sees the wolf."""

from __future__ import annotations

import math
from collections.abc import Callable

import diptest
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from latdoctor.detectors.batch_size_modes import (
    DERIVED,
    MAX_VALUES,
    BatchSizeModes,
    batch_bimodality,
    batch_sizes,
    dip_test,
    find_modes,
)
from latdoctor.evidence.model import Bucket, Distribution, Evidence, Origin, Reading, Window

Sample = Callable[[np.random.Generator, int], NDArray[np.int64]]

HEALTHY: dict[str, Sample] = {
    "geometric": lambda rng, n: rng.geometric(0.3, n),
    "geometric, capped": lambda rng, n: np.minimum(rng.geometric(0.5, n), 8),
    "poisson": lambda rng, n: 1 + rng.poisson(6, n),
    "poisson, small": lambda rng, n: 1 + rng.poisson(1.5, n),
    "uniform": lambda rng, n: rng.integers(1, 9, n),
    "uniform, wide": lambda rng, n: rng.integers(1, 65, n),
    "two sizes": lambda rng, n: rng.integers(1, 3, n),
    "constant": lambda rng, n: np.full(n, 4),
    "full with some rest": lambda rng, n: np.where(rng.random(n) < 0.9, 8, 7),
}
FIELD: dict[str, Sample] = {
    "1 and 5, evenly": lambda rng, n: np.where(rng.random(n) < 0.5, 1, 5),
    "1 and 5, few alone": lambda rng, n: np.where(rng.random(n) < 0.3, 1, 5),
    "1 and about 5": lambda rng, n: np.where(rng.random(n) < 0.4, 1, np.clip(np.rint(rng.normal(5, 0.7, n)), 1, 8)),
}
SEEDS = range(60)
COUNTS = (50, 300, 3000)


def counted(values: NDArray[np.int64]) -> dict[int, float]:
    found, counts = np.unique(values, return_counts=True)
    return {int(size): float(count) for size, count in zip(found, counts, strict=True)}


def batches(counts: dict[int, float], **changes: object) -> Distribution:
    buckets = tuple(Bucket(size, size, count) for size, count in counts.items())
    return Distribution("batch.size", "model/m", buckets, Origin("m/last.prom", "batch_size"), window=Window(0, 10))


def derived(distribution: Distribution) -> dict[str, Reading]:
    return {reading.signal: reading for reading in batch_bimodality(Evidence(distributions=(distribution,))).readings}


def fires(counts: dict[int, float]) -> bool:
    """The rule's own condition: significant, and peaks at least a factor of two apart."""
    found = derived(batches(counts))
    p, separation = found["batch.size.dip_p"].value, found["batch.size.separation"].value
    assert isinstance(p, float)
    assert isinstance(separation, float)
    return p < 0.01 and separation > 1


@pytest.mark.parametrize("sample", HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_batch_sizes_rarely_fire(sample: Sample) -> None:
    for n in COUNTS:
        alarms = [fires(counted(sample(np.random.default_rng(seed), n))) for seed in SEEDS]
        assert np.mean(alarms) <= 0.05


@pytest.mark.parametrize("sample", FIELD.values(), ids=FIELD.keys())
def test_the_mixture_of_the_field_is_detected(sample: Sample) -> None:
    for n in (200, 3000):
        seen = [fires(counted(sample(np.random.default_rng(seed), n))) for seed in SEEDS]
        assert np.mean(seen) >= 0.95


@pytest.mark.parametrize("name", ["geometric", "poisson", "uniform", "two sizes"])
def test_the_raw_dip_test_fires_on_healthy_whole_numbers_and_ours_does_not(name: str) -> None:
    samples = [HEALTHY[name](np.random.default_rng(seed), 300) for seed in SEEDS]
    raw = [diptest.diptest(sample.astype(float))[1] < 0.01 for sample in samples]
    ours = [dip_test(counted(sample))[1] < 0.01 for sample in samples]
    assert np.mean(raw) >= 0.95
    assert np.mean(ours) <= 0.05


def test_the_readings_of_the_fields_mixture() -> None:
    found = derived(batches({1: 60.0, 5: 40.0}))
    assert found.keys() == set(DERIVED)
    assert found["batch.size.modes"].value == "1 and 5"
    assert [found[f"batch.size.{name}"].value for name in ("mode_low", "mode_high", "separation")] == [1.0, 5.0, 4.0]
    assert found["batch.size.dip_p"].value == 1e-5
    assert found["batch.size.dip"].origin == Origin("m/last.prom", "batch_size, dip test of the batch sizes")
    assert found["batch.size.dip"].note == "100 batches, sizes 1 to 5, dithered by ±0.5"


def test_one_peak_has_no_separation() -> None:
    found = derived(batches({3: 10.0, 4: 100.0, 5: 12.0}))
    assert [found[f"batch.size.{name}"].value for name in ("modes", "mode_low", "mode_high", "separation")] == [
        "4",
        4.0,
        4.0,
        0.0,
    ]


@pytest.mark.parametrize(
    ("counts", "modes"),
    [
        ({1: 60, 5: 40}, BatchSizeModes(1, 5)),
        ({1: 60, 3: 40}, BatchSizeModes(1, 3)),
        ({1: 60, 2: 40}, BatchSizeModes(1, 1)),
        ({1: 60, 2: 31, 3: 40}, BatchSizeModes(1, 1)),  # the valley is not deep enough
        ({1: 60, 2: 19, 3: 40}, BatchSizeModes(1, 3)),
        ({1: 4, 5: 96}, BatchSizeModes(5, 5)),  # a peak of under 5 % is none
        ({1: 100, 4: 30, 8: 60}, BatchSizeModes(1, 8)),  # of several the highest two
        ({1: 5, 2: 4, 3: 20, 4: 80, 5: 20}, BatchSizeModes(4, 4)),
    ],
)
def test_peaks(counts: dict[int, float], modes: BatchSizeModes) -> None:
    assert find_modes(counts) == modes


def test_wide_ranges_are_smoothed() -> None:
    rng = np.random.default_rng(1)
    values = np.where(rng.random(400) < 0.5, rng.normal(10, 3, 400), rng.normal(60, 4, 400))
    modes = find_modes(counted(np.clip(np.rint(values), 1, None).astype(int)))
    assert abs(modes.low - 10) <= 4
    assert abs(modes.high - 60) <= 4


def test_few_batches_are_a_gap() -> None:
    found = batch_bimodality(Evidence(distributions=(batches({1: 20.0, 5: 29.0}),)))
    assert not found.readings
    (gap,) = found.gaps
    assert (gap.signals, gap.subject) == (DERIVED, "model/m")
    assert gap.reason == "batch.size: 49 batches observed, 50 are needed"


@pytest.mark.parametrize(
    "buckets",
    [
        (Bucket(0, 1, 100), Bucket(1, 2, 100), Bucket(2, 4, 100)),
        (Bucket(0, 1, 100), Bucket(1, math.inf, 100)),
        (Bucket(0.5, 1.5, 500),),
        (Bucket(1e9, 1e9, 500),),
        (Bucket(1, 1, math.nan),),
    ],
)
def test_sizes_in_shared_buckets_are_a_gap(buckets: tuple[Bucket, ...]) -> None:
    found = batch_bimodality(Evidence(distributions=(Distribution("batch.size", "model/m", buckets, Origin("a")),)))
    assert not found.readings
    assert [gap.signals for gap in found.gaps] == [DERIVED]


def test_both_forms_of_one_size_per_bucket_are_read() -> None:
    buckets = (Bucket(0, 1, 60), Bucket(4, 5, 39), Bucket(5, 5, 1), Bucket(8, math.inf, 1))
    assert batch_sizes(Distribution("batch.size", "model/m", buckets, Origin("a"))) == {1: 60, 5: 40}


def test_existing_readings_are_kept() -> None:
    told = Reading("batch.size.dip", "model/m", 0.1, Origin("a"))
    assert batch_bimodality(Evidence(readings=(told,), distributions=(batches({1: 60.0, 5: 40.0}),))) == Evidence()


def test_many_batches_cost_no_more() -> None:
    assert dip_test({1: 6e9, 5: 4e9}) == dip_test({1: 0.6 * MAX_VALUES, 5: 0.4 * MAX_VALUES})


@settings(max_examples=40)
@given(st.dictionaries(st.integers(0, 200), st.floats(0.01, 1e9), min_size=1, max_size=30))
def test_any_sizes_give_readings_or_a_gap_and_always_the_same(counts: dict[int, float]) -> None:
    evidence = Evidence(distributions=(batches(counts),))
    found = batch_bimodality(evidence)
    assert found == batch_bimodality(evidence)
    assert {reading.signal for reading in found.readings} in (set(), set(DERIVED))
    assert bool(found.readings) != bool(found.gaps)
