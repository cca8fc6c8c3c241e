"""A fault of an earlier boot, long before the end of a log, is reported as that and is not the present."""

from __future__ import annotations

from latdoctor.collectors.logs.collector import parse
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.gap_code import GapCode

FAULT = "[Mon Nov 16 {} 2026] NVRM: Xid (PCI:0000:5e:00): 79, pid=8, GPU has fallen off the bus.\n"
BOOT = "[Mon Nov 16 10:00:00 2026] Linux version 6.8.0-40-generic (builder@host)\n"
LATER = "[Wed Nov 18 07:00:00 2026] EXT4-fs (sda1): mounted filesystem\n"
SOON = "[Mon Nov 16 10:05:00 2026] EXT4-fs (sda1): mounted filesystem\n"


def read(text: str) -> Evidence:
    return parse([Artifact("logs/x", "logs", "x", "x.log", 1.8e9, text.encode())])


def codes(found: Evidence) -> list[object]:
    return [one.fields["code"] for one in found.events if one.signal == "log.xid"]


def test_a_fault_days_before_the_end_and_before_a_boot_is_past() -> None:
    found = read(FAULT.format("09:00:00") + BOOT + LATER)
    assert found.events == ()
    past = [gap for gap in found.gaps if gap.code is GapCode.BEFORE_BOOT]
    assert {signal for gap in past for signal in gap.signals} == {"log.xid", "log.gpu_lost"}
    assert all("line 2" in gap.reason and "Xid 79, lost GPU" in gap.reason for gap in past)
    assert not {"log.xid", "log.gpu_lost"} & {signal for signal, _ in found.looked}


def test_a_journal_marks_boots_too() -> None:
    mark = f"-- Boot {'0a' * 16} --\n"
    found = read(
        "Nov 16 09:00:00 n4 kernel: NVRM: Xid (PCI:0000:5e:00): 48, pid=8\n"
        + mark
        + "Nov 18 07:00:00 n4 kernel: usb 1-1: up\n"
    )
    assert codes(found) == []


def test_a_fault_just_before_a_boot_may_be_the_incident() -> None:
    assert codes(read(FAULT.format("09:58:00") + BOOT + SOON)) == [79]


def test_a_fault_since_the_boot_is_the_present() -> None:
    assert codes(read(BOOT + FAULT.format("11:00:00") + LATER)) == [79]


def test_a_fault_without_a_boot_behind_it_is_the_present() -> None:
    assert codes(read(FAULT.format("09:00:00") + LATER)) == [79]
