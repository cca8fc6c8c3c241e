"""A part of an access log's time: series of all of it, single values of its judged end, nothing of what it lacks."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.access_log import SIGNALS
from latdoctor.collectors.access_log import collector as access_log
from latdoctor.collectors.time_range import TimeRange
from latdoctor.evidence.model import Evidence

NIGHT = 1769828400.0  # 2026-01-31T03:00:00Z
ASKED = TimeRange(NIGHT - 1800, NIGHT, 300.0)


def line(seconds: float, took: str, status: int = 200, path: str = "/v1/predict") -> str:
    """A request that ended so many seconds before the end of what is asked for."""
    at = datetime.datetime.fromtimestamp(NIGHT - seconds, datetime.UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'10.0.0.7 - - [{at}] "POST {path} HTTP/1.1" {status:03} 5 "-" "x" {took}'


def parsed(*lines: str, asked: TimeRange | None = ASKED, own: str = "") -> Evidence:
    found = access_log.log_artifacts("a.log", "a.log", NIGHT + 7200, "\n".join(lines).encode(), own, asked)
    return access_log.READER.parse(found)


def value(found: Evidence, signal: str) -> object:
    return next((one.value for one in found.readings if one.signal == signal), None)


def span(first: int, last: int, took: str, each: int = 1) -> list[str]:
    """A request each second from `first` to `last` seconds before the end."""
    return [line(seconds, took) for seconds in range(first, last, -1) for _ in range(each)]


def test_readings_cover_the_judged_window_and_series_the_whole_range() -> None:
    rows = [*span(4000, 1800, "9.000"), *span(1800, 300, "0.100"), *span(300, 0, "2.000"), *span(-1, -600, "5.000")]
    found = parsed(*rows)
    assert value(found, "latency.p50") == 2.0
    assert value(found, "latency.p99") == 2.0
    assert value(found, "arrival.rate") == pytest.approx(1.0, rel=0.02)
    p50 = next(one for one in found.series if one.signal == "latency.p50")
    assert NIGHT - 1801 <= p50.times[0] <= p50.times[-1] <= NIGHT + 1
    assert set(p50.values) == {0.1, 2.0}
    assert any("the last 2" in one.note and "of the requested range" in one.note for one in found.readings)
    assert value(parsed(*rows, asked=None), "latency.p50") == 5.0


def test_few_requests_in_the_judged_time_do_not_reach_back() -> None:
    found = parsed(*span(1800, 300, "0.100"), *[line(n, "2.000") for n in range(50, 0, -1)])
    assert value(found, "latency.p50") == 2.0
    assert value(found, "latency.p99") is None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (span(1800, 301, "0.100"), "the log ends at 2026-01-31 02:54:58 UTC, and the judged window begins at"),
        (span(-10, -600, "0.100"), "the log begins at 2026-01-31 03:00:10 UTC, and the judged window ends at"),
    ],
)
def test_a_log_that_does_not_reach_gives_nothing(rows: list[str], said: str) -> None:
    found = parsed(*rows)
    assert (found.readings, found.series, found.distributions) == ((), (), ())
    (gap,) = found.gaps
    assert said in gap.reason
    assert set(gap.signals) == set(SIGNALS)


def test_a_log_that_begins_late_says_so() -> None:
    found = parsed(*span(200, 0, "0.100"))
    assert value(found, "latency.p50") == 0.1
    assert any("the log begins at" in gap.reason and not gap.signals for gap in found.gaps)


def test_probes_alone_show_that_a_log_goes_on_but_not_how_long_requests_take() -> None:
    found = parsed(*span(1800, 400, "0.100"), *[line(n, "0.001", path="/health") for n in range(400, 0, -10)])
    assert not found.readings
    assert [one.signal for one in found.series if one.signal == "latency.p50"]
    (gap,) = found.gaps_by_signal["latency.p99"]
    assert "no request ended in the judged window" in gap.reason


def test_requests_without_a_time_are_not_counted() -> None:
    found = parsed(*(f"200 {n}" for n in range(300)), own="{status} {ms}")
    assert not found.readings
    (gap,) = found.gaps_by_signal["latency.p99"]
    assert "have no time of day" in gap.reason


def test_only_the_requested_part_of_concatenated_logs_is_read() -> None:
    """Rotated logs with a hole of hours: without a time the last part is read."""
    rows = [*span(300, 0, "2.000"), *span(-9000, -9900, "0.100")]
    assert value(parsed(*rows), "latency.p50") == 2.0
    assert value(parsed(*rows, asked=None), "latency.p50") == 0.1


def test_a_pattern_and_a_time_travel_together() -> None:
    rows = [f"{datetime.datetime.fromtimestamp(NIGHT - n, datetime.UTC).isoformat()} 200 7" for n in range(900, 0, -1)]
    assert value(parsed(*rows, own="{time} {status} {ms}"), "latency.p99") == 0.007


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-4000, 4000), st.floats(0, 100)), min_size=1, max_size=60),
    st.floats(11, 4000),
    st.floats(0.01, 1),
)
def test_requests_outside_the_range_are_excluded(rows: list[tuple[float, float]], length: float, share: float) -> None:
    asked = TimeRange(NIGHT - length, NIGHT, 0.999 * length * share)
    found = parsed(*(line(at, f"{took:.3f}") for at, took in rows), asked=asked)
    for one in found.readings:
        assert one.window.start is None or asked.judged - 1 <= one.window.start <= asked.until
    for series in found.series:
        if series.signal == "latency.p50":
            assert asked.since - 1 <= series.times[0] - 1 <= series.times[-1] - 1 <= asked.until
    told = sum(spread.count for spread in found.distributions)
    assert told <= sum(asked.judged - 1 <= NIGHT - at <= asked.until + 1 for at, _ in rows)
