"""The logs collector: files to events, what was searched, and what could not be."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.access_log import collector as access_log
from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.logs import COLLECTOR, SIGNALS, log_source
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs import scanner as log_events
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Event, Evidence

KERNEL = {"log.xid", "log.sxid", "log.gpu_lost", "log.oom_kill", "log.driver_mismatch"}
XID_LINE = "[ 1843.308145] NVRM: Xid (PCI:0000:9b:00): 48, pid=7, name=x, DBE"
AER_LINE = "[ 1842.100002] pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer"
USB_LINE = "[    1.000000] usb 1-1: new device"


class Clock:
    def now(self) -> float:
        return 1.74e9

    def sleep(self, seconds: float) -> None:
        raise AssertionError("reading files needs no waiting")


def collect(*paths: Path) -> CollectResult:
    return logs.READER.collect(CollectRequest(logs=paths), Clock())


def artifact(content: bytes, name: str = "logs/a.log") -> Artifact:
    return Artifact(name, "logs", "a.log", "a.log", 1.74e9, content)


def evidence(*lines: str) -> Evidence:
    return logs.READER.parse([artifact("\n".join(lines).encode())])


def looked(found: Evidence, subject: str = "node/a.log") -> set[str]:
    return {signal for signal, owner in found.looked if owner == subject}


def of(found: Evidence, signal: str) -> list[Event]:
    return [event for event in found.events if event.signal == signal]


def test_real_dmesg_with_an_xid_119(samples: Path) -> None:
    brought = collect(samples / "logs" / "gpud" / "dmesg-with-xid-119.log")
    found = logs.READER.parse(brought.artifacts)
    events = of(found, "log.xid")
    assert not brought.gaps
    assert [event.origin.place for event in events] == ["line 3", "line 38", "line 40", "line 42", "line 43"]
    assert {event.subject for event in found.events} == {"gpu/0000:9b:00"}
    assert found.parents["gpu/0000:9b:00"] == "node/dmesg-with-xid-119.log"
    first = events[0]
    assert first.origin.artifact == "logs/dmesg-with-xid-119.log"
    assert first.time == 1740327858  # 23 February 2025, 16:24:18
    assert first.text.startswith("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119")
    wanted = {"code": 119.0, "pci": "0000:9b:00", "bucket": "RESET_GPU", "action": "reset the GPU", "needs": "gpu"}
    assert wanted.items() <= first.fields.items()
    assert (first.fields["pid"], first.fields["process"], first.fields["secondary"]) == ("2024380", "nvidia-smi", 0.0)
    assert looked(found, "node/dmesg-with-xid-119.log") == KERNEL
    assert looked(found, "gpu/0000:9b:00") == {"log.xid", "log.gpu_lost"}


def test_real_kmsg_without_a_fault(samples: Path) -> None:
    found = logs.READER.parse(collect(samples / "logs" / "gpud" / "kmsg.1.log").artifacts)
    assert not found.events
    assert looked(found, "node/kmsg.1.log") == KERNEL


@pytest.mark.parametrize(
    ("lines", "searched"),
    [
        ([USB_LINE], KERNEL),
        ([XID_LINE], {"log.xid", "log.gpu_lost", "log.driver_mismatch"}),  # may be an extract
        (["2025-02-23 16:24:18,1 INFO ready"], {"log.cuda_error", "log.driver_mismatch"}),
        ([USB_LINE, "INFO ready"], KERNEL | {"log.cuda_error"}),
        (["a poem", "of two lines"], set()),  # no time, no level: it may be no log at all
        ([USB_LINE, "a poem"], KERNEL),
        (["I0223 16:24:18.000001 1 server.cc:592] up"], {"log.cuda_error", "log.driver_mismatch"}),
        (["a poem", "CUDA error: unknown error"], set()),  # an error is one wherever it stands; a poem clears nothing
        (["2026/02/01 10:00:00.120, 0, NVIDIA L4, 61", "2026/02/01 10:00:01.120, 0, NVIDIA L4, 62"], set()),  # a table
        (["Tue Mar  5 10:11:12 2019", "+-----+", "| GPU |", "+-----+"], set()),
        (["pcieport 0000:00:03.1: AER: Corrected error", "INFO ready"], {"log.cuda_error", "log.driver_mismatch"}),
        ([AER_LINE, AER_LINE], set()),  # what `dmesg | grep -i pci` leaves
        ([AER_LINE, XID_LINE], {"log.xid", "log.gpu_lost", "log.driver_mismatch"}),
        (["[12.5] Xorg up", "[12.5] (EE) x"], set()),  # such stamps are not the kernel's alone
        (["[1500001.0] NVRM: Xid (PCI:0000:9b:00): 79, x"], {"log.xid", "log.gpu_lost", "log.driver_mismatch"}),
        (["Feb 23 16:24:18 h kernel: usb", "Feb 23 16:24:18 h vllm[1]: up"], KERNEL | {"log.cuda_error"}),
        ([USB_LINE, "   indented continuation"], KERNEL),
        (["-- Boot 1234 --", USB_LINE], KERNEL),
    ],
)
def test_what_counts_as_searched(lines: list[str], searched: set[str]) -> None:
    found = evidence(*lines)
    assert looked(found) == searched
    hidden = {signal for gap in found.gaps for signal in gap.signals}
    assert hidden == set(SIGNALS) - searched


def test_the_form_of_three_lines_names_its_gpu() -> None:
    found = evidence(
        USB_LINE,
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
    )
    (event,) = of(found, "log.gpu_lost")
    assert (event.subject, event.fields["pci"], event.origin.place) == ("gpu/0000:b3:00", "0000:b3:00", "line 4")
    assert not of(found, "log.xid")
    assert looked(found) == KERNEL


def test_a_name_too_far_above_is_not_taken() -> None:
    found = evidence("NVRM: The NVIDIA GPU 0000:b3:00.0", *[USB_LINE] * 4, "NVRM: fallen off the bus")
    (event,) = of(found, "log.gpu_lost")
    assert event.subject == "node/a.log"


def test_xid_79_is_a_lost_gpu_too() -> None:
    found = evidence("[ 1.000000] NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.")
    assert [(event.signal, event.fields.get("uptime_s")) for event in found.events] == [
        ("log.xid", 1.0),
        ("log.gpu_lost", 1.0),
    ]
    assert all(event.time is None for event in found.events)


def test_xid_154_has_the_action_of_its_line() -> None:
    text = "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    (event,) = of(evidence(f"[ 1.000000] {text}"), "log.xid")
    assert event.fields["action"] == "node reboot required"


def test_errors_after_a_sticky_one_are_secondary_for_that_process() -> None:
    found = evidence(
        "(Worker pid=1) ERROR CUDA error: out of memory",
        "(Worker pid=1) ERROR CUDA error: an illegal memory access was encountered",
        "(Worker pid=2) ERROR CUDA error: out of memory",
        "(Worker pid=1) ERROR CUDA error: an illegal memory access was encountered",
    )
    events = of(found, "log.cuda_error")
    assert [event.fields["secondary"] for event in events] == [0.0, 0.0, 0.0, 1.0]
    assert [event.fields["sticky"] for event in events] == [0.0, 1.0, 0.0, 1.0]


def test_a_new_server_process_starts_afresh() -> None:
    error = "CUDA error: an illegal memory access was encountered"
    events = of(evidence(error, error, "INFO:     Started server process [9]", error), "log.cuda_error")
    assert [event.fields["secondary"] for event in events] == [0.0, 1.0, 0.0]


def test_events_are_capped_and_the_rest_is_counted() -> None:
    rare = "[ 2.000000] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."
    found = evidence(USB_LINE, *[XID_LINE] * (log_events.MAX_EVENTS + 5), rare)
    events = of(found, "log.xid")
    assert len(events) == log_events.MAX_EVENTS + 1
    assert events[-1].fields["code"] == 79.0  # the first of its kind is never lost behind a flood of another
    (told,) = [gap for gap in found.gaps if "counts are lower bounds" in gap.reason]
    assert told.signals == ()  # what was kept can be judged: more happened, not less
    kinds = "1005 of 48 on 0000:9b:00, 1 of 79 on 0000:9b:00"
    assert f"1006 log.xid lines ({kinds}), of which 1001 were kept" in told.reason
    assert found.clipped == (("log.xid", "gpu/0000:9b:00"),)


def test_where_kinds_of_events_were_lost_nothing_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_events, "MAX_EVENTS", 2)
    kinds = [f"[ 2.000000] NVRM: Xid (PCI:0000:9b:00): {code}, x" for code in (1, 2, 3, 4, 5)]
    found = evidence(USB_LINE, *kinds)
    assert len(of(found, "log.xid")) == 4
    assert "log.xid" not in looked(found)
    assert any(gap.signals == ("log.xid",) for gap in found.gaps)


def test_hostile_text_is_harmless() -> None:
    xid = "[ 1.000000] NVRM: Xid (PCI:0000:9b:00): 13, pid=1, name=\x1b]0;owned\x07a\u202eb\x1b[31m, x\x00y"
    found = evidence(USB_LINE, xid, "CUDA error: unknown error " + "A" * (1 << 20), "\x1b[31m" + "B" * (1 << 20))
    (event,) = of(found, "log.xid")
    assert event.fields["process"] == "ab"
    assert event.text.endswith("x" + "y")
    assert len(of(found, "log.cuda_error")[0].text) <= 2000
    texts = [part for e in found.events for part in (e.text, *map(str, e.fields.values()))]
    assert all(text.isprintable() for text in texts)


def test_coloured_dmesg_is_read() -> None:
    found = evidence(
        "\x1b[32m[    1.000000] \x1b[0m\x1b[33musb: \x1b[0mx", f"\x1b[32m{XID_LINE[:15]}\x1b[0m{XID_LINE[15:]}"
    )
    assert looked(found) == KERNEL
    assert of(found, "log.xid")[0].fields["code"] == 48.0


def test_utf16_and_a_log_that_begins_with_zeros_are_read() -> None:
    text = f"{USB_LINE}\n{XID_LINE}\n"
    for content in (text.encode("utf-16"), b"\0" * 100_000 + text.encode()):
        assert len(of(logs.READER.parse([artifact(content)]), "log.xid")) == 1


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\0" * 5000, b"-- No entries --\n", bytes(range(256)) * 40])
def test_what_is_no_log_is_refused(content: bytes) -> None:
    with pytest.raises(SourceError):
        logs.READER.parse([artifact(content)])


@given(st.binary(max_size=2000))
def test_any_bytes_give_a_result_or_a_source_error(content: bytes) -> None:
    try:
        found = logs.READER.parse([artifact(content)])
    except SourceError:
        return
    hidden = {signal for gap in found.gaps for signal in gap.signals}
    seen = {signal for signal, _ in found.looked}
    assert seen | hidden == set(SIGNALS)  # each is searched for, or said to be hidden


LINES = st.lists(
    st.sampled_from([XID_LINE, USB_LINE, "CUDA error: unknown error", "NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: x"])
    | st.text(max_size=80),
    max_size=20,
)


@given(LINES, st.floats())
def test_any_lines_at_any_time_give_a_result_or_a_source_error(lines: list[str], taken_at: float) -> None:
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    try:
        found = logs.READER.parse([Artifact("logs/a", "logs", "a", "a", taken_at, content)])
    except SourceError:
        return
    assert {event.subject for event in found.events} <= found.parents.keys()
    assert {event.signal for event in found.events} <= catalogue().keys()


def test_gzip_is_unpacked_member_by_member(tmp_path: Path) -> None:
    path = tmp_path / "kern.log.2.gz"
    path.write_bytes(gzip.compress(f"{USB_LINE}\n".encode()) + gzip.compress(f"{XID_LINE}\n".encode()))
    brought = collect(path)
    assert not brought.gaps
    (one,) = brought.artifacts
    assert (one.name, one.group) == ("logs/kern.log.2", "kern.log.2")
    assert of(logs.READER.parse([one]), "log.xid")[0].origin.place == "line 2"


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_broken_gzip_gives_what_it_holds_and_claims_nothing_absent(tmp_path: Path, damage: str) -> None:
    noise = random.Random(1)
    text = "".join(f"[{n:5d}.000000] usb {noise.randbytes(20).hex()}\n" for n in range(9000))
    packed = bytearray(gzip.compress(f"{XID_LINE}\n{text}".encode()))
    if damage == "cut":
        del packed[-2000:]
    else:
        packed[len(packed) // 2 : len(packed) // 2 + 500] = b"\xff" * 500
    path = tmp_path / "k.gz"
    path.write_bytes(packed)
    brought = collect(path)
    assert [gap.signals for gap in brought.gaps] == [SIGNALS]
    found = logs.READER.parse(brought.artifacts)
    assert [event.fields["code"] for event in of(found, "log.xid")] == [48.0]
    assert not found.looked


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "MAX_UNPACKED", 1 << 22)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * (1 << 23)))
    brought = collect(path)
    assert not brought.artifacts
    assert "unpacks to more than 4 MiB" in brought.gaps[0].reason


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_large_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    monkeypatch.setattr(log_source, "MAX_READ", 1 << 20)
    path = tmp_path / "big.log"
    content = (f"{USB_LINE}\n" * 100_000 + f"{XID_LINE}\n").encode()
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    brought = collect(path)
    (one,) = brought.artifacts
    assert len(one.read()) <= 1 << 20
    assert one.read().startswith(USB_LINE.encode())
    assert "only the last 1 MiB of" in brought.gaps[0].reason
    assert brought.gaps[0].signals == SIGNALS
    found = logs.READER.parse([one])
    assert len(of(found, "log.xid")) == 1
    assert not found.looked  # the Xid 79 may stand in the part that was not read


def test_what_cannot_be_read_is_a_gap_and_the_others_go_on(tmp_path: Path) -> None:
    good = tmp_path / "a.log"
    good.write_text(USB_LINE)
    os.mkfifo(tmp_path / "fifo")
    paths = (tmp_path / "absent.log", tmp_path, tmp_path / "fifo", Path("/dev/null"), good)
    brought = logs.READER.collect(CollectRequest(logs=paths, timeout=0.02), Clock())
    assert [one.name for one in brought.artifacts] == ["logs/a.log"]
    said = [gap.reason.rpartition(": ")[2] for gap in brought.gaps]
    assert said == ["does not exist", "is a folder", "no data within 0.02 s", "is not a regular file"]
    assert all(gap.signals == SIGNALS and gap.source == "logs" for gap in brought.gaps)
    assert all(gap.next_step for gap in brought.gaps)


def test_logs_of_one_name_stay_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("a", "b/../c", "d"):
        place = tmp_path / folder.replace("/../", "_")
        place.mkdir()
        (place / "my log;rm.txt").write_text(USB_LINE)
        paths.append(place / "my log;rm.txt")
    names = [one.name for one in collect(*paths).artifacts]
    assert names == ["logs/my_log_rm.txt", "logs/my_log_rm.txt-2", "logs/my_log_rm.txt-3"]


def test_the_collector_is_requested_by_logs_only() -> None:
    assert not COLLECTOR.is_requested(CollectRequest())
    assert COLLECTOR.is_requested(CollectRequest(logs=(Path("x"),)))
    assert COLLECTOR.provides <= catalogue().keys()
    assert [sight.status for sight in logs.READER.preflight()] == ["if given"]


def test_a_long_log_of_requests_is_read_whole_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "IN_MEMORY", 1 << 14)
    row = '10.0.0.1 - - [19/May/2025:10:{:02d}:{:02d} +0000] "POST /a HTTP/1.1" 200 5 "-" "x" rt=0.5\n'
    path = tmp_path / "access.log"
    path.write_text("".join(row.format(number // 60 % 60, number % 60) for number in range(3000)))
    brought = collect(path)
    (artifact,) = brought.artifacts
    assert artifact.collector == "access_log"
    assert artifact.content == path
    assert not brought.gaps
    found = access_log.READER.parse([artifact])
    assert any(reading.signal == "latency.p99" and reading.value == 0.5 for reading in found.readings)
    (latency,) = (one for one in found.series if one.signal == "latency.p50")
    assert latency.times[-1] - latency.times[0] > 2900
