"""A part of a log's time: what happened outside it does not count, and a log that does not reach it claims nothing."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.logs import SIGNALS, line_prefix
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.time_range import SUFFIX, TimeRange, read_time_range, with_time_range
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

NIGHT = 1769828400.0  # 2026-01-31T03:00:00Z
ASKED = TimeRange(NIGHT - 1800, NIGHT, 300.0)
XID = "NVRM: Xid (PCI:0000:9b:00): 48, pid=7, name=x, DBE"


class Clock:
    def now(self) -> float:
        return NIGHT + 7200

    def sleep(self, seconds: float) -> None:
        raise AssertionError("reading files needs no waiting")


def kernel(seconds: float, text: str) -> str:
    """A line of the kernel so many seconds before the end of what is asked for."""
    at = datetime.datetime.fromtimestamp(NIGHT - seconds, datetime.UTC).isoformat()
    return f"{at} gpu-node kernel: {text}"


def application(seconds: float, text: str) -> str:
    at = datetime.datetime.fromtimestamp(NIGHT - seconds, datetime.UTC).isoformat()
    return f"{at} INFO {text}"


def parsed(*lines: str, asked: TimeRange | None = ASKED) -> Evidence:
    log = Artifact("logs/a.log", "logs", "a.log", "a.log", NIGHT + 7200, "\n".join(lines).encode())
    return logs.READER.parse(with_time_range(log, asked))


def counted(found: Evidence, signal: str = "log.xid") -> list[float | None]:
    return [event.time for event in found.events if event.signal == signal]


def looked(found: Evidence) -> set[str]:
    return {signal for signal, subject in found.looked if subject == "node/a.log"}


def test_only_events_in_the_range_count() -> None:
    rows = [kernel(seconds, XID) for seconds in (4000, 1700, 60, -60)]
    found = parsed(kernel(5000, "usb 1-1: new device"), *rows, kernel(-900, "usb 1-1: gone"))
    assert counted(found) == [NIGHT - 1700, NIGHT - 60]
    assert "log.xid" in looked(found)
    assert len(counted(parsed(kernel(5000, "usb 1-1: new device"), *rows, asked=None))) == 4


def test_a_log_that_ends_before_the_judged_time_claims_nothing() -> None:
    found = parsed(kernel(5000, "usb 1-1: new device"), kernel(1000, XID), kernel(301, "usb 1-1: gone"))
    assert counted(found) == [NIGHT - 1000], "what it does tell still counts, as at least that"
    assert looked(found) == set()
    (gap,) = [gap for gap in found.gaps if "the log ends at" in gap.reason]
    assert "ends at 2026-01-31 02:54:59 UTC, and the judged window begins at 2026-01-31 02:55:00 UTC" in gap.reason
    assert set(gap.signals) == set(SIGNALS)
    assert gap.next_step


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [(5000, 299, ""), (299, 0, "the log begins at"), (-10, -20, "the log begins at"), (301, -20, "")],
)
def test_how_far_a_log_must_reach(first: float, last: float, said: str) -> None:
    found = parsed(kernel(first, "usb 1-1: new device"), kernel(last, "usb 1-1: gone"))
    told = [gap for gap in found.gaps if said and said in gap.reason]
    assert bool(told) is bool(said)
    assert ("log.xid" in looked(found)) is not bool(said)


def test_rotated_logs_put_together_reach_as_far_as_the_newest() -> None:
    newer = [kernel(200 - n, "usb 1-1: new device") for n in range(150)]
    older = [kernel(9000 - n, "usb 1-1: new device") for n in range(300)]
    assert "log.xid" in looked(parsed(*newer, *older))
    assert "log.xid" in looked(parsed(*older, *newer))


def test_a_quiet_line_far_in_the_middle_is_found_by_sampling() -> None:
    """Only every fiftieth line of a long log is taken apart: the range of its times comes out all the same."""
    rows = [kernel(5000 - n, "usb 1-1: new device") for n in range(5000)]
    assert "log.xid" in looked(parsed(*rows))


def test_lines_of_a_traceback_have_the_time_above_them() -> None:
    found = parsed(
        application(5000, "up"),
        application(900, "request failed"),
        "Traceback (most recent call last):",
        '  File "serve.py", line 7, in forward',
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        application(10, "still here"),
    )
    assert counted(found, "log.cuda_error") == [NIGHT - 900]
    assert "log.cuda_error" in looked(found)


def test_a_line_too_far_below_has_no_time() -> None:
    lines = [application(5000, "up"), application(900, "failed"), *["  frame"] * 70, "CUDA error: unknown error"]
    found = parsed(*lines, application(10, "up"))
    assert not counted(found, "log.cuda_error")
    assert any("1 log.cuda_error lines have no time" in gap.reason for gap in found.gaps_by_signal["log.cuda_error"])


def test_lines_under_one_time_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    parse = line_prefix.parse
    monkeypatch.setattr(line_prefix, "parse", lambda text, at: looked_at.append(text) or parse(text, at))
    error = "CUDA error: unknown error"
    found = parsed(application(5000, "up"), application(900, "failed"), *[error] * 2000, application(10, "up"))
    assert len(counted(found, "log.cuda_error")) == 64
    assert len(looked_at) < 3 * 2003


def test_a_sticky_error_before_the_time_makes_later_ones_secondary() -> None:
    error = "ERROR CUDA error: an illegal memory access was encountered"
    found = parsed(application(4000, error), application(900, error), application(10, "up"))
    (event,) = (event for event in found.events if event.signal == "log.cuda_error")
    assert event.fields["secondary"] == 1.0


def test_times_since_the_start_of_a_machine_are_no_times_of_day() -> None:
    found = parsed(f"[ 1843.308145] {XID}", "[ 1900.000000] usb 1-1: new device")
    assert not found.events
    assert looked(found) == set()
    said = " / ".join(gap.reason for gap in found.gaps_by_signal["log.xid"])
    assert "have no time of day" in said
    assert "1 log.xid lines" in said


def test_a_change_counts_although_it_is_older() -> None:
    found = parsed(application(4000, "deployed v7"), application(10, "up"), application(-60, "deployed v8"))
    assert counted(found, "change.deployment") == [NIGHT - 4000]


def test_a_missing_time_zone_is_noted_in_a_coverage_gap() -> None:
    found = parsed("Jan 31 02:00:00 host kernel: usb 1-1: new device", "Jan 31 02:50:00 host kernel: usb 1-1: gone")
    assert any("read as UTC" in gap.reason for gap in found.gaps_by_signal["log.xid"])


def test_records_of_a_journal_are_placed_too() -> None:
    def record(seconds: float, text: str) -> str:
        return f'{{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"{int((NIGHT - seconds) * 1e6)}","MESSAGE":"{text}"}}'

    found = parsed(record(5000, "usb"), record(4000, XID), record(60, XID))
    assert counted(found) == [NIGHT - 60]
    assert "log.xid" in looked(found)
    assert looked(parsed(record(5000, "usb"), record(400, "usb"))) == set()


def test_the_time_stays_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_text("\n".join([kernel(5000, "usb"), kernel(4000, XID), kernel(60, "usb")]))
    brought = logs.READER.collect(CollectRequest(logs=(log,), past=ASKED), Clock())
    assert [one.name for one in brought.artifacts] == ["logs/kern.log", f"logs/kern.log{SUFFIX}"]
    assert read_time_range(brought.artifacts) == ASKED
    found = logs.READER.parse(brought.artifacts)
    assert not found.events
    assert ("log.xid", "node/kern.log") in found.looked


@pytest.mark.parametrize(
    "stated",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"since":1,"until":2,"window":9}',
        b'{"since":5,"until":2,"window":1}',
        b'{"since":-1e999,"until":2,"window":1}',
        b"\xff",
    ],
)
def test_a_damaged_time_is_refused(stated: bytes) -> None:
    log = Artifact("logs/a", "logs", "a", "a", NIGHT, b"[ 1.000000] usb 1-1: x\n")
    beside = Artifact(f"logs/a{SUFFIX}", "logs", "a", "a", NIGHT, stated)
    with pytest.raises(SourceError):
        logs.READER.parse([log, beside])


LINES = st.lists(
    st.sampled_from([kernel(60, XID), kernel(4000, XID), f"[ 1.000000] {XID}", "CUDA error: unknown error", XID])
    | st.text(max_size=60),
    max_size=12,
)


@given(LINES, st.floats(0, 4e9), st.floats(1, 1e6))
def test_any_lines_give_a_result_that_rules_out_only_what_was_searched(
    lines: list[str], until: float, window: float
) -> None:
    try:
        found = parsed(*lines, asked=TimeRange(until - window, until, window))
    except SourceError:
        return
    hidden = {signal for gap in found.gaps for signal in gap.signals}
    assert {signal for signal, _ in found.looked} | hidden >= set(SIGNALS)
    assert all(event.time is not None and until - window <= event.time <= until for event in found.events
               if event.signal in SIGNALS)  # fmt: skip
