"""Two pages of one server: growth, restarts, new series, and what must not be summed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.dialects.loader import read_dialects
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.model import MAX_SUBJECTS, Dialect
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.evidence.model import Evidence, Gap

DIALECT = """\
id: toy
title: Toy
recognise: [done]
subjects:
  - {id: "model/{model}", parent: server, apart: [version]}
signals:
  completion.rate: {rate: done}
  error.rate: {rate: failed, sum_over: [reason]}
  batch.size.mean: {ratio: items, over: done}
  latency: {histogram: seconds, scale: s}
  latency.p99: {summary: quantiles, quantile: 0.99, scale: s}
  queue.depth: {gauge: waiting, hint: start it with --gauges}
  kv.usage: {gauge: usage, take: last}
  requests.running: {gauge: running, take: max}
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Dialect:
    path = tmp_path_factory.mktemp("dialects") / "toy.yaml"
    path.write_text(DIALECT, encoding="utf-8")
    return read_dialects([path])[0]


def look(toy: Dialect, *pages: str, seconds: float | None = 10.0) -> Evidence:
    scrapes = [
        ScrapedPage(parse(page.encode(), "page"), f"{number}.prom", None if seconds is None else 100 + seconds * number)
        for number, page in enumerate(pages)
    ]
    return read_pages(toy, scrapes, "server/s")


def value(seen: Evidence, signal: str, subject: str = "server/s") -> float | str | None:
    found = [one.value for one in seen.readings if (one.signal, one.subject) == (signal, subject)]
    return found[0] if found else None


def gap(seen: Evidence, signal: str) -> Gap:
    return seen.gaps_by_signal[signal][0]


def test_a_counter_that_went_back_is_a_gap_and_no_negative_rate(toy: Dialect) -> None:
    seen = look(toy, "done 100", "done 40")
    assert value(seen, "completion.rate") is None
    assert "decreased from 100 to 40" in gap(seen, "completion.rate").reason
    assert gap(seen, "completion.rate").subject == "server/s"


def test_a_restart_between_three_pages_is_detected_though_the_last_is_higher(toy: Dialect) -> None:
    assert "decreased" in gap(look(toy, "done 100", "done 3", "done 200", seconds=5), "completion.rate").reason


def test_a_restart_is_detected_by_the_start_time(toy: Dialect) -> None:
    seen = look(toy, "done 1\nprocess_start_time_seconds 1000", "done 50\nprocess_start_time_seconds 2000")
    assert "restarted" in gap(seen, "completion.rate").reason


def test_a_series_that_is_gone_is_a_gap(toy: Dialect) -> None:
    seen = look(toy, 'done{model="a"} 5', 'done{model="b"} 5')
    assert "gone from the last page" in gap(seen, "completion.rate").reason
    assert value(seen, "completion.rate", "model/b@s") == 0.5


def test_a_series_born_in_the_window_counts_from_zero_unless_the_first_page_is_broken(toy: Dialect) -> None:
    assert value(look(toy, 'done{model="a"} 5', 'done{model="b"} 20'), "completion.rate", "model/b@s") == 2.0
    broken = look(toy, 'done{model="a"} 5\ndone{model="b', 'done{model="a"} 5\ndone{model="b"} 20')
    assert value(broken, "completion.rate", "model/b@s") is None


def test_labels_are_summed_over_only_where_the_dialect_says_so(toy: Dialect) -> None:
    page = 'done{zone="x"} 1\ndone{zone="y"} 2\nfailed{reason="a"} 1\nfailed{reason="b"} 2'
    seen = look(toy, page, page.replace(" 2", " 12"))
    assert value(seen, "error.rate") == 1.0
    assert value(seen, "completion.rate") is None
    assert "2 series for one subject (by zone)" in gap(seen, "completion.rate").reason


def test_a_sum_with_a_lost_line_is_not_given(toy: Dialect) -> None:
    page = 'done 1\nfailed{reason="a"} 1\nfailed{reason="b"'
    assert "could not be read" in gap(look(toy, page, page), "error.rate").reason


@pytest.mark.parametrize(
    ("half", "known"),
    [("fai", False), ("failed", False), ("failed_over{", True), ("seconds_b", True), ("unknown", True)],
)
def test_half_a_name_may_be_that_of_a_summed_series(toy: Dialect, half: str, known: bool) -> None:
    page = f'done 1\nfailed{{reason="a"}} 1\n{half}'
    assert value(look(toy, page, page), "error.rate") == (0.0 if known else None)


