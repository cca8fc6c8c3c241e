"""nvidia-bug-report.log: its kernel log counts as searched, its selections do not, and a large one stays quick."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

from latdoctor.collectors.documents.reader import parse
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

REPORT = (Path(__file__).parent / "cases" / "nvidia-bug-report" / "lost-gpu.txt").read_text()
RULE = "_" * 44


def read(text: str | bytes) -> Evidence:
    content = text if isinstance(text, bytes) else text.encode()
    return parse([Artifact("documents/r.log", "documents", "r.log", "r.log", 1.77e9, content)])


def test_its_kernel_log_counts_as_searched() -> None:
    found = read(REPORT)
    assert ("log.xid", "node/r.log") in found.looked
    assert ("log.oom_kill", "node/r.log") in found.looked
    assert "log.cuda_error" not in {signal for signal, _ in found.looked}


def test_a_report_without_a_kernel_log_rules_nothing_out() -> None:
    before, _, after = REPORT.rpartition("dmesg:\n")
    found = read(before + "dmesg:\n\n" + RULE + after.partition(RULE)[2])
    assert found.looked == ()
    codes = [one.fields["code"] for one in found.events if one.signal == "log.xid"]
    assert codes == [79.0, 48.0], "then the selected lines of the present boot are read"


def test_the_lines_of_one_boot_are_counted_once_and_have_their_place() -> None:
    found = read(REPORT)
    lost = [one for one in found.events if one.signal == "log.xid" and one.fields["code"] == 79.0]
    (line,) = [one.origin.place for one in lost]
    assert REPORT.splitlines()[int(line.removeprefix("line ")) - 1].startswith("[  300.100000] NVRM: Xid")


def test_a_packed_report_is_the_same() -> None:
    assert read(gzip.compress(REPORT.encode())) == read(REPORT)


def test_a_report_of_many_megabytes_is_read_in_seconds() -> None:
    filler = "".join(f"[{n:5}.000000] usb 1-1: reset high-speed USB device number {n}\n" for n in range(100, 60_000))
    xorg = "".join(f"[{n:9}.123] (II) NVIDIA(0): Setting mode number {n} of the display\n" for n in range(60_000))
    before, _, after = REPORT.partition("[  300.100000]")
    started = time.monotonic()
    found = read(f"{before}{filler}[  300.100000]{after}{RULE}\n\n*** /var/log/Xorg.0.log\n{xorg}")
    assert time.monotonic() - started < 30
    assert [one.fields["code"] for one in found.events if one.signal == "log.xid"] == [48.0, 79.0]
