"""Times of day without a date get the day of the file or of a line before; where that is a guess, a gap says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.file_kinds import FileKind, recognise
from latdoctor.collectors.logs import collector as logs
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.gap_code import GapCode

NOON = 1772712000.0  # 2026-03-05 12:00:00 UTC
FAILED = "RuntimeError: CUDA error: device-side assert triggered"
LOG = f"11:58:00,500 INFO worker: ready\n11:59:00,250 ERROR worker: {FAILED}\n11:59:58,000 INFO worker: done\n"


def read(text: str, modified_at: float | None) -> Evidence:
    return logs.READER.parse([Artifact("logs/k", "logs", "k", "k", NOON + 90_000, text.encode(), modified_at)])


def failed_at(found: Evidence) -> float | None:
    (event,) = [one for one in found.events if one.signal == "log.cuda_error"]
    return event.time


def guessed(found: Evidence) -> bool:
    return any(gap.code == GapCode.AMBIGUOUS and "no date" in gap.reason for gap in found.gaps)


@pytest.mark.parametrize("hours", [0, 2, -5, 9])
def test_the_file_shows_the_day_and_the_zone(hours: int) -> None:
    """The file was changed a second or two after its last line, by a clock that is whole hours away."""
    found = read(LOG, NOON - 1.0 - hours * 3600.0)
    assert failed_at(found) == NOON - 59.75 - hours * 3600.0
    assert not guessed(found)


@pytest.mark.parametrize("modified_at", [NOON + 1234.0, None], ids=["copied", "stream"])
def test_the_day_of_a_copy_is_a_guess_that_is_said(modified_at: float | None) -> None:
    found = read(LOG, modified_at)
    assert failed_at(found) is not None
    assert guessed(found)


def test_midnight_begins_a_new_day() -> None:
    lines = LOG.replace("11:58:00,500", "23:58:00").replace("11:59:00,250", "23:59:00").replace("11:59:58", "00:00:10")
    assert failed_at(read(lines, 1772668811.0)) == 1772668740.0  # 2026-03-04 23:59:00


def test_a_line_with_a_date_gives_the_day() -> None:
    found = read(f"2026-02-01 11:57:00 INFO start\n{LOG}", NOON + 1234.0)
    assert failed_at(found) == 1769947140.25
    assert not guessed(found)


def test_a_traceback_has_the_time_of_the_line_before_it() -> None:
    text = (
        f"11:58:00 INFO ready\n11:59:00 ERROR failed\nTraceback (most recent call last):\n{FAILED}\n11:59:59 INFO x\n"
    )
    assert failed_at(read(text, NOON - 1)) == NOON - 60


@pytest.mark.parametrize(
    "line", ["[{}] INFO ready", "INFO {} [app.py:3] ready", "{} | WARNING | slow", "{}.123 ERROR x"]
)
def test_forms_of_times(line: str, tmp_path: Path) -> None:
    text = "".join(line.format(f"11:5{number}:00") + "\n" for number in range(9)) + "11:59:00 ERROR " + FAILED + "\n"
    assert failed_at(read(text, NOON - 55)) == NOON - 60
    (tmp_path / "x.txt").write_text(text)
    known = recognise(tmp_path / "x.txt")
    assert known is not None
    assert known.kind == FileKind.LOG


def test_a_table_of_figures_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("".join(f"10:02:{number}     all      1.2      0.3\n" for number in range(10, 40)))
    known = recognise(tmp_path / "x.txt")
    assert known is None or known.kind != FileKind.LOG


@settings(deadline=None, max_examples=100)
@given(
    lines=st.lists(st.sampled_from([*LOG.splitlines(), "99:99:99 INFO", "00:00:00 INFO x", "x", ""]), max_size=30),
    modified_at=st.floats(0, 4e9),
)
def test_any_order_of_lines_is_read(lines: list[str], modified_at: float) -> None:
    try:
        read("\n".join(lines), modified_at)
    except SourceError:
        return
