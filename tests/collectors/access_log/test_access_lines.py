"""Every form of line, from the YAML files beside this one; and patterns of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log import fields, formats
from latdoctor.collectors.access_log.entry import AccessLogEntry
from latdoctor.errors import UsageError
from latdoctor.evidence.redaction.redactor import Redactor

HERE = Path(__file__).parent
CASES = [
    case
    for name in ("lines.yaml", "server_lines.yaml", "proxy_lines.yaml")
    for case in yaml.safe_load((HERE / name).read_text())
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["line"][:60])
def test_line(case: dict[str, Any]) -> None:
    text = formats.line_text(case["line"].encode()) or ""
    found = formats.recognise_format([text])
    if case.get("none"):
        assert found is None
        return
    assert found is not None, "no form"
    form, _ = found
    assert form.title == case["form"]
    entry = form.read(text)
    assert entry is not None
    assert (entry.duration.seconds if entry.duration else None) == pytest.approx(case.get("seconds"))
    assert entry.unit_unknown is case.get("untold", False)
    told = {
        "status": entry.status,
        "outcome": entry.outcome,
        "path": entry.path,
        "id": entry.request_id,
        "replica": entry.replica,
        "reason": entry.failure,
        "behind": entry.upstream_status,
        "attempts": entry.attempts,
    }
    assert {name: told[name] for name in case if name in told} == {name: case[name] for name in case if name in told}
    if "stages" in case:
        assert {str(name): seconds for name, seconds in entry.stages} == pytest.approx(case["stages"])
    assert entry.per_token == pytest.approx(case.get("token"))
    if "went" in case:
        assert entry.ended is not None
        assert entry.ended.time == pytest.approx(case["went"])


@pytest.mark.parametrize("case", [case for case in CASES if not case.get("none")], ids=lambda case: case["line"][:60])
def test_a_redacted_line_reads_the_same(case: dict[str, Any]) -> None:
    raw = case["line"].encode()
    lines = [formats.line_text(one) or "" for one in (raw, Redactor(b"k" * 32).content(raw))]
    first, second = (form[0].read(line) if (form := formats.recognise_format([line])) else None for line in lines)
    assert first is not None
    assert second is not None
    for name in ("status", "duration", "stages", "failure", "ended", "attempts", "upstream_status", "is_probe"):
        assert getattr(first, name) == getattr(second, name)


@pytest.mark.parametrize(
    ("text", "unit", "seconds", "step"),
    [
        ("0.123", 1.0, 0.123, 1e-3),
        ("12", 1.0, 12.0, 1.0),
        ("12", None, None, None),
        ("12ms", None, 0.012, 1e-3),
        ("1m2.5s", None, 62.5, 0.1),
        ("1.5\u03bcs", None, 1.5e-6, 1e-7),
        ("2.5e-3s", None, 0.0025, 1.0),
        ("-1", 1.0, None, None),
        ("nan", 1.0, None, None),
        ("99999999999", 1.0, None, None),
        ("12 apples", 1.0, None, None),
        ("", 1.0, None, None),
    ],
)
def test_duration(text: str, unit: float | None, seconds: float | None, step: float | None) -> None:
    found = times.parse_duration(text, unit)
    assert (found.seconds if found else None) == pytest.approx(seconds)
    assert (found.step if found else None) == pytest.approx(step)


@pytest.mark.parametrize(
    "text",
    ["31/Jan/2026:02:49:00 +0000", "2026-01-31T02:49:00Z", "2026-01-31 03:49:00+01:00", "1769827740", "1769827740000",
     "1769827740000000", "1769827740000000000", "1769827740.0", "31/Jan/2026:02:49:00"],
)  # fmt: skip
def test_stamp(text: str) -> None:
    found = times.parse_timestamp(text)
    assert found is not None
    assert found.time == pytest.approx(1769827740)
    assert found.zoned is (text != "31/Jan/2026:02:49:00")


OWN = [
    ("{time} {status} {ms}", "2026-01-31T02:49:00Z 200 12.5", 0.0125),
    ("[{time}] {*} took {seconds}s", "[2026-01-31T02:49:00Z] GET /a took 0.5s", 0.5),
    ("{entry} {exit} {status}", "2026-01-31T02:49:00Z 2026-01-31T02:49:02Z 200", 2.0),
    (
        '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" $request_time',
        '10.0.0.7 - - [31/Jan/2026:02:49:00 +0000] "GET /a HTTP/1.1" 200 5 "-" 0.250',
        0.25,
    ),
    ('[{time}] "{request}" {status} {*} {us}', '[31/Jan/2026:02:49:00 +0000] "GET /a HTTP/1.1" 200 5 84213', 0.084213),
    ("{duration} {status}", "12ms 200", 0.012),
    ("{time} {status} {ms}", "yesterday 200 12.5", None),
    ("{time} {status} {ms}", "2026-01-31T02:49:00Z 200 soon", None),
    ("{time} {status} {ms}", "2026-01-31T02:49:00Z OK 5", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "seconds"), OWN)
def test_a_pattern_of_ones_own(text: str, line: str, seconds: float | None) -> None:
    entry = fields.compiled(text).read(line)
    assert (entry.duration.seconds if entry and entry.duration else None) == pytest.approx(seconds)
    assert (entry is None) is (seconds is None)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "contains no place"),
        ("no place at all", "contains no place"),
        ("{time} {status}", "no place for the duration"),
        ("{when} {ms}", "is not a known place"),
        ("{time}{ms}", "no text follows"),
        ("{ms} " * 500, "contains no place"),
    ],
)
def test_what_is_no_pattern(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        fields.compiled(text)
    assert caught.value.next_step


@given(st.text(max_size=300))
def test_any_line_is_a_request_or_none(line: str) -> None:
    for form in formats.FORMATS:
        assert form.read(line) is None or isinstance(form.read(line), AccessLogEntry)


@given(st.sampled_from(CASES), st.integers(0, 300), st.binary(max_size=6), st.integers(0, 3))
def test_a_damaged_line_is_a_request_or_none(case: dict[str, Any], at: int, put: bytes, cut: int) -> None:
    raw = case["line"].encode()
    text = formats.line_text(raw[:at] + put + raw[at + cut :])
    for form in formats.FORMATS:
        entry = form.read(text) if text else None
        assert entry is None or entry.duration is None or 0 <= entry.duration.seconds < 1e8


@given(st.text(alphabet='{}$*timesu "[]-', max_size=60), st.text(max_size=80))
def test_any_pattern_reads_or_is_refused(text: str, line: str) -> None:
    try:
        found = fields.compiled(text)
    except UsageError:
        return
    found.read(line)
