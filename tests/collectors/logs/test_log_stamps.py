"""The front of a log line, in every form that we claim to read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from latdoctor.collectors.logs.line_prefix import APPLICATION, BARE, KERNEL, LogLine, parse

TAKEN = datetime(2025, 11, 21, 2, 0, tzinfo=UTC).timestamp()


def unix(*parts: int, micro: int = 0) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp() + micro / 1e6


FORMS = {
    "dmesg": ("[ 1843.308145] NVRM: x", LogLine("NVRM: x", KERNEL, uptime=1843.308145)),
    "dmesg, one decimal": ("[1500001.0] NVRM: x", LogLine("NVRM: x", KERNEL, uptime=1500001.0)),
    "dmesg, no decimals": ("[ 1500001] NVRM: x", LogLine("NVRM: x", KERNEL, uptime=1500001.0)),
    "dmesg, nine decimals": ("[1.123456789] NVRM: x", LogLine("NVRM: x", KERNEL, uptime=1.123456789)),
    "an application's own stamp": ("[12.345] nvidia driver found", LogLine("[12.345] nvidia driver found", BARE)),
    "dmesg with caller": ("[    0.000001][    T1] x", LogLine("x", KERNEL, uptime=0.000001)),
    "dmesg -T": ("[Sun Feb 23 16:24:18 2025] NVRM: x", LogLine("NVRM: x", KERNEL, unix(2025, 2, 23, 16, 24, 18))),
    "dmesg -T, no such day": ("[Mon Feb 30 16:24:18 2025] x", LogLine("x", KERNEL)),
    "dmesg -e": ("[Feb23 16:24] x", LogLine("x", KERNEL)),
    "dmesg -d": ("[  +0.000003] x", LogLine("x", KERNEL)),
    "dmesg --decode, iso": (
        "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: x",
        LogLine("NVRM: x", KERNEL, unix(2025, 1, 21, 4, 41, 44, micro=283302), zoned=True),
    ),
    "dmesg --decode": ("kern  :info  : [ 12.345678] x", LogLine("x", KERNEL, uptime=12.345678)),
    "dmesg iso alone": (
        "2025-01-21T06:41:44,283302+02:00 x y",
        LogLine("x y", KERNEL, unix(2025, 1, 21, 4, 41, 44, micro=283302), zoned=True),
    ),
    "kmsg": ("6,3964,206764307,-;nvidia-nvswitch2: open", LogLine("nvidia-nvswitch2: open", KERNEL, uptime=206.764307)),
    "kmsg with caller": ("4,1,5,-,caller=T7;x", LogLine("x", KERNEL, uptime=5e-6)),
    "syslog": (
        "Feb 23 16:24:18 gpu-7 kernel: NVRM: x",
        LogLine("NVRM: x", KERNEL, unix(2025, 2, 23, 16, 24, 18), host="gpu-7"),
    ),
    "syslog with priority": (
        "<4>Feb  3 16:24:18 gpu-7 kernel: x",
        LogLine("x", KERNEL, unix(2025, 2, 3, 16, 24, 18), host="gpu-7"),
    ),
    "syslog with both stamps": (
        "Feb 23 16:24:18 gpu-7 kernel: [ 1843.308145] NVRM: x",
        LogLine("NVRM: x", KERNEL, unix(2025, 2, 23, 16, 24, 18), uptime=1843.308145, host="gpu-7"),
    ),
    "syslog of last year": (
        "Dec 31 23:59:59 h kernel: x",
        LogLine("x", KERNEL, unix(2024, 12, 31, 23, 59, 59), host="h"),
    ),
    "syslog on a leap day": ("Feb 29 00:00:00 h kernel: x", LogLine("x", KERNEL, unix(2024, 2, 29), host="h")),
    "journald short-iso": (
        "2025-02-23T16:24:18+0100 gpu-7 kernel: NVRM: x",
        LogLine("NVRM: x", KERNEL, unix(2025, 2, 23, 15, 24, 18), zoned=True, host="gpu-7"),
    ),
    "journald short-monotonic": (
        "[ 1843.308145] gpu-7 kernel: x",
        LogLine("x", KERNEL, uptime=1843.308145, host="gpu-7"),
    ),
    "journald short-monotonic, application": (
        "[ 1843.308145] gpu-7 python[77]: x",
        LogLine("x", APPLICATION, uptime=1843.308145, pid="77", process="python", host="gpu-7"),
    ),
    "journald, application": (
        "Feb 23 16:24:18 gpu-7 vllm[123]: boom",
        LogLine("boom", APPLICATION, unix(2025, 2, 23, 16, 24, 18), pid="123", process="vllm", host="gpu-7"),
    ),
    "application, ISO with Z": (
        "2025-02-23T16:24:18Z boom",
        LogLine("boom", APPLICATION, unix(2025, 2, 23, 16, 24, 18), True),
    ),
    "application, Python logging": (
        "2025-02-23 16:24:18,500 - boom",
        LogLine("- boom", APPLICATION, unix(2025, 2, 23, 16, 24, 18, micro=500000)),
    ),
    "application in brackets": (
        "[2025-02-23 16:24:18] boom",
        LogLine("boom", APPLICATION, unix(2025, 2, 23, 16, 24, 18)),
    ),
    "Apache has dmesg's stamp": (
        "[Sun Feb 23 16:24:18 2025] [core:error] boom",
        LogLine("[core:error] boom", APPLICATION, unix(2025, 2, 23, 16, 24, 18)),
    ),
    "a kernel subsystem in brackets": (
        "[Sun Feb 23 16:24:18 2025] [drm] up",
        LogLine("[drm] up", KERNEL, unix(2025, 2, 23, 16, 24, 18)),
    ),
    "bare": ("RuntimeError: boom", LogLine("RuntimeError: boom", BARE)),
    "empty": ("", LogLine("", BARE)),
}


@pytest.mark.parametrize(("text", "line"), FORMS.values(), ids=FORMS.keys())
def test_form(text: str, line: LogLine) -> None:
    assert parse(text, TAKEN) == line


@pytest.mark.parametrize("taken_at", [float("nan"), float("inf"), -1e18, 1e18])
def test_syslog_time_is_unknown_without_a_year(taken_at: float) -> None:
    assert parse("Feb 23 16:24:18 h kernel: x", taken_at).time is None
