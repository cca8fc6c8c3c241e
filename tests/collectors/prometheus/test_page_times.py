"""Rates of saved pages need the time between them: by what the pages tell, and never by what the files do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.collectors.prometheus.test_saved_pages import FIRST, LAST, read, values

UNKNOWN = "the time between the saved pages is unknown"


def rate(folder: Path, first: str, last: str) -> object:
    """The completion rate of two saved pages with these lines at their ends, or why there is none."""
    paths = []
    for name, text in (("a", FIRST + first), ("b", LAST + last)):
        paths.append(folder / f"{name}.prom")
        paths[-1].write_text(text, encoding="utf-8")
    seen = read(*paths)
    told = values(seen, "model/m@a").get("completion.rate")
    return told if told is not None else seen.gaps_by_signal["completion.rate"][0].reason.partition(": ")[2]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("node_time_seconds 1.7e9\n", "node_time_seconds 1.70000001e9\n"),
        (
            "process_start_time_seconds 1.7e9\nprocess_uptime_seconds 30\n",
            "process_start_time_seconds 1.7e9\nprocess_uptime_seconds 40\n",
        ),
        (
            "ref_start_time_seconds 1.7e9\nref_uptime_seconds 0\n",
            "ref_start_time_seconds 1.7e9\nref_uptime_seconds 10\n",
        ),
    ],
)
def test_a_clock_on_every_page_gives_the_time_between_them(first: str, last: str, tmp_path: Path) -> None:
    assert rate(tmp_path, first, last) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("", ""),
        ("node_time_seconds 1.7e9\n", ""),
        ("", "node_time_seconds 1.7e9\n"),
        ("node_time_seconds 1.7e9\n", "node_time_seconds 1.7e9\n"),
        ("node_time_seconds 1.7e9\n", "node_time_seconds 1.6e9\n"),
        ("node_time_seconds 1.7e9\n", "node_time_seconds NaN\n"),
        ("node_time_seconds 1.7e9\n", 'node_time_seconds{n="a"} 1.7e9\nnode_time_seconds{n="b"} 1.8e9\n'),
        ("process_uptime_seconds 10\n", "process_uptime_seconds 20\n"),  # of one process, or of two
    ],
)
def test_an_uncertain_clock_gives_no_time(first: str, last: str, tmp_path: Path) -> None:
    assert str(rate(tmp_path, first, last)).startswith(UNKNOWN)


def test_a_process_that_started_anew_has_no_rate_though_its_clock_goes_on(tmp_path: Path) -> None:
    first = "process_start_time_seconds 1.7e9\nprocess_uptime_seconds 10\n"
    last = "process_start_time_seconds 1.70001e9\nprocess_uptime_seconds 20\n"
    assert "restarted" in str(rate(tmp_path, first, last))


def test_file_modification_times_are_not_used(tmp_path: Path) -> None:
    paths = [tmp_path / "a.prom", tmp_path / "b.prom"]
    for path, text, at in zip(paths, (FIRST, LAST), (1_700_000_000, 1_700_000_010), strict=True):
        path.write_text(text, encoding="utf-8")
        os.utime(path, (at, at))
    seen = read(*paths)
    assert "completion.rate" not in values(seen, "model/m@a")
    assert {one.window.start for one in seen.readings} == {None}
