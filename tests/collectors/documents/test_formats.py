"""Each format of text by its cases: `cases/<format>/<name>.txt` and what it must yield in `<name>.yaml` beside it.

readings: {subject: {signal: value}}     # values in base units; a number is compared to six digits; `signal{a=b}`
series: {subject: {signal: [values]}}
events: [{signal: …, subject: …, field: value}]
unknown: {subject: [signals]}            # neither a reading nor zero
gaps: [code]                             # codes of gaps that must be there
absent: [{subject: …}]                   # events that must not be there
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from latdoctor.collectors.documents.formats import ALL
from latdoctor.collectors.documents.reader import parse
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Evidence, Reading

CASES = sorted((Path(__file__).parent / "cases").glob("*/*.txt"))
TAKEN_AT = 1_770_000_000.0  # 2026-02-02 02:40 UTC


def read(path: Path) -> Evidence:
    return parse([Artifact(path.name, "documents", path.name, path.name, TAKEN_AT, path.read_bytes())])


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_text_yields_what_stands_beside_it(path: Path) -> None:
    expected = yaml.safe_load(path.with_suffix(".yaml").read_text())
    found = read(path)
    known = {(one.subject, _named(one)): one.value for one in found.readings}
    for subject, signals in expected.get("readings", {}).items():
        got = {signal: known.get((subject, signal)) for signal in signals}
        assert got == {signal: _about(value) for signal, value in signals.items()}, subject
    for subject, signals in expected.get("unknown", {}).items():
        assert not [signal for signal in signals if (subject, signal) in known]
    for subject, curves in expected.get("series", {}).items():
        got = {one.signal: list(one.values) for one in found.series if one.subject == subject and one.signal in curves}
        assert got == {signal: pytest.approx(values) for signal, values in curves.items()}
    for event in expected.get("events", ()):
        assert any(_matches(one, event) for one in found.events), (event, found.events)
    for event in expected.get("absent", ()):
        assert not [one for one in found.events if _matches(one, event)]
    assert set(expected.get("gaps", ())) <= {gap.code for gap in found.gaps}


@pytest.mark.parametrize(
    "path",
    [path for path in CASES if path.parent.name != "nvidia-bug-report"],  # it contains a whole kernel log
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_a_text_that_is_no_log_counts_as_searched_for_nothing(path: Path) -> None:
    assert read(path).looked == ()


def test_every_format_has_a_case() -> None:
    assert {one.name for one in ALL} <= {path.parent.name for path in CASES}


def _named(reading: Reading) -> str:
    labels = ",".join(f"{key}={value}" for key, value in reading.labels)
    return f"{reading.signal}{{{labels}}}" if labels else reading.signal


def _about(value: object) -> object:
    return value if isinstance(value, str) else pytest.approx(value, rel=1e-6)


def _matches(event: Event, expected: dict[str, Any]) -> bool:
    parts: dict[str, Any] = {**event.fields, "signal": event.signal, "subject": event.subject, "time": event.time}
    return all(parts.get(name) == value for name, value in expected.items())
