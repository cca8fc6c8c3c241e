"""`by` separates the values of a label, `slope` is a gauge's change, `series` a rate from page to page."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.dialects.loader import read_dialects
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.page_series import MAX_VALUES
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.evidence.model import Evidence

DIALECT = """\
id: mine
title: My server
recognise: [my_total]
signals:
  batch.released: {rate: my_total, by: reason}
  batch.release_share: {ratio: my_total, over: my_total, by: reason, sum_over: [reason]}
  server.rss_growth: {slope: my_bytes, scale: kB}
  arrival.rate: {rate: my_arrivals_total, series: true}
  version.latency: {histogram: my_seconds, by: version, scale: s}
"""


def read(tmp_path: Path, *pages: str) -> Evidence:
    (tmp_path / "mine.yaml").write_text(DIALECT, encoding="utf-8")
    (dialect,) = read_dialects([tmp_path / "mine.yaml"])
    scrapes = [
        ScrapedPage(parse(text.encode(), f"{number}"), f"{number}", 1000.0 + 2 * number)
        for number, text in enumerate(pages)
    ]
    return read_pages(dialect, scrapes, "server/s")


def page(full: int, timeout: int, size: float = 0, arrivals: int = 0) -> str:
    return (
        f'my_total{{reason="full"}} {full}\nmy_total{{reason="timeout"}} {timeout}\n'
        f"my_bytes {size}\nmy_arrivals_total {arrivals}\n"
        f'my_seconds_bucket{{version="v1",le="1"}} {full}\nmy_seconds_bucket{{version="v1",le="+Inf"}} {full}\n'
        f'my_seconds_bucket{{version="v2",le="1"}} 0\nmy_seconds_bucket{{version="v2",le="+Inf"}} {timeout}\n'
    )


def test_one_labelled_reading_for_each_value(tmp_path: Path) -> None:
    seen = read(tmp_path, page(10, 0), page(40, 10))
    found = {(one.signal, dict(one.labels).get("reason")): one.value for one in seen.readings}
    assert found["batch.released", "full"] == pytest.approx(15)
    assert found["batch.release_share", "full"] == pytest.approx(0.75)
    assert found["batch.release_share", "timeout"] == pytest.approx(0.25)
    spreads = {one.labels: one.count for one in seen.distributions}
    assert spreads == {(("version", "v1"),): 30, (("version", "v2"),): 10}


def test_a_missing_value_is_a_gap(tmp_path: Path) -> None:
    seen = read(tmp_path, "my_bytes 1\n", "my_bytes 2\n")
    assert {"batch.released", "batch.release_share", "version.latency"} <= set(seen.gaps_by_signal)


def test_values_without_end_are_cut_off(tmp_path: Path) -> None:
    many = "".join(f'my_total{{reason="r{number:03}"}} 1\n' for number in range(50))
    seen = read(tmp_path, many)
    assert len([one for one in seen.readings if one.signal == "batch.release_share"]) == MAX_VALUES
    assert "34 more values" in seen.gaps_by_signal["batch.release_share"][0].reason


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([5, 9], 2000.0), ([9, 5], -2000.0), ([5, 5], 0.0), ([10, 90, 12, 14, 16, 18, 20, 22, 24], 1000.0)],
)
def test_a_slope_may_fall_and_minds_no_odd_page(tmp_path: Path, sizes: list[float], expected: float) -> None:
    seen = read(tmp_path, *(page(1, 1, size) for size in sizes))
    (slope,) = (one for one in seen.readings if one.signal == "server.rss_growth")
    assert slope.value == pytest.approx(expected, rel=0.35)


def test_a_single_page_has_no_slope(tmp_path: Path) -> None:
    assert "server.rss_growth" in read(tmp_path, page(1, 1, 5)).gaps_by_signal


def test_a_rate_from_page_to_page(tmp_path: Path) -> None:
    (series,) = read(tmp_path, *(page(1, 1, arrivals=n) for n in (0, 20, 40, 140))).series
    assert (series.times, series.values) == ((1002.0, 1004.0, 1006.0), (10.0, 10.0, 50.0))


def test_two_pages_make_no_series(tmp_path: Path) -> None:
    assert not read(tmp_path, page(1, 1), page(2, 2, arrivals=9)).series
