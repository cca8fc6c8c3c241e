"""Logs of JSON records, logs in UTF-16, and files that are no log at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs import formats, log_source
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, name=x, GPU has fallen off the bus."
KERNEL = {"log.xid", "log.sxid", "log.gpu_lost", "log.oom_kill", "log.driver_mismatch"}
APPLICATION = {"log.cuda_error", "log.driver_mismatch"}


def parse(content: bytes, name: str = "logs/a") -> Evidence:
    return logs.READER.parse([Artifact(name, "logs", "a", "a", 1.74e9, content)])


def journal(message: object, **fields: object) -> bytes:
    written = {"__REALTIME_TIMESTAMP": "1740327858500000", "_HOSTNAME": "gpu-7", "MESSAGE": message, **fields}
    return json.dumps(written).encode() + b"\n"


def kernel(message: object) -> bytes:
    return journal(message, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", _SOURCE_MONOTONIC_TIMESTAMP="1843308145")


def looked(found: Evidence) -> set[str]:
    return {signal for signal, owner in found.looked if owner == "node/a"}


@pytest.mark.parametrize("frame", [b"", b"\x1e", b"data: "])
def test_a_journal_in_json_gives_its_xid(frame: bytes) -> None:
    found = parse(frame + kernel("usb 1-1: new device") + frame + kernel(XID))
    assert [event.signal for event in found.events] == ["log.xid", "log.gpu_lost"]
    first = found.events[0]
    assert (first.fields["code"], first.subject, first.text) == (79.0, "gpu/0000:9b:00", XID)
    assert (first.time, first.fields["uptime_s"], first.origin.place) == (1740327858.5, 1843.308145, "line 2")
    assert "zone" not in first.fields
    assert looked(found) == KERNEL


def test_an_application_in_the_journal_is_none_of_the_kernel() -> None:
    error = list(b"\x1b[31mCUDA error: unknown error\x1b[0m")  # journald gives bytes where a text has colours
    found = parse(journal("ready", _PID="77") + journal(error, _PID="77", SYSLOG_IDENTIFIER="vllm"))
    (event,) = found.events
    assert (event.signal, event.fields["pid"], event.text) == ("log.cuda_error", "77", "CUDA error: unknown error")
    assert looked(found) == APPLICATION


def test_a_quoted_xid_of_an_application_is_no_xid() -> None:
    assert not parse(journal("ready", _PID="1") + journal(XID, _PID="1")).events


@pytest.mark.parametrize(
    ("record", "signal", "time"),
    [
        ({"log": "CUDA error: unknown error\n", "time": "2025-02-23T16:24:18.5Z"}, "log.cuda_error", 1740327858.5),
        ({"level": "error", "message": "CUDA error: unknown error"}, "log.cuda_error", None),
        ({"ts": 1.5, "msg": "CUDA error: unknown error"}, "log.cuda_error", None),
        ({"log": f"[ 1843.308145] {XID}"}, "log.xid", None),
    ],
)
def test_other_records(record: dict[str, object], signal: str, time: float | None) -> None:
    found = parse(json.dumps(record).encode() + b"\n")
    assert (found.events[0].signal, found.events[0].time) == (signal, time)


@pytest.mark.parametrize("broken", [b'{"MESSAGE": "cut', journal(None), b'{"MESSAGE": 7}\n', b"{}\n"])
def test_a_record_that_cannot_be_read_clears_nothing(broken: bytes) -> None:
    found = parse(kernel("usb 1-1: new device") + kernel(XID) + broken)
    assert [event.signal for event in found.events] == ["log.xid", "log.gpu_lost"]
    assert not found.looked
    assert any("1 of its JSON records" in gap.reason and "log.oom_kill" in gap.signals for gap in found.gaps)


def test_plain_lines_between_records_are_read() -> None:
    found = parse(kernel("usb 1-1: new device") + f"[ 1843.308145] {XID}\n".encode())
    assert found.events[0].signal == "log.xid"
    assert looked(found) == KERNEL


METRICS = b"# HELP a_b x\n# TYPE a_b counter\na_b 1\n"
NO_LOGS = {
    "metrics page": (METRICS, "metrics page"),
    "metrics page without types": (b'a_total{model="m"} 1\nb_total 2\n', "metrics page"),
    "trace": (b'{"schemaVersion": 1, "traceEvents": [{"name": "CUDA error: unknown error"}]}', "JSON document"),
    "trace of many lines": (b'{\n  "schemaVersion": 1,\n  "traceEvents": [\n', "JSON document"),
    "list": (b'[{"name": "x"},\n{"name": "y"}]', "JSON document"),
    "list of many lines": (b"[\n  1,\n", "JSON document"),
    "pretty journal": (b'{\n\t"MESSAGE" : "x"\n}\n', "JSON document"),
    "empty document": (b"{}", "JSON document"),
    "data set": (b'{"prompt": "x", "n": 1}\n{"prompt": "y", "n": 2}\n', "JSON document"),
    "web page": (b"\n<!DOCTYPE html><html>", "web page"),
}


@pytest.mark.parametrize(("content", "said"), NO_LOGS.values(), ids=NO_LOGS.keys())
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_files_that_are_no_log_are_refused(content: bytes, said: str, encoding: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        parse(content.decode().encode(encoding))
    assert caught.value.next_step


@pytest.mark.parametrize(
    "line",
    [
        "[INFO] 12:00:00 step 5",
        "[rank3]: INFO up",
        "{'a': 1} INFO a Python dictionary",
        "[0] INFO",
    ],
)
def test_lines_that_look_like_something_else_are_read(line: str) -> None:
    assert looked(parse(line.encode())) == APPLICATION


@pytest.mark.parametrize("line", ["{broken INFO", "loss 0.25 INFO", "prose with INFO in it"])
def test_a_level_within_a_line_makes_no_log_of_it(line: str) -> None:
    found = parse(f"{line}\nCUDA error: unknown error\n".encode())
    assert [event.signal for event in found.events] == ["log.cuda_error"], "but it is read"
    assert looked(found) == set()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_every_encoding_that_windows_writes_is_read(encoding: str) -> None:
    text = f"[    1.000000] usb: é\r\n[    2.000000] {XID}\r\n"
    mark = "" if encoding in ("utf-8-sig", "utf-16") else "\ufeff"
    found = parse((mark + text).encode(encoding))
    assert found.events[0].fields["code"] == 79.0
    assert looked(found) == KERNEL


def test_a_long_file_is_known_by_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        def now(self) -> float:
            return 1.74e9

        def sleep(self, seconds: float) -> None:
            raise AssertionError("nobody waits")

    monkeypatch.setattr(log_source, "MAX_READ", 1 << 12)
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents": [' + b'\n{"name": "12:00:00 INFO"},' * 1000)
    brought = logs.READER.collect(CollectRequest(logs=(path,)), Clock())
    assert not brought.artifacts
    assert "JSON document" in brought.gaps[0].reason


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["MESSAGE", "log", "msg", "_PID", "time"]),
            st.none() | st.text(max_size=20) | st.lists(st.integers(-1, 300), max_size=4),
            max_size=4,
        ),
        max_size=5,
    ),
    st.binary(max_size=40),
)
def test_any_records_give_a_result_or_a_source_error(made: list[dict[str, object]], tail: bytes) -> None:
    content = b"".join(json.dumps(record).encode() + b"\n" for record in made) + tail
    try:
        found = parse(content)
    except SourceError:
        return
    hidden = {signal for gap in found.gaps for signal in gap.signals}
    assert looked(found) | hidden == KERNEL | APPLICATION


def test_form_of_distinguishes_records_from_lines() -> None:
    assert formats.form_of(kernel("x"), "a") == formats.RECORDS
    assert formats.form_of(b"[    1.000000] x\n", "a") == formats.PLAIN
