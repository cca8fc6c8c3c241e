"""What is drawn: numbers that are the evidence's own, holes where nothing was measured, and a table beside it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.evidence.model import Bucket, Distribution, Evidence, Origin, Reading, Series
from latdoctor.incident.timeline import timeline
from latdoctor.incident.timeline_model import Timeline
from latdoctor.report.html import chart_tables, charts, distributions, incident_page, time_series
from latdoctor.report.html.page_inputs import Snapshot
from latdoctor.report.html.page_model import (
    Bars,
    Group,
    Limit,
    Line,
    Lines,
    Mark,
    MarkKind,
    Missing,
    Score,
    ScoreBreakdown,
    Stage,
    StageTrack,
    Waterfall,
)
from tests.incident.scenarios import long
from tests.report import pages

PLACE = Origin("page.prom")


def seen(name: str, *, readings: dict[str, float] | None = None, **parts: object) -> Snapshot:
    told = tuple(Reading(signal, "replica/0", value, PLACE) for signal, value in (readings or {}).items())
    return Snapshot(name, None, Evidence(readings=told, **parts), None, 100.0)  # type: ignore[arg-type]


def spread(signal: str, counts: dict[tuple[float, float], float], subject: str = "replica/0") -> Distribution:
    return Distribution(
        signal, subject, tuple(Bucket(low, high, count) for (low, high), count in counts.items()), PLACE
    )


def test_lines_are_drawn_with_their_limit_their_marks_and_a_table() -> None:
    chart = Lines(
        "latency",
        "Latency",
        "time",
        (Line("P99", (10.0, 20.0, 30.0), (0.1, None, 3.0)),),
        (Limit("SLO", 0.5),),
        (Mark(15.0, "1", "10:00:15 changed", MarkKind.CHANGED),),
    )
    options = charts.options(chart)
    assert options["series"][0]["data"] == [[10_000.0, 0.1], [20_000.0, None], [30_000.0, 3.0]]
    limit, mark = options["series"][0]["markLine"]["data"]
    assert (limit["yAxis"], mark["xAxis"], mark["label"]["formatter"]) == (0.5, 15_000.0, "1")
    assert chart_tables.table(chart).rows[1] == ("1970-01-01 00:00:20", "not measured")
    assert chart_tables.table(chart).rows[2][1] == "3 s"
    assert "P99 from 100 ms to 3 s" in chart_tables.summary(chart)


def test_a_limit_above_every_value_is_within_the_axis() -> None:
    line = Line("P99", (0.0, 1.0), (0.1, 0.2))
    assert charts.options(Lines("l", "L", "time", (line,), (Limit("SLO", 0.5),)))["yAxis"]["max"] > 0.5
    assert "max" not in charts.options(Lines("l", "L", "time", (line,), (Limit("SLO", 0.15),)))["yAxis"]


def test_sizes_have_steps_of_powers_of_two() -> None:
    axis = charts.options(Lines("m", "M", "bytes", (Line("held", (0.0, 1.0), (1e9, 1.4e9)),)))["yAxis"]
    assert math.log2(axis["interval"]).is_integer()
    assert axis["max"] >= 1.4e9


def test_a_name_from_outside_is_no_template() -> None:
    options = charts.options(Lines("l", "L", "time", (Line("{b|x}", (0.0, 1.0), (1.0, 2.0)),)))
    assert options["series"][0]["name"] == "(b/x)"


def test_long_tables_are_thinned_and_say_so() -> None:
    times = tuple(float(time) for time in range(1000))
    table = chart_tables.table(Lines("l", "L", "time", (Line("P99", times, times),)))
    assert len(table.rows) <= chart_tables.MAX_ROWS
    assert "every 4th of 1000" in table.note


def test_a_waterfall_begins_each_stage_where_the_last_one_ends() -> None:
    chart = Waterfall(
        "s", "S", "time", (StageTrack("before", (Stage("queue", 2.0), Stage("model", 1.0), Stage("tiny", 1e-6))),)
    )
    way, mean = charts.options(chart)["series"]
    assert way["data"] == [0, 2.0]
    assert [row["value"] for row in mean["data"]] == [2.0, 1.0]
    assert charts.rows(chart) == 2
    assert [row[1] for row in chart_tables.table(chart).rows] == ["queue", "model", "tiny"]


def test_an_account_adds_up_in_its_table() -> None:
    chart = ScoreBreakdown("a", "A", (Score("for", 15), Score("against", -3)))
    assert chart_tables.table(chart).rows[-1] == ("total", "+12")
    assert chart_tables.table(chart).rows[1] == ("against", "−3")


def test_bars_have_a_column_for_each_group() -> None:
    chart = Bars("b", "B", "size", "ratio", ("1", "2"), (Group("before", (0.5, 0.5)), Group("after", (1.0, None))))
    assert chart_tables.table(chart).rows == (("1", "50 %", "100 %"), ("2", "50 %", "not measured"))
    assert [row["data"] for row in charts.options(chart)["series"]] == [[0.5, 0.5], [1.0, None]]


def test_nothing_is_drawn_where_for_long_nothing_was_measured() -> None:
    times = (0.0, 5.0, 10.0, 60.0, 65.0)
    look = seen("now", series=(Series("latency.p99", "replica/0", times, (1.0, 1.0, 1.0, 2.0, 2.0), PLACE),))
    chart = time_series.chart(time_series.LATENCY, time_series.measured(None, (look,)))
    assert isinstance(chart, Lines)
    (line,) = chart.lines
    assert (15.0, None) in zip(line.times, line.values, strict=True)


def test_samples_come_before_series() -> None:
    found = time_series.measured(pages.told(), pages.looks())
    assert {subject for _, subject in found} == {"service"}
    assert isinstance(time_series.chart(time_series.LATENCY, found), Lines)


def test_marks_from_long_before_are_not_drawn() -> None:
    look = seen("now", series=(Series("latency.p99", "replica/0", (100.0, 110.0), (1.0, 2.0), PLACE),))
    marks = (Mark(0.0, "1", "long ago", MarkKind.EVENT), Mark(97.0, "2", "just before", MarkKind.EVENT))
    chart = time_series.chart(time_series.LATENCY, time_series.measured(None, (look,)), (), marks)
    assert isinstance(chart, Lines)
    assert [mark.label for mark in chart.marks] == ["2"]


def test_replicas_are_drawn_apart_and_those_left_out_are_counted() -> None:
    series = tuple(Series("latency.p99", f"replica/{at}", (0.0, 1.0), (at, at), PLACE) for at in range(1, 6))
    chart = time_series.chart(time_series.LATENCY, time_series.measured(None, (seen("now", series=series),)))
    assert isinstance(chart, Lines)
    assert [line.name for line in chart.lines] == ["P99 of replica/5", "P99 of replica/4", "P99 of replica/3"]
    assert "2 more" in chart.note


def test_what_no_source_told_says_what_would() -> None:
    missing = time_series.chart(time_series.LATENCY, {})
    assert isinstance(missing, Missing)
    assert "--log FILE" in missing.why


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=400), st.integers(1, 50))
def test_thinning_keeps_the_peak(values: list[float], most: int) -> None:
    points = [(float(place), value) for place, value in enumerate(values)]
    kept = time_series.thinned(points, most)
    assert len(kept) <= max(most, 1)
    assert max(value or 0.0 for _, value in kept) == max(values)


EDGES = st.lists(st.integers(0, 60), min_size=2, max_size=20, unique=True).map(sorted)


@st.composite
def buckets(draw: st.DrawFn) -> tuple[Bucket, ...]:
    edges = draw(EDGES)
    counts = draw(st.lists(st.integers(0, 9), min_size=len(edges) - 1, max_size=len(edges) - 1).filter(any))
    return tuple(Bucket(low, high, count) for low, high, count in zip(edges, edges[1:], counts, strict=False))


@given(st.lists(buckets(), min_size=1, max_size=3))
def test_shares_of_every_look_add_up(parts: list[tuple[Bucket, ...]]) -> None:
    names, rows = distributions.aligned(parts, "count")
    assert len(names) <= distributions.MAX_BARS
    assert len(set(names)) == len(names)
    for row in rows:
        assert len(row) == len(names)
        assert sum(row) == pytest.approx(1)


def test_looks_with_other_buckets_are_compared_where_both_divide() -> None:
    """A bucket of one look that holds nothing hides no edge of the other."""
    names, (first, second) = distributions.aligned(
        [(Bucket(0, 1, 3), Bucket(4, 5, 1)), (Bucket(0, 1, 1), Bucket(1, 2, 0), Bucket(2, 5, 1))], "count"
    )
    assert names == ("1", "2", "3–5")
    assert first == [0.75, 0, 0.25]
    assert second == [0.5, 0, 0.5]


def test_batches_before_and_after_stand_side_by_side() -> None:
    looks = (
        seen("before", distributions=(spread("batch.size", {(0, 1): 5, (4, 5): 5}),)),
        seen("afterwards", distributions=(spread("batch.size", {(0, 1): 1, (1, 2): 3}),)),
        seen("later"),
    )
    chart = distributions.histogram(distributions.BATCHES[0], looks)
    assert isinstance(chart, Bars)
    assert [group.name for group in chart.groups] == ["before", "afterwards"]
    assert "10 before, 4 afterwards" in chart.note
    assert "not measured later" in chart.note


def test_stages_that_are_not_told_apart_are_not_hidden() -> None:
    told = {"latency.mean": 1.0, "queue.time.mean": 0.6, "compute.time.mean": 0.1}
    chart = distributions.stage_chart((seen("now", readings=told),))
    assert isinstance(chart, Waterfall)
    (track,) = chart.tracks
    assert [(piece.name, round(piece.length, 3)) for piece in track.stages] == [
        ("queue", 0.6),
        ("model", 0.1),
        ("other", 0.3),
    ]


def test_prefill_and_decode_are_the_model_and_what_does_not_fit_is_said() -> None:
    told = {"latency.mean": 1.0, "compute.time.mean": 0.9, "prefill.time.mean": 0.2, "decode.time.mean": 1.0}
    chart = distributions.stage_chart((seen("now", readings=told), seen("later")))
    assert isinstance(chart, Waterfall)
    assert [piece.name for piece in chart.tracks[0].stages] == ["prefill", "decode"]
    assert "add up to 1.2 s, the mean latency is 1 s" in chart.note
    assert "not measured later" in chart.note


def test_without_stages_there_is_a_reason() -> None:
    assert isinstance(distributions.stage_chart((seen("now"),)), Missing)


def test_the_clock_counts_from_the_start_even_where_somebody_sets_it() -> None:
    told: Timeline = pages.told()
    times = [time for points in time_series.measured(told, ()).values() for time, _ in points]
    assert times == sorted(times) or len(times) > 1
    assert max(times) - min(times) == pytest.approx(196 - 20, abs=1)


def test_the_marks_are_few_and_changes_are_the_last_to_be_left_out() -> None:
    marks = incident_page.marks(timeline(long(2000).incident))
    assert len(marks) <= incident_page.MAX_MARKS
    assert [mark.label for mark in marks] == [str(place) for place in range(1, len(marks) + 1)]
    told = incident_page.marks(pages.told())
    assert [mark.kind for mark in told if mark.kind != "event"] == ["changed", "verified", "due"]
    assert [mark.label for mark in told][-1] == "60 s"