@pytest.mark.parametrize(
    ("signal", "window", "place"),
    [
        ("queue.depth", (100.0, 110.0), "waiting, since 0.prom"),
        ("requests.running", (110.0, 120.0), "running, since 1.prom"),
        ("kv.usage", (120.0, 120.0), "usage"),
    ],
)
def test_a_gauge_covers_the_pages_that_show_it(
    toy: Dialect, signal: str, window: tuple[float, float], place: str
) -> None:
    seen = look(toy, "done 1\nwaiting 2", "done 1\nwaiting 4\nrunning 1\nusage 0.5", "done 1\nrunning 2\nusage 0.6")
    (one,) = (one for one in seen.readings if one.signal == signal)
    assert (one.window.start, one.window.end) == window
    assert one.origin.place == place


def test_a_hint_to_export_something_is_given_only_where_it_is_not_exported(toy: Dialect) -> None:
    assert gap(look(toy, "done 1"), "queue.depth").next_step == "start it with --gauges"
    assert gap(look(toy, "done 1\nwaiting NaN"), "queue.depth").next_step == ""


def test_two_versions_stay_apart_and_one_needs_no_suffix(toy: Dialect) -> None:
    one = look(toy, 'done{model="a",version="1"} 1\nwaiting{model="a",version="1"} 3')
    assert value(one, "queue.depth", "model/a@s") == 3
    two = look(toy, 'done{model="a",version="1"} 1\nwaiting{model="a",version="1"} 3\nwaiting{model="a",version="2"} 5')
    assert value(two, "queue.depth", "model/a:version=1@s") == 3
    assert value(two, "queue.depth", "model/a:version=2@s") == 5


def test_saved_pages_without_times_give_ratios_but_no_rates(toy: Dialect) -> None:
    seen = look(toy, "done 100\nitems 100", "done 110\nitems 180", seconds=None)
    assert value(seen, "batch.size.mean") == 8.0
    assert value(seen, "completion.rate") is None
    assert "time between the saved pages" in gap(seen, "completion.rate").reason


def test_nothing_counted_is_no_ratio_and_hides_no_subject(toy: Dialect) -> None:
    seen = look(toy, 'done{model="a"} 5\nitems{model="a"} 5', 'done{model="a"} 5\nitems{model="a"} 5')
    assert value(seen, "batch.size.mean", "model/a@s") is None
    assert value(seen, "completion.rate", "model/a@s") == 0.0
    assert gap(seen, "batch.size.mean").subject is None
    assert "model/a@s" in gap(seen, "batch.size.mean").reason


def test_a_gauge_that_is_nan_on_one_page_is_read_from_the_others(toy: Dialect) -> None:
    seen = look(toy, "done 1\nwaiting NaN\nrunning 2", "done 1\nwaiting 4\nrunning 7")
    assert value(seen, "queue.depth") == 4
    assert value(seen, "requests.running") == 7
    assert "is nan" in gap(look(toy, "done 1\nwaiting NaN"), "queue.depth").reason


@pytest.mark.parametrize(
    ("buckets", "said"),
    [
        ('seconds_bucket{le="1"} 5\nseconds_bucket{le="+Inf"} 3', "not cumulative"),
        ('seconds_bucket{le="1"} 5', "lack +Inf"),
        ('seconds_bucket{le="+Inf"} 5', "no bucket bounds"),
        ('seconds_bucket{le="one"} 5\nseconds_bucket{le="+Inf"} 5', "bucket bound 'one'"),
        ('seconds_bucket{le="1"} NaN\nseconds_bucket{le="+Inf"} 5', "is nan"),
        ('seconds_bucket{le="1"} 0\nseconds_bucket{le="+Inf"} 0', "counted nothing"),
        ('seconds_bucket{le="1",zone="x"} 1\nseconds_bucket{le="+Inf",zone="y"} 1', "2 series"),
    ],
)
def test_a_broken_histogram_is_a_gap(toy: Dialect, buckets: str, said: str) -> None:
    seen = look(toy, f"done 1\n{buckets}")
    assert not seen.distributions
    assert said in gap(seen, "latency").reason


