"""Logs with more requests than are kept one by one: the same evidence from sums for each step of time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.access_log import collector as access_log
from latdoctor.collectors.access_log import request_gathering, step_table
from latdoctor.collectors.access_log.histogram import bin_of, edge, quantile_of
from latdoctor.collectors.access_log.replica_stats import nearest_rank
from latdoctor.collectors.time_range import TimeRange
from latdoctor.evidence.model import Evidence
from tests.collectors.access_log.test_access_collect import series
from tests.collectors.access_log.test_request_logs import START, nginx, parsed, value

KEPT = 200


@pytest.fixture
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_gathering, "MOST", KEPT)


def log(seconds: int = 900, slow_from: int = 600) -> list[str]:
    noise = random.Random(4)
    rows = []
    for number in range(seconds * 2):
        when = number / 2
        took = noise.uniform(0.1, 0.3) + (2.0 if when >= slow_from else 0.0)
        failed = number % 40 == 0
        rows.append(nginx(when, round(took, 3), 504 if failed else 200))
    return rows


def both(rows: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Evidence, Evidence]:
    whole = parsed(*rows)
    monkeypatch.setattr(request_gathering, "MOST", KEPT)
    return whole, parsed(*rows)


def test_the_series_cover_the_log_as_if_all_were_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, folded = both(log(), monkeypatch)
    for signal, close in (("latency.p50", 0.05), ("error.ratio", 1e-9), ("upstream.time.mean", 1e-9)):
        first, second = series(whole, signal), series(folded, signal)
        assert second.times == first.times
        assert second.values == pytest.approx(first.values, rel=close, abs=1e-9)
    arrivals = series(folded, "arrival.rate")
    assert sum(arrivals.values) / len(arrivals.values) == pytest.approx(2.0, rel=0.02)
    assert arrivals.times[-1] - arrivals.times[0] > 850
    kinds = {(one.signal, one.labels) for one in folded.series}
    assert kinds == {(one.signal, one.labels) for one in whole.series}


@pytest.mark.usefixtures("few_are_kept")
def test_single_values_are_of_the_end_whatever_the_order_of_the_lines() -> None:
    rows = log()
    for lines in (rows, rows[900:] + rows[:900]):  # the newer of two rotated files comes first
        found = parsed(*lines)
        assert value(found, "latency.p50") == pytest.approx(2.2, abs=0.05)
        assert KEPT <= float(str(value(found, "request.count"))) <= 2 * KEPT


@pytest.mark.usefixtures("few_are_kept")
def test_a_time_range_is_read_wherever_it_lies_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_text("\n".join(log(6000, 5000)) + "\n")
    assert path.stat().st_size > 1 << 20
    past = TimeRange(START + 100, START + 140, 20.0)
    found = access_log.READER.parse(access_log.log_artifacts("a.log", "a.log", START, path, "", past))
    assert value(found, "request.count") == 42
    assert value(found, "latency.p50") == pytest.approx(0.2, abs=0.1)


def test_blocks_outside_the_time_range_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.log"
    path.write_text("\n".join(log(40_000, 30_000)) + "\n")
    assert path.stat().st_size > 8 << 20  # read in blocks
    taken: list[int] = []
    take = request_gathering.RequestGatherer.take
    monkeypatch.setattr(
        request_gathering.RequestGatherer, "take", lambda self, *rest: (taken.append(rest[2]), take(self, *rest))[1]
    )
    past = TimeRange(START + 35_000, START + 35_060, 60.0)
    found = access_log.READER.parse(access_log.log_artifacts("a.log", "a.log", START, path, "", past))
    assert value(found, "request.count") == 122
    assert len(taken) < 40_000
    origin = next(one.origin for one in found.readings if one.signal == "request.count")
    assert origin.place == "lines 70001 to 70122"  # counted in the whole log
    late = TimeRange(START + 99_000, START + 99_060, 60.0)
    missed = access_log.READER.parse(access_log.log_artifacts("a.log", "a.log", START, path, "", late))
    assert any("the log ends at" in gap.reason for gap in missed.gaps)


@pytest.mark.usefixtures("few_are_kept")
def test_requests_without_a_time_are_kept_up_to_the_limit_and_the_rest_is_a_gap() -> None:
    found = parsed(*['INFO:     10.0.4.2:59919 - "POST /v1/chat HTTP/1.1" 200 OK'] * 1000)
    count = float(str(value(found, "request.count")))
    assert KEPT <= count <= 2 * KEPT
    assert any(f"{1000 - count:.0f} requests without a time are left out" in gap.reason for gap in found.gaps)


@pytest.mark.usefixtures("few_are_kept")
def test_steps_widen_where_a_log_spans_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_table, "MAX_STEPS", 100)
    found = series(parsed(*log()), "latency.p50")
    assert 50 < len(found.times) <= 100
    assert found.values[0] == pytest.approx(0.2, abs=0.1)
    assert found.values[-1] == pytest.approx(2.2, rel=0.05)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_of_the_histogram_is_within_a_bucket(values: list[float], q: float) -> None:
    counts: dict[int, int] = {}
    for one in values:
        counts[bin_of(one)] = counts.get(bin_of(one), 0) + 1
    exact = nearest_rank(sorted(values), q)
    assert quantile_of(counts, q) == pytest.approx(exact, rel=0.024)
    assert edge(bin_of(exact) - 1) <= exact <= edge(bin_of(exact)) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 4000)), min_size=30, max_size=120))
def test_any_order_of_lines_is_counted_whole(rows: list[tuple[int, int]]) -> None:
    before = request_gathering.MOST
    request_gathering.MOST = 10
    try:
        gathered = request_gathering.RequestGatherer()
        for number, (when, took) in enumerate(rows, 1):
            entry = access_log.formats.FORMATS[1].read(nginx(when, took / 1000))
            assert entry is not None
            gathered.take(entry, str(number).encode(), number)
        assert gathered.kept == len(rows)
        held = sum(len(one) for one in gathered.by_replica.values())
        assert held < len(rows) or len(rows) < 20 or len({when for when, _ in rows}) < 20
    finally:
        request_gathering.MOST = before
