"""A notification is read as it was meant, and whatever else somebody sends is a typed error."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from latdoctor.errors import UsageError
from latdoctor.incident.alertmanager import (
    MAX_ALERTS,
    MAX_BYTES,
    MAX_LABELS,
    AlertError,
    fingerprint_of,
    parse,
    read_notification,
    split_for_journal,
)
from latdoctor.incident.events import AlertsReceived, AlertStatus
from latdoctor.journal.entry import LARGEST_BODY
from latdoctor.sanitize import clean

FOLDER = Path(__file__).parent / "notifications"
GOOD, BAD = sorted((FOLDER / "good").glob("*.json")), sorted((FOLDER / "bad").glob("*.json"))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_what_an_alertmanager_sends(path: Path) -> None:
    """`<name>.expected` is what is journaled of it."""
    read = json.loads(msgspec.json.encode(parse(path.read_bytes())))
    expected = path.with_suffix(".expected")
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        expected.write_text(json.dumps(read, indent=1, ensure_ascii=False) + "\n")
    assert read == json.loads(expected.read_text())


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_malformed_notification_error_has_a_position(path: Path) -> None:
    with pytest.raises(AlertError) as caught:
        parse(path.read_bytes(), "here")
    assert path.with_suffix(".says").read_text().strip() in str(caught.value)
    assert str(caught.value).startswith("here")
    assert clean(str(caught.value)) == str(caught.value)


def made(*alerts: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"version": "4", "groupKey": "{}", "alerts": list(alerts), **more}).encode()


def test_nothing_is_unbounded() -> None:
    alert = {"status": "firing"}
    with pytest.raises(AlertError, match=f"more than {MAX_BYTES} bytes"):
        parse(b" " * (MAX_BYTES + 1))
    with pytest.raises(AlertError, match=f"<= {MAX_ALERTS}"):
        parse(made(*[alert] * (MAX_ALERTS + 1)))
    deep = b"[" * 200_000
    with pytest.raises(AlertError, match="nested too deeply"):
        parse(b'{"version": "4", "unknown": ' + deep)


def test_the_worst_that_fits_takes_bounded_memory() -> None:
    worst = b'{"version":"4","groupKey":"{}","alerts":[' + b'{"status":"firing"},' * ((MAX_BYTES - 100) // 20)
    tracemalloc.start()
    try:
        with pytest.raises(AlertError):
            parse(worst + b'{"status":"firing"}]}')
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_long_texts_are_cut_and_groups_stay_apart() -> None:
    keys = [parse(made({"status": "firing"}, groupKey="k" * 600 + end)).key for end in "ab"]
    assert keys[0] != keys[1]
    assert max(map(len, keys)) < 520
    read = parse(made({"status": "firing", "labels": {"l" * 300: "v" * 9000}, "annotations": {"a": "b" * 9000}}))
    assert [(len(name), len(value)) for name, value in read.alerts[0].labels.items()] == [(100, 1000)]
    assert len(read.alerts[0].annotations["a"]) == 2000


def test_alert_with_too_many_labels_is_cut_and_marked() -> None:
    many = {f"a{n}": "x" for n in range(MAX_LABELS)}
    whole, cut, worse = parse(
        made(
            {"status": "firing", "labels": many, "annotations": many},
            {"status": "firing", "labels": {**many, "alertname": "Slow", "severity": "critical"}},
            {"status": "firing", "annotations": {**many, "summary": "s" * 2001}, "generatorURL": "g" * 2001},
        )
    ).alerts
    assert (whole.cut, len(whole.labels)) == (UNSET, MAX_LABELS)
    assert (cut.cut, len(cut.labels)) == ("2 labels left out", MAX_LABELS)
    assert (cut.name, cut.labels["severity"]) == ("Slow", "critical")  # what it is about is kept
    assert worse.cut == "1 annotation left out, 1 annotation shortened, its address shortened"
    assert cut.fingerprint == fingerprint_of({**many, "alertname": "Slow", "severity": "critical"})
    assert b"cut" not in msgspec.json.encode(whole)


@pytest.mark.parametrize(
    ("labels", "known"),
    [
        # as its own test has them: prometheus/common, model/signature_test.go
        ({}, "cbf29ce484222325"),
        ({"name": "garland, briggs", "fear": "love is not enough"}, "507a62d79ee76c9a"),
    ],
)
def test_a_fingerprint_that_was_not_sent_is_that_of_the_labels(labels: dict[str, str], known: str) -> None:
    assert fingerprint_of(labels) == known


def test_split_notification_is_complete_and_fits() -> None:
    texts = {f"{n}": '"' * 2000 for n in range(MAX_LABELS)}
    alerts = [{"status": "firing", "fingerprint": f"{n:x}", "labels": {"n": f"{n}"}} for n in range(500)]
    fat = [{"status": "firing", "fingerprint": f"fat{n}", "annotations": texts, "labels": texts} for n in range(8)]
    whole = parse(made(*alerts, *fat, truncatedAlerts=3))
    pieces = split_for_journal(whole)
    assert len(pieces) > 1
    assert tuple(alert for piece in pieces for alert in piece.alerts) == whole.alerts
    assert {piece.truncated for piece in pieces} == {3}
    assert all(len(msgspec.json.encode(piece)) < LARGEST_BODY for piece in pieces)


def test_one_alert_alone_always_fits() -> None:
    wide = {chr(0x1F600 + n) * 100: chr(0x1F600) * 2000 for n in range(MAX_LABELS)}
    worst = parse(made({"status": "firing", "labels": wide, "annotations": wide, "generatorURL": "😀" * 3000}))
    assert len(msgspec.json.encode(split_for_journal(worst)[0])) < LARGEST_BODY


def test_from_a_file(tmp_path: Path) -> None:
    assert read_notification(FOLDER / "good" / "firing.json").alerts[0].fingerprint == "c0ffee0123456789"
    with pytest.raises(UsageError, match="cannot be read"):
        read_notification(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_notification(tmp_path)


TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
TIME = st.sampled_from(["0001-01-01T00:00:00Z", "2026-11-22T02:49:10Z", "9999-12-31T23:59:59-23:59", "", "now"]) | JSON
ALERT = st.fixed_dictionaries(
    {"status": st.sampled_from(["firing", "resolved"]) | JSON},
    optional={
        "labels": st.dictionaries(TEXT, TEXT | JSON, max_size=5) | JSON,
        "annotations": st.dictionaries(TEXT, TEXT, max_size=5),
        "startsAt": TIME,
        "endsAt": TIME,
        "fingerprint": TEXT,
        "generatorURL": TEXT,
    },
)
NOTIFICATION = st.fixed_dictionaries(
    {"version": st.sampled_from(["4", "4", "3", 4]), "groupKey": TEXT | JSON, "alerts": st.lists(ALERT | JSON)},
    optional={"truncatedAlerts": st.integers() | JSON, "receiver": TEXT | JSON, "what": JSON},
)


def read_or_refused(content: bytes) -> AlertsReceived | None:
    said = ""
    try:
        return parse(content)
    except AlertError as error:
        said = str(error)
    assert clean(said) == said
    return None


@given(st.binary(max_size=200))
def test_any_bytes_give_a_result_or_a_typed_error(content: bytes) -> None:
    read_or_refused(content)


@given(NOTIFICATION)
def test_any_document_gives_a_result_or_a_typed_error(document: Any) -> None:
    read = read_or_refused(json.dumps(document).encode())
    if read is None:
        return
    assert len(read.alerts) == len(document["alerts"])
    texts = [read.key, read.receiver]
    for alert in read.alerts:
        assert alert.status in (AlertStatus.FIRING, AlertStatus.RESOLVED)
        texts += [alert.fingerprint, alert.name, alert.generator]
        texts += [text for pair in (*alert.labels.items(), *alert.annotations.items()) for text in pair]
    assert [text for text in texts if clean(text) != text] == []


@given(st.sampled_from(GOOD), st.data())
def test_damage_gives_a_result_or_a_typed_error(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_or_refused(bytes(content))
