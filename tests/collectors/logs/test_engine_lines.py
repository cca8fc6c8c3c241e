"""Each sample in engines/ gives exactly the readings, series and events in the JSON file beside it.

LATDOCTOR_GOLDEN=write writes the expectations anew: read the difference.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors import logs
from latdoctor.collectors.documents import reader as documents
from latdoctor.collectors.file_kinds import FileKind, recognise
from latdoctor.collectors.logs import engine_formats
from latdoctor.collectors.logs.collector import parse
from latdoctor.collectors.time_range import TimeRange, with_time_range
from latdoctor.errors import DefinitionError, SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import Evidence

FOLDER = Path(__file__).parent / "engines"
SAMPLES = sorted(FOLDER.glob("*.log"))
NOW = 1_795_600_000.0  # 25 November 2026


def read(content: bytes, asked: TimeRange | None = None) -> Evidence:
    return parse(with_time_range(Artifact("logs/a", "logs", "a", "a", NOW, content), asked))


def moment(time: float | None) -> str:
    return "" if time is None else datetime.datetime.fromtimestamp(time, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def shown(found: Evidence) -> dict[str, list[str]]:
    """What was found, one line each."""
    readings = [f"{one.subject} {one.signal} {one.bound}{one.value:.6g}" for one in found.readings]
    spread = [
        f"{one.subject} {one.signal} {one.count:g} × {(one.total or 0) / one.count:.6g}" for one in found.distributions
    ]
    series = [
        f"{one.subject} {one.signal}{''.join(f' {value}' for _, value in one.labels)} "
        f"{len(one.times)} from {moment(one.times[0])} {one.values[0]:.6g} "
        f"to {moment(one.times[-1])} {one.values[-1]:.6g}"
        for one in found.series
    ]
    events = [
        f"{one.subject} {one.signal} {moment(one.time)} {one.origin.place} "
        + " ".join(f"{key}={one.fields[key]}" for key in sorted(one.fields))
        for one in found.events
    ]
    return {"readings": readings, "distributions": spread, "series": series, "events": events}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_read_as_expected(path: Path) -> None:
    expected = path.with_suffix(".json")
    found = shown(read(path.read_bytes()))
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(expected.read_text())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_read_without_an_option(path: Path) -> None:
    """As a log, or without any time as a text in which lines of a log stand."""
    known = recognise(path)
    content = path.read_bytes()
    if known is None:
        artifact = Artifact("documents/a", "documents", "a", "a", NOW, content)
        assert {one.signal for one in documents.parse([artifact]).readings} >= {
            one.signal for one in read(content).readings
        }
    else:
        assert known.kind == FileKind.LOG


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_engine_lines_rule_nothing_out(path: Path) -> None:
    found = read(path.read_bytes())
    given = engine_formats.given_signals()
    assert not [signal for signal, _ in found.looked if signal in given]


def test_every_server_has_a_sample_and_every_kind_of_line_is_of_a_known_signal() -> None:
    named = {path.stem for path in SAMPLES}
    assert {
        form.id for form in engine_formats.formats() if not any(name.startswith(form.id) for name in named)
    } == set()
    events = {rule.event for _, rule in engine_formats.rules() if rule.event}
    assert {signal for signal in events if catalogue()[signal].kind != SignalKind.EVENT} == set()


def test_the_package_declares_the_signals_of_the_formats() -> None:
    assert set(logs.ENGINE_SIGNALS) == engine_formats.given_signals()


def test_only_the_requested_time_is_judged() -> None:
    rows = [
        f"2026-03-01T10:{minute:02d}:00Z Avg prompt throughput: 0.0 tokens/s, "
        f"Avg generation throughput: {minute}.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
        for minute in range(60)
    ]
    until = 1772361000.0  # 10:30
    found = read("\n".join(rows).encode(), TimeRange(until - 1200, until, 300.0))
    (series,) = (one for one in found.series if one.signal == "output.token_rate")
    assert (series.values[0], series.values[-1]) == (10.0, 30.0)
    (rate,) = (one for one in found.readings if one.signal == "output.token_rate")
    assert rate.value == pytest.approx(27.5)  # 25 to 30


def test_colours_of_a_terminal_are_left_out() -> None:
    line = b"\x1b[2m2026-07-01 16:20:00\x1b[0m INFO Running: \x1b[1m4\x1b[0m reqs, GPU KV cache usage: 7.0%\n"
    assert {one.signal: one.value for one in read(line).readings}["requests.running"] == 4.0


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_lines_are_read_without_an_error(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([path.read_bytes() for path in SAMPLES])))
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        content[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=12))
    with contextlib.suppress(SourceError):  # nothing is left, or it is no text any more
        read(bytes(content[: data.draw(st.integers(1, max(1, len(content))))]))


def test_every_problem_of_a_format_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "id: a\ntitle: A\nlines:\n  - id: x\n    hints: [y]\n    values:\n"
        "      kv.usage: {find: 'no group', unit: '%'}\n"
        "      nothing.known: {find: '{}'}\n"
        "      latency: {find: '{}', unit: s}\n"
        "      queue.depth: {find: '{}', unit: s}\n"
        "      requests.running: {find: '({}', surplus: 1}\n"
    )
    with pytest.raises(DefinitionError) as raised:
        engine_formats.read_formats(tmp_path)
    assert len(raised.value.problems) >= 4
