"""Kinds of lines: their readers get exactly the lines with a needle, within the requested time range."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs.candidates import Candidates
from latdoctor.collectors.logs.line_kind import LineKind, LineLocation
from latdoctor.collectors.logs.patterns import FACT_HINTS
from latdoctor.collectors.time_range import TimeRange, with_time_range
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Origin, Reading, Window

NOON = 1769860800.0  # 2026-01-31T12:00:00Z


@dataclass
class Counter:
    artifact: Artifact
    lines: list[LineLocation] = field(default_factory=list)

    def take(self, at: LineLocation) -> None:
        self.lines.append(at)

    def evidence(self, *, complete: bool) -> Evidence:
        times = [at.line.time for at in self.lines if at.line.time is not None]
        window = Window(min(times), max(times)) if times else Window()
        text = " ".join(f"{at.number}:{at.line.message}" for at in self.lines)
        reading = Reading("queue.depth", "node/a", float(complete), Origin(self.artifact.name, text), window)
        return Evidence(readings=(reading,))


@pytest.fixture(autouse=True)
def _kind(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = LineKind("counter", (rb"steps done", rb"(?i:waiting) \d+"), Counter)
    monkeypatch.setattr(logs, "LINE_KINDS", (kind,))
    monkeypatch.setattr(logs, "CANDIDATE", Candidates(FACT_HINTS.pattern, (kind,)))


def read(content: str, asked: TimeRange | None = None) -> str:
    log = Artifact("logs/a", "logs", "a", "a", NOON, content.encode())
    found = logs.READER.parse(with_time_range(log, asked))
    (reading,) = found.readings
    return reading.origin.place


def test_only_lines_with_a_needle_are_read() -> None:
    content = "2026-01-31T11:59:00Z ready\n2026-01-31T11:59:30Z 7 steps done\n2026-01-31T11:59:40Z WAITING 3\n"
    assert read(content) == "2:7 steps done 3:WAITING 3"


def test_records_are_read_by_their_message() -> None:
    rows = [{"time": "2026-01-31T11:59:00Z", "msg": text} for text in ("ready", "7 steps done")]
    assert read("".join(f"{json.dumps(row)}\n" for row in rows)) == "2:7 steps done"


def test_lines_outside_the_time_range_are_left_out() -> None:
    rows = [f"2026-01-31T1{hour}:00:00Z {hour} steps done" for hour in range(3)]
    assert read("\n".join(rows), TimeRange(NOON - 3700, NOON, 300.0)) == "2:1 steps done 3:2 steps done"
