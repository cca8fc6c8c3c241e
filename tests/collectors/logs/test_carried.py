"""Lines of the driver that something else carries, and lines of others that merely quote the driver."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs.formats import line_of
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event

TAKEN = datetime(2025, 11, 21, 2, 0, tzinfo=UTC).timestamp()
THEN = datetime(2025, 2, 23, 16, 24, 18, tzinfo=UTC).timestamp()
XID = "NVRM: Xid (PCI:0000:9b:00): 48, pid=7, name=x, DBE"


def xids(content: str) -> list[Event]:
    artifact = Artifact("logs/a", "logs", "a", "a", TAKEN, content.encode())
    return [event for event in logs.READER.parse([artifact]).events if event.signal == "log.xid"]


JOURNAL = {"MESSAGE": XID, "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1740327858000000"}
CARRIED = {
    "CRI": (f"2025-02-23T16:24:18.000000000Z stdout F {XID}", THEN),
    "CRI, kernel stamp": (f"2025-02-23T16:24:18.000000000Z stderr F [ 1843.308145] {XID}", THEN),
    "CRI, syslog inside": (f"2025-02-23T16:24:20.0Z stdout F Feb 23 16:24:18 gpu-7 kernel: {XID}", THEN),
    "CRI, journal's record": (f"2025-02-23T16:24:20.0Z stdout F {json.dumps(JOURNAL)}", THEN),
    "docker compose": (f"dmesg_1  | [ 1843.308145] {XID}", None),
    "docker compose, bare": (f"dmesg_1  | {XID}", None),
    "kubectl --prefix": (f"[pod/dmesg-x7/dmesg] [Sun Feb 23 16:24:18 2025] {XID}", THEN),
    "stern": (f"dmesg-x7 dmesg [ 1843.308145] {XID}", None),
    "pdsh": (f"gpu-7: Feb 23 16:24:18 gpu-7 kernel: {XID}", THEN),
    "grep -H": (f"/var/log/kern.log:Feb 23 16:24:18 gpu-7 kernel: {XID}", THEN),
    "RFC 5424": (f"<3>1 2025-02-23T16:24:18Z gpu-7 kernel - - - {XID}", THEN),
    "PRI and ISO": (f"<3>2025-02-23T16:24:18Z gpu-7 kernel: {XID}", THEN),
    "PRI alone": (f"<3>{XID}", None),
    "facility": (f"2025-02-23T16:24:18Z gpu-7 kern.err kernel: {XID}", THEN),
    "facility and both stamps": (f"2025-02-23T16:24:18Z gpu-7 kern.err kernel: [ 1843.308145] {XID}", THEN),
    "no time": (f"gpu-7 kernel: {XID}", None),
    "a time and a host": (f"2025-02-23T16:24:18Z gpu-7 {XID}", THEN),
    "a level": (f"2025-02-23T16:24:18Z ERROR {XID}", THEN),
    "short-iso": (f"2025-02-23T17:24:18+01:00 gpu-7 kernel: {XID}", THEN),
    "journal": (json.dumps(JOURNAL), THEN),
    "journal, few fields": (json.dumps({"MESSAGE": XID, "SYSLOG_IDENTIFIER": "kernel"}), None),
    "journal in docker": (json.dumps({"log": json.dumps(JOURNAL) + "\n", "time": "2025-02-23T16:24:20Z"}), THEN),
    "docker": (json.dumps({"log": f"gpu-7 kernel: {XID}\n", "time": "2025-02-23T16:24:18Z"}), THEN),
}


@pytest.mark.parametrize(("line", "time"), CARRIED.values(), ids=CARRIED)
def test_a_line_of_the_driver_is_read_whatever_carries_it(line: str, time: float | None) -> None:
    (event,) = xids(line + "\n")
    assert (event.fields["code"], event.subject, event.time) == (48.0, "gpu/0000:9b:00", time)


QUOTED = [
    f"monitor: saw {XID}",
    f"2025-02-23T16:24:18Z gpu-7 monitor: saw {XID}",
    f"2025-02-23T16:24:18Z gpu-7 monitor[7]: {XID}",
    f"Feb 23 16:24:18 gpu-7 vllm[123]: {XID}",
    f"Feb 23 16:24:18 gpu-7 vllm[123]: Feb 23 16:24:18 gpu-7 kernel: {XID}",
    f'2025-02-23T16:24:18Z gpu-7 kernel: matched "{XID}"',
    f"2025-02-23T16:24:18Z WARN the operator says that there was a {XID}",
    f"2025-02-23 16:24:18 INFO a line such as kernel: {XID} means a bad board",
    f"looking for lines that hold {XID}",
    f"ERROR - health check failed: {XID}",
    f"saw {XID}",
    json.dumps({"level": "error", "msg": f"alert: {XID}"}),
    json.dumps({"MESSAGE": XID, "SYSLOG_IDENTIFIER": "kernel", "_PID": "7"}),
]


@pytest.mark.parametrize("line", QUOTED)
def test_who_quotes_the_driver_is_not_the_driver(line: str) -> None:
    assert xids(f"2025-02-23T16:24:18Z INFO ready\n{line}\n" if not line.startswith("{") else f"{line}\n") == []


def test_a_carried_log_clears_what_it_shows_and_no_more() -> None:
    content = f"2025-02-23T16:24:18.0Z stdout F [ 1843.308145] {XID}\n".encode()
    found = logs.READER.parse([Artifact("logs/a", "logs", "a", "a", TAKEN, content)])
    assert {signal for signal, _ in found.looked} >= {"log.xid", "log.gpu_lost"}
    assert "log.oom_kill" not in {signal for signal, _ in found.looked}


@given(st.text(max_size=200), st.text(max_size=60))
def test_any_text_before_it_is_read_or_not(before: str, after: str) -> None:
    text, line = line_of(f"{before}NVRM: Xid (PCI:0000:9b:00): {after}".encode("utf-8", "replace"), TAKEN)
    assert line.message in text