def test_a_histogram_that_went_back_is_a_gap(toy: Dialect) -> None:
    page = 'done 1\nseconds_bucket{le="1"} 5\nseconds_bucket{le="+Inf"} 9'
    seen = look(toy, page, page.replace(" 9", " 6"))
    assert not seen.distributions
    assert "decreased" in gap(seen, "latency").reason


@pytest.mark.parametrize(
    ("quantiles", "count", "total", "fits"),
    [
        ({0.5: 3.0, 0.99: 3.0}, 3, 1327965.0, False),
        ({0.5: 400.0, 0.99: 900.0}, 3, 1327.0, True),
        ({0.5: 0.1, 0.99: 0.2}, 1000, 150.0, True),
        ({0.5: 1000.0, 0.99: 2000.0}, 1000, 1.0, False),
        ({0.5: 2.0, 0.99: 1.0}, 10, 15.0, False),
        ({0.5: math.nan, 0.99: math.nan}, 10, 15.0, False),
        ({0.5: 1.0}, 10, 10.0, False),
        ({0.99: 1.0}, 0, 0.0, False),
    ],
)
def test_a_summary_must_agree_with_itself(
    toy: Dialect, quantiles: dict[float, float], count: int, total: float, fits: bool
) -> None:
    lines = [f'quantiles{{quantile="{q}"}} {v}' for q, v in quantiles.items()]
    seen = look(toy, "\n".join(["done 1", *lines, f"quantiles_count {count}", f"quantiles_sum {total}"]))
    assert value(seen, "latency.p99") == (quantiles[0.99] if fits else None)
    assert ("latency.p99" in seen.gaps_by_signal) is not fits


def test_more_subjects_than_are_read_are_counted(toy: Dialect) -> None:
    page = "\n".join(f'done{{model="m{n}"}} 1\nwaiting{{model="m{n}"}} {n}' for n in range(MAX_SUBJECTS + 5))
    seen = look(toy, page)
    assert sum(one.signal == "queue.depth" for one in seen.readings) == MAX_SUBJECTS
    assert any("5 more models" in one.reason for one in seen.gaps)


def test_a_label_cannot_name_another_placeholder_or_carry_control_characters(toy: Dialect) -> None:
    seen = look(toy, 'done{model="{version}\x1b[31m"} 1\nwaiting{model="{version}\x1b[31m"} 2')
    assert value(seen, "queue.depth", "model/{version}@s") == 2


def test_an_exporter_without_refresh_has_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(DIALECT + "cached: true\n", encoding="utf-8")
    (cached,) = read_dialects([path])
    seen = look(cached, "done 5\ngo_goroutines 7", "done 5\ngo_goroutines 8")
    assert value(seen, "completion.rate") is None
    assert "without a refresh" in gap(seen, "completion.rate").reason
    assert value(look(cached, "done 5", "done 7"), "completion.rate") == 0.2


COUNTS = st.lists(st.integers(0, 50), min_size=2, max_size=6)


@given(first=COUNTS, grown=COUNTS)
def test_a_window_histogram_is_the_difference_of_two_lifetimes(
    toy: Dialect, first: list[int], grown: list[int]
) -> None:
    size = min(len(first), len(grown))
    first, grown = first[:size], grown[:size]

    def page(counts: list[int]) -> str:
        bounds = [*(str(n + 1) for n in range(size - 1)), "+Inf"]
        running = [sum(counts[: n + 1]) for n in range(size)]
        return "done 1\n" + "\n".join(
            f'seconds_bucket{{le="{bound}"}} {count}' for bound, count in zip(bounds, running, strict=True)
        )

    seen = look(toy, page(first), page([a + b for a, b in zip(first, grown, strict=True)]))
    counted = [bucket.count for one in seen.distributions for bucket in one.buckets]
    assert counted == ([float(n) for n in grown] if sum(grown) else [])


@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=4),
    seconds=st.none() | st.floats(-10, 10),
)
def test_no_reading_is_ever_nan_infinite_or_a_negative_rate(
    toy: Dialect, values: list[float], seconds: float | None
) -> None:
    pages = [
        f'done {v}\nitems {v}\nwaiting {v}\nseconds_bucket{{le="+Inf"}} {v}\nquantiles{{quantile="0.99"}} {v}'
        for v in values
    ]
    seen = look(toy, *pages, seconds=seconds)
    for one in seen.readings:
        assert isinstance(one.value, float)
        assert math.isfinite(one.value)
        assert one.signal != "completion.rate" or one.value >= 0
