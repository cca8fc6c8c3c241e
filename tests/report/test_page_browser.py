"""The page in a real Chromium: drawn, quiet, readable at two widths and in two lights, and used with the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.report.html import render, time_series
from latdoctor.report.html.measurement_charts import ChartRows
from latdoctor.report.html.page_inputs import Period
from latdoctor.report.html.page_model import Page, Section, Tone
from tests.report import pages
from tests.report.browser import DESK, DRAWN, OVERFLOWING, PHONE, Browser, Tab, browsing, must_be_drawn, must_be_quiet
from tests.report.test_page import HOSTILE

_LEAST_PICTURE = 20_000  # bytes of a PNG that shows something


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as one:
        yield one


def opened(browser: Browser, page: Page, folder: Path) -> Tab:
    file = folder / "page.html"
    file.write_text(render.render(page), encoding="utf-8")
    tab = browser.tab()
    tab.open(file)
    return tab


@pytest.fixture
def tab(browser: Browser, tmp_path: Path) -> Iterator[Tab]:
    """The incident; whatever a test does with it, nothing was complained of and nothing asked for at its end."""
    one = opened(browser, pages.incident(), tmp_path)
    yield one
    must_be_quiet(one)


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_chart_is_drawn_and_nothing_is_wider_than_the_screen(tab: Tab, width: int) -> None:
    assert must_be_drawn(tab, width) >= 8


@pytest.mark.parametrize("chart", ["stages", "rivals", "account-0"])
def test_bars_are_labelled_with_the_numbers_of_their_table(tab: Tab, chart: str) -> None:
    """The script writes numbers as `units` does."""
    place = f"document.getElementById('chart-{chart}')"
    drawn = tab.ask(f"[...{place}.querySelectorAll('svg text')].map(one => one.textContent.trim())")
    rows = tab.ask(f"[...{place}.parentElement.querySelectorAll('tbody tr')].map(row => row.lastChild.textContent)")
    assert len(set(rows) & set(drawn)) >= 3


@pytest.mark.parametrize("name", ["promo-rush.tar.zst", "gpu-thermal", "no-fault.tar.zst", "dependency-slow.tar.zst"])
def test_a_single_diagnosis_is_drawn_as_well(browser: Browser, tmp_path: Path, name: str) -> None:
    tab = opened(browser, pages.diagnosis(name), tmp_path)
    for width in (PHONE, DESK):
        tab.shape(width)
        assert all(count > 3 for count in tab.ask(DRAWN))
        assert tab.ask(OVERFLOWING) == []
    must_be_quiet(tab)


def test_a_change_of_width_draws_the_charts_anew(tab: Tab) -> None:
    widths = []
    for width in (DESK, PHONE, DESK):
        tab.shape(width)
        widths.append(tab.ask("document.querySelector('.canvas svg').clientWidth"))
    assert widths[0] == widths[2] > widths[1]


def test_light_and_dark_differ_and_both_show_something(tab: Tab) -> None:
    colors, pictures = [], []
    for dark in (False, True):
        tab.shape(DESK, dark=dark)
        colors.append(tab.ask("getComputedStyle(document.body).backgroundColor"))
        pictures.append(tab.picture())
        axis = tab.ask("document.querySelector('.canvas svg text').getAttribute('fill')")
        colors.append(axis)
    assert len(set(colors)) == 4
    assert pictures[0] != pictures[1]
    assert min(map(len, pictures)) > _LEAST_PICTURE


def test_the_keyboard_reaches_everything_and_opens_what_is_folded(tab: Tab) -> None:
    tab.shape(DESK)
    tab.press("Tab")
    assert tab.ask("document.activeElement.className") == "skip"
    assert tab.ask("document.activeElement.getBoundingClientRect().left") >= 0
    tab.press("Enter")
    assert tab.ask("document.activeElement.id") == "answer"
    for _ in range(60):
        tab.press("Tab")
        if tab.ask("document.activeElement.tagName") == "SUMMARY":
            break
    assert not tab.ask("document.activeElement.parentElement.open")
    tab.press("Enter")
    assert tab.ask("document.activeElement.parentElement.open")
    assert tab.ask("document.activeElement.parentElement.querySelector('tbody tr') !== null")
    tab.press("Tab")  # what scrolls by itself can be reached, and so be scrolled
    assert tab.ask("document.activeElement.className") == "scroll"


def test_a_reader_of_the_screen_hears_names(tab: Tab) -> None:
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if "role" in node]
    images = [name for role, name in named if role in ("image", "img")]
    assert len(images) >= 8
    assert all(" from " in name or ":" in name for name in images)
    assert ("heading", "Long requests run alone and starve the batcher") in named
    assert any(role == "navigation" and name == "Sections" for role, name in named)


def test_it_is_printed_in_light_with_patterns_and_within_the_sheet(tab: Tab) -> None:
    tab.shape(PHONE, dark=True)
    ask = "addEventListener('beforeprint', () => { window.seen = [document.querySelectorAll('pattern').length, "
    ask += "getComputedStyle(document.documentElement).getPropertyValue('--card').trim(), "
    ask += "Math.max(...[...document.querySelectorAll('.canvas svg')].map(one => one.clientWidth))]; })"
    tab.ask(ask)
    pdf = tab.printed()
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 3
    patterns, card, width = tab.ask("window.seen")
    assert patterns > 2
    assert card == "#ffffff"
    assert width <= 660
    assert tab.ask("document.documentElement.classList.contains('print')") is False


def test_a_button_shows_the_whole_range_and_the_recent_part_again(browser: Browser, tmp_path: Path) -> None:
    times = tuple(float(time) for time in range(0, 3600, 10))
    found = {("latency.p99", "replica/0"): tuple((time, 5.0 if time < 60 else 1.0) for time in times)}
    chart = time_series.chart(time_series.LATENCY, found, front=Period(3000.0, 3600.0))
    section = Section("latency", "Latency", "charts", ChartRows(((chart,),)))
    tab = opened(browser, Page("title", "critical", Tone.BAD, "headline", "", (section,)), tmp_path)
    tab.shape(DESK)
    labels = "[...document.querySelectorAll('.canvas svg text')].map(one => one.textContent).join(' ')"
    button = "document.querySelector('button.range')"
    front = tab.ask(labels)
    assert tab.ask(f"{button}.textContent") == "Show the whole range"
    tab.ask(f"{button}.click()")
    assert tab.ask(f"{button}.textContent") == "Show the recent part"
    assert "00:10" in tab.ask(labels)
    assert "00:10" not in front
    tab.ask(f"{button}.click()")
    assert tab.ask(labels) == front
    must_be_quiet(tab)


def test_hostile_text_is_shown_and_does_nothing(browser: Browser, tmp_path: Path) -> None:
    tab = opened(browser, pages.incident(HOSTILE), tmp_path)
    for width in (PHONE, DESK):
        tab.shape(width)
        assert tab.ask(OVERFLOWING) == []
    assert "<script>alert(1)</script>" in tab.ask("document.querySelector('h1').textContent")
    assert tab.ask("document.querySelectorAll('img, iframe, object, a[href^=javascript]').length") == 0
    assert tab.ask("document.scripts.length") == 2
    assert all(count > 3 for count in tab.ask(DRAWN))
    must_be_quiet(tab)


def test_what_the_policy_forbids_is_stopped_and_would_be_seen_here(browser: Browser, tmp_path: Path) -> None:
    """So that the quiet of the other tests tells something."""
    file = tmp_path / "page.html"
    text = render.render(pages.diagnosis("no-fault.tar.zst"))
    injected = "<script>document.title = 'run'</script><img src='http://127.0.0.1:9/x'></body>"
    file.write_text(text.replace("</body>", injected), encoding="utf-8")
    tab = browser.tab()
    tab.open(file)
    tab.shape(DESK)
    assert tab.ask("document.title") != "run"
    stopped = " ".join(event["entry"]["text"] for event in tab.events("Log.entryAdded"))
    assert "script-src" in stopped
    assert "img-src" in stopped
