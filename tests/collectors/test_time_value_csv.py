"""CSV files of times and values as other programs export them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from latdoctor.collectors.time_value_csv import read_series
from latdoctor.errors import OperationError, SourceError

NOON = 1_790_596_800.0  # 2026-09-28 12:00 UTC


def read(folder: Path, text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    path = folder / "rates.csv"
    path.write_text(text)
    found = read_series(path)
    return found.times, found.values


@pytest.mark.parametrize(
    "text",
    [
        "time,value\n2026-09-28T12:00:00Z,1\n2026-09-28T12:05:00Z,2.5\n",
        "2026-09-28 12:00:00,1\n2026-09-28 12:05:00,2.5\n",
        "timestamp,value,label,notes\n2026-09-28 12:00:00,1,0,\n2026-09-28 12:05:00,2.5,0,\n",
        "name,requests,Time\na,1,1790596800\na,2.5,1790597100\n",
        "time,value\n1790596800000,1\n1790597100000,2.5\n",
        "time,value\n2026-09-28T14:00:00+02:00,1\n2026-09-28T12:05:00Z,2.5\n",
        "\ufefftime, value\n2026-09-28T12:05:00Z, 2.5\n2026-09-28T12:00:00Z, 1\n",
        '"ds","y"\n"2026-09-28","9"\n2026-09-28T12:00:00Z,1\n2026-09-28T12:05:00Z,2.5\n',
    ],
)
def test_times_and_values_of_any_usual_form_are_read_in_order(text: str, tmp_path: Path) -> None:
    times, values = read(tmp_path, text)
    assert times[-2:] == (NOON, NOON + 300)
    assert values[-2:] == (1.0, 2.5)


def test_an_empty_value_is_no_sample(tmp_path: Path) -> None:
    times, values = read(tmp_path, "time,value\n0,1\n60,\n120,3\n180,nan\n")
    assert (times, values) == ((0.0, 120.0), (1.0, 3.0))


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "time\n1\n2\n", "time,value\nyesterday,3\n", "time,value\n0,many\n",
        "time,value\n0,1\n1,2,3,4\n", "\0\0\0\0,\0\n",
    ],
)  # fmt: skip
def test_what_is_no_series_is_refused_with_the_form_to_write(text: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        read(tmp_path, text)
    assert "rates.csv" in str(refused.value)
    assert "time,value" in refused.value.next_step


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.csv: cannot be read: No such file"):
        read_series(tmp_path / "none.csv")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="it is a pipe"):
        read_series(tmp_path / "pipe")


def test_without_pandas_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OperationError) as missing:
        read(tmp_path, "time,value\n0,1\n")
    assert "latdoctor[plan]" in missing.value.next_step
