"""The head of a page and its charts agree: lines of the terminal, the same number, recent time in front."""

from __future__ import annotations

import datetime
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from latdoctor.report.answer import answer
from latdoctor.report.fit_to_screen import Rank
from latdoctor.report.html import charts, diagnosis_page, incident_page, render
from latdoctor.report.html.measurement_charts import ChartRows
from latdoctor.report.html.page_inputs import BEFORE, Period
from latdoctor.report.html.page_model import Highlight, Line, Lines, Missing, Page
from latdoctor.report.html.time_series import LATENCY, chart
from latdoctor.report.vital_signs import headline_latency, phrase
from tests.cli.running import run
from tests.report import pages
from tests.report.test_page import Reader

START = datetime.datetime(2026, 11, 22, 6, tzinfo=datetime.UTC)
HOURS, SLOW = 3, 420  # recorded, and the seconds at their end that are slow
NAMES = ("promo-rush.tar.zst", "gpu-thermal", "no-fault.tar.zst", "dependency-slow.tar.zst", "burst.tar.zst")


@pytest.fixture(scope="module")
def access_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours of requests: a slow half minute in the second, and slow for the last seven minutes."""
    rng = random.Random(1)
    path = tmp_path_factory.mktemp("log") / "access.log"
    with path.open("w") as file:
        for second in range(HOURS * 3600):
            at = START + datetime.timedelta(seconds=second)
            late = second >= HOURS * 3600 - SLOW
            for _ in range(2):
                took = 6.0 if 4000 < second < 4030 else rng.gauss(2.0, 0.4) if late else abs(rng.gauss(0.12, 0.03))
                file.write(
                    f'10.0.0.1 - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "POST /v1 HTTP/1.1" 200 5 "-" "x" {took:.3f}\n'
                )
    return path


@pytest.fixture(scope="module")
def page(access_log: Path) -> tuple[Reader, str]:
    """The page of that log, and what the terminal shows."""
    file = access_log.with_suffix(".html")
    outcome = run(["diagnose", "--log", str(access_log), "--slo", "500ms", "--html", str(file)])
    return Reader(file.read_text(encoding="utf-8")), outcome.out


def series(read: Reader, attribute: str) -> dict[str, dict[str, Any]]:
    """What the chart of latency draws, by name."""
    (canvas,) = [attributes for _, attributes in read.tags if attributes.get("id") == "chart-latency"]
    return {one["name"]: one for one in json.loads(canvas[attribute])["series"]}


def squeezed(text: str) -> str:
    return re.sub(r"[\s\\]+", " ", text).strip().lower()


@pytest.mark.parametrize("name", NAMES)
def test_the_page_begins_with_the_lines_of_the_terminal(name: str) -> None:
    found, _ = pages.looked(name)
    page = pages.diagnosis(name)
    texts = squeezed(Reader(render.render(page)).text)
    place = 0
    for line in answer(found):
        if line.text and line.rank != Rank.MORE:
            place = texts.find(squeezed(line.text), place)
            assert place >= 0, line.text
    assert place < texts.index(" ".join(section.title for section in page.sections).lower())


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_the_headline_is_the_one_that_the_chart_marks(name: str) -> None:
    found, _ = pages.looked(name)
    sign = headline_latency(found)
    assert sign is not None
    shown = pages.diagnosis(name)
    assert phrase(sign) in shown.headline
    (latency,) = [one for one in latency_charts(shown) if one is not None]
    if isinstance(latency, Missing):
        assert phrase(sign) in latency.why
    else:
        assert [(one.value, one.label) for one in latency.highlights] == [(sign.value, phrase(sign))]


def latency_charts(page: Page) -> Iterator[Lines | Missing]:
    """The chart over time, or why there is none."""
    for section in page.sections:
        if section.id == "latency" and isinstance(section.content, ChartRows):
            (found,) = [
                chart
                for row in section.content.rows
                for chart in row
                if "Latency over time" in (getattr(chart, "title", ""), getattr(chart, "what", ""))
            ]
            assert isinstance(found, Lines | Missing)
            yield found


def test_the_chart_of_a_log_marks_the_number_of_the_headline_in_its_window(page: tuple[Reader, str]) -> None:
    read, printed = page
    headline = re.search(r"P99 [\d.]+ m?s", printed)
    assert headline is not None
    marked = series(read, "data-options")["headline"]["data"]
    points = [point["value"] if isinstance(point, dict) else point for point in marked]
    labels = [point["label"]["formatter"] for point in marked if isinstance(point, dict)]
    assert labels == [headline[0]]
    assert headline[0] in read.text[: read.text.index("Latency over time")]
    (start, value), (end, same) = points
    assert value == same == pytest.approx(float(headline[0].split()[1]), rel=0.01)
    drawn = [v for time, v in series(read, "data-options")["P99"]["data"] if start <= time <= end and v is not None]
    assert min(drawn) <= value <= max(drawn) * 1.2


def test_the_recent_minutes_are_in_front_and_the_whole_range_is_a_button_away(page: tuple[Reader, str]) -> None:
    read, _ = page
    end = (START + datetime.timedelta(hours=HOURS)).timestamp() * 1000
    front, whole = (series(read, f"data-{name}")["P99"]["data"] for name in ("options", "whole"))
    assert end - 10_000 <= front[-1][0] <= end
    assert end - 1_800_000 <= front[0][0] < end - SLOW * 1000
    assert whole[0][0] <= START.timestamp() * 1000 + 30_000
    assert max(value for _, value in front if value) < 5 < max(value for _, value in whole if value)
    assert [tag for tag, attributes in read.tags if attributes.get("class") == "range"].count("button") >= 1


def line(*times: float) -> dict[tuple[str, str], tuple[tuple[float, float | None], ...]]:
    return {("latency.p99", "replica/0"): tuple((time, 1.0) for time in times)}


def test_a_chart_without_values_in_the_window_shows_all_and_says_so() -> None:
    highlight = Highlight("headline", "P99 2 s", 2.0, 1000.0, 1060.0)
    shown = chart(LATENCY, line(0.0, 10.0, 20.0), highlights=(highlight,), front=Period(970.0, 1090.0))
    assert isinstance(shown, Lines)
    assert shown.whole is None
    assert "no values from 00:16:10 to 00:18:10" in shown.note
    assert "the lines have no values in this time" in shown.note
    axis = charts.options(shown)["xAxis"]
    assert (axis["min"], axis["max"]) == (0.0, 1_060_000.0)


def test_a_chart_that_is_in_front_as_a_whole_has_no_second_range() -> None:
    shown = chart(LATENCY, line(0.0, 10.0, 20.0), front=Period(-30.0, 50.0))
    assert isinstance(shown, Lines)
    assert (shown.whole, shown.note) == (None, "")
    assert shown.lines == (Line("P99", (0.0, 10.0, 20.0), (1.0, 1.0, 1.0)),)


def test_the_worst_p99_of_an_incident_is_marked_where_it_was_sampled() -> None:
    told = pages.told()
    shown = incident_page.of_incident(told, pages.looks())
    (worst,) = [fact for fact in shown.figures if fact.label == "worst P99"]
    (latency,) = latency_charts(shown)
    assert isinstance(latency, Lines)
    (marked,) = [one for one in latency.highlights if "worst" in one.name]
    assert marked.label == f"P99 {worst.value}"
    peak = max(
        (value, time) for one in latency.lines for time, value in zip(one.times, one.values, strict=True) if value
    )
    assert (marked.value, marked.start) == pytest.approx(peak)


def test_a_comparison_marks_the_number_of_the_diagnosis_and_not_of_the_other_moment() -> None:
    found, evidence = pages.looked("promo-rush.tar.zst")
    calm = pages.looked("no-fault.tar.zst")[1]
    before = pages.Snapshot(BEFORE, None, calm, 0.5, pages.BEGAN)
    now = pages.Snapshot("in this observation", found, evidence, 0.5, pages.BEGAN + 70)
    shown = diagnosis_page.of_diagnosis(found, (before, now))
    sign = headline_latency(found)
    assert sign is not None
    (latency,) = latency_charts(shown)
    assert isinstance(latency, Missing)
    assert phrase(sign) in latency.why


def test_charts_of_load_have_the_time_axis_of_the_latency() -> None:
    shown = incident_page.of_incident(pages.told(), pages.looks())
    drawn = [
        chart
        for section in shown.sections
        if isinstance(section.content, ChartRows)
        for row in section.content.rows
        for chart in row
        if isinstance(chart, Lines)
    ]
    axes = [charts.options(chart)["xAxis"] for chart in drawn]
    assert len(axes) > 2
    assert len({(axis["min"], axis["max"]) for axis in axes}) == 1
