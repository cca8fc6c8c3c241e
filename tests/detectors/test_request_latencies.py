"""Detectors over the latencies of single requests: pulses, modes, the tail by stage, before and after."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from latdoctor.detectors.effect_size import compare_latencies
from latdoctor.detectors.latency_modes import find_peaks, latency_modes
from latdoctor.detectors.periodicity import find_pulse, latency_pulses
from latdoctor.detectors.tail_attribution import OTHER, attribute_tail, tail_shares
from latdoctor.evidence.model import Evidence, Origin, Series

Numbers = NDArray[np.float64]
SOME = arrays(np.float64, st.integers(0, 700), elements=st.floats(0, 1e4))


def ordinary(seed: int = 0, seconds: float = 30, rate: float = 100) -> tuple[Numbers, Numbers]:
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, seconds, int(seconds * rate)))
    return times, random.lognormal(math.log(0.05), 0.5, len(times))


def stalling(period: float, stall: float, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Everything stops for `stall` seconds at every `period`."""
    times, values = ordinary(seed)
    phase = times % period
    return times, values + np.where(phase < stall, stall - phase, 0.0)


def series(signal: str, times: Numbers, values: Numbers, **labels: str) -> Series:
    return Series(signal, "replica/0", tuple(times), tuple(values), Origin("access.log"), tuple(labels.items()))


def told(evidence: Evidence) -> dict[str, object]:
    return {one.signal: one.value for one in evidence.readings}


@pytest.mark.parametrize(("period", "stall"), [(0.5, 0.12), (0.25, 0.06), (2.0, 0.4)])
def test_a_pulse_is_found_at_its_period(period: float, stall: float) -> None:
    found = find_pulse(*stalling(period, stall))
    assert found is not None
    assert found.period == pytest.approx(period, rel=0.02)


@pytest.mark.parametrize("seed", range(10))
def test_an_ordinary_minute_has_no_pulse(seed: int) -> None:
    assert find_pulse(*ordinary(seed, seconds=60)) is None


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (np.arange(100) / 10, "300 are needed"),
        (np.repeat(np.arange(60.0), 10), "whole seconds"),
        (np.arange(400) * 1e4, "they span"),
    ],
)
def test_what_cannot_show_a_pulse_is_a_gap(times: Numbers, said: str) -> None:
    found = latency_pulses(Evidence(series=(series("request.latency", times, np.ones(len(times))),)))
    assert not found.readings
    assert said in found.gaps[0].reason


def test_starts_that_are_whole_ends_less_their_latency_are_no_pulse() -> None:
    """As an access log with stamps of whole seconds gives them: the start's place in its second is the latency."""
    times, values = ordinary()
    starts = np.floor(times + values) - np.round(values, 3)
    found = latency_pulses(Evidence(series=(series("request.latency", starts, np.round(values, 3)),)))
    assert told(found) == {}
    assert "whole seconds" in found.gaps[0].reason


@pytest.mark.parametrize("tick", [1.0, 0.5])
def test_starts_that_are_ends_on_a_tick_less_their_latency_are_no_pulse(tick: float) -> None:
    """As where clients that call on a tick are logged at one moment of it, with a fraction of a second."""
    rng = np.random.default_rng(3)
    ends = np.repeat(np.arange(0, 600, tick), 3) + 0.573912
    values = rng.normal(0.9 * tick, 0.09 * tick, len(ends))
    found = latency_pulses(Evidence(series=(series("request.latency", ends - values, values),)))
    assert told(found) == {}
    assert "one moment of each" in found.gaps[0].reason


def test_without_a_pulse_its_share_is_none_and_with_one_it_is_told() -> None:
    assert told(latency_pulses(Evidence(series=(series("request.latency", *ordinary()),)))) == {
        "latency.pulse_share": 0.0
    }
    found = told(latency_pulses(Evidence(series=(series("request.latency", *stalling(0.5, 0.12)),))))
    assert found["latency.pulse_period"] == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(("share", "dips"), [(0.3, True), (0.05, False)])
def test_a_large_group_shows_in_the_dip_and_a_small_one_by_its_valley(share: float, dips: bool) -> None:
    _, values = ordinary()
    slow = np.random.default_rng(1).random(len(values)) < share
    p, peaks = find_peaks(np.where(slow, values * 20, values))
    assert (p < 0.01) is dips
    assert peaks.high / peaks.low == pytest.approx(20, rel=0.4)
    assert peaks.high_share == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("digits", [3, 6])
def test_rounding_makes_no_peaks(digits: int) -> None:
    _, values = ordinary()
    p, peaks = find_peaks(np.maximum(np.round(values, digits), 10.0**-digits))
    assert p > 0.05
    assert peaks.low == peaks.high


def test_peaks_are_told_with_units() -> None:
    _, values = ordinary()
    values[::3] *= 20
    found = told(latency_modes(Evidence(series=(series("request.latency", np.arange(3000.0), values),))))
    assert "ms and" in str(found["latency.modes"])


def test_the_stage_that_makes_the_tail_has_its_share_and_all_add_up() -> None:
    random = np.random.default_rng(0)
    compute, queue = random.uniform(0.01, 0.02, 2000), random.uniform(0, 0.01, 2000)
    queue[::100] += 1.0
    whole = compute + queue + 0.005
    times = np.arange(2000.0)
    stages = [
        series("request.stage_time", times, part, stage=name) for name, part in (("compute", compute), ("queue", queue))
    ]
    found = tail_shares(Evidence(series=(series("request.latency", times, whole), *stages)))
    shares = {dict(one.labels)["stage"]: float(one.value) for one in found.readings}
    assert shares["queue"] > 0.95
    assert sum(shares.values()) == pytest.approx(1.0)


@given(latencies=SOME, parts=st.integers(0, 3), seed=st.integers(0, 9))
def test_shares_add_up_whatever_comes(latencies: Numbers, parts: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    stages = {f"s{n}": random.random(len(latencies)) * latencies for n in range(parts)}
    shares = attribute_tail(latencies, stages)
    assert not shares or (OTHER in shares and math.isclose(sum(shares.values()), 1.0, abs_tol=1e-6))


def test_a_small_shift_of_many_is_no_difference_and_a_large_one_is() -> None:
    random = np.random.default_rng(0)
    before = random.lognormal(0, 1, 100_000)
    assert not compare_latencies(before, random.lognormal(0.02, 1, 100_000)).differs
    later = compare_latencies(before, random.lognormal(0.7, 1, 100_000))
    assert later.differs
    assert later.delta > 0.3
    for shift in later.shifts:
        assert shift.low is not None
        assert shift.high is not None
        assert shift.low <= shift.after - shift.before <= shift.high


def test_neighbours_that_are_alike_do_not_make_a_difference() -> None:
    fired = 0
    for seed in range(100):
        random, values = np.random.default_rng(seed), np.zeros(4000)
        for n in range(1, len(values)):
            values[n] = 0.9 * values[n - 1] + random.normal()
        fired += compare_latencies(values[:2000], values[2000:]).differs
    assert fired <= 5


@given(SOME, SOME)
def test_the_other_way_round_is_the_opposite(before: Numbers, after: Numbers) -> None:
    if not len(before) or not len(after):
        with pytest.raises(ValueError, match="finite"):
            compare_latencies(before, after)
        return
    one, other = compare_latencies(before, after), compare_latencies(after, before)
    assert one.delta == pytest.approx(-other.delta)
    assert one.p == pytest.approx(other.p)
    assert -1 <= one.delta <= 1
