"""The arrival rate over the whole time of an access log, however long it is."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Iterable
from pathlib import Path

import pytest

from latdoctor.collectors.access_log import arrival_history as module
from latdoctor.collectors.access_log import request_gathering
from latdoctor.collectors.access_log.arrival_history import arrival_history
from latdoctor.collectors.time_range import TimeRange
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Series
from latdoctor.gap_code import GapCode

START = 1_790_596_800  # 2026-09-28 12:00 UTC


def nginx(times: Iterable[float], path: str = "/generate", seconds: float = 0.25) -> str:
    """Lines of nginx with the duration in seconds, as the requests ended."""
    lines = []
    for time in times:
        shown = datetime.datetime.fromtimestamp(time, datetime.UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        lines.append(f'10.0.0.1 - - [{shown}] "POST {path} HTTP/1.1" 200 512 "-" "app" {seconds:.3f}')
    return "\n".join(lines) + "\n"


def rates_of(path: Path, past: TimeRange | None) -> Series:
    found = arrival_history(path, past)
    assert not found.gaps
    (series,) = found.series
    return series


def each_second(*counts: int) -> list[float]:
    return [START + second + 0.5 for second, count in enumerate(counts) for _ in range(count)]


def test_each_second_has_its_rate_and_a_second_without_requests_is_zero(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(nginx(each_second(*[3, 3, 3, 0, 0, 7] * 30), seconds=0.0))
    found = rates_of(tmp_path / "access.log", None)
    by_time = dict(zip(found.times, found.values, strict=True))
    assert [by_time[START + second] for second in range(7, 13)] == [3, 3, 3, 0, 0, 7]
    assert min(found.times) == START + 2, "the first step is incomplete"
    assert START + 175 < max(found.times) < START + 180, "and so are the last ones"


def test_a_packed_log_is_read_and_probes_are_no_arrivals(tmp_path: Path) -> None:
    text = nginx(each_second(*[2] * 60)) + nginx(each_second(*[5] * 60), "/health")
    (tmp_path / "access.log.gz").write_bytes(gzip.compress(text.encode()))
    assert set(rates_of(tmp_path / "access.log.gz", None).values) == {2.0}


def test_requests_that_are_no_longer_kept_one_by_one_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "access.log").write_text(nginx(each_second(*[4, 1] * 300), seconds=0.0))
    whole = rates_of(tmp_path / "access.log", None)
    monkeypatch.setattr(request_gathering, "MOST", 50)
    assert rates_of(tmp_path / "access.log", None).values == whole.values


def test_steps_of_a_log_of_many_days_are_wider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 40)
    (tmp_path / "access.log").write_text(nginx(each_second(*[4] * 300), seconds=0.0))
    found = rates_of(tmp_path / "access.log", None)
    assert {later - earlier for earlier, later in zip(found.times, found.times[1:], strict=False)} == {8.0}
    assert set(found.values) == {4.0}


def test_only_the_requested_time_is_read(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(nginx(each_second(*[4] * 300), seconds=0.0))
    found = rates_of(tmp_path / "access.log", TimeRange(START + 100, START + 200, 100))
    assert min(found.times) >= START + 100
    assert max(found.times) <= START + 200


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "contains no readable request"),
        ("starting up\nlistening on 8000\n", "contains no readable request"),
        (nginx([START, START + 0.2]), "has no requests with times"),
    ],
)
def test_a_log_without_a_rate_is_refused(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(text)
    with pytest.raises(SourceError, match=what):
        arrival_history(tmp_path / "access.log", None)


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        arrival_history(tmp_path / "none.log", None)


def test_what_is_missing_in_the_rates_is_said(tmp_path: Path) -> None:
    text = nginx(each_second(*[2] * 60)) + "no request at all\n" * 30
    (tmp_path / "access.log").write_text(text)
    (gap,) = arrival_history(tmp_path / "access.log", None).gaps
    assert (gap.code, "30 lines could not be read as requests" in gap.reason) == (GapCode.UNREADABLE, True)
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(nginx(each_second(*[2] * 600)).encode())[:-200])
    (gap,) = arrival_history(tmp_path / "cut.log.gz", None).gaps
    assert "truncated" in gap.reason
