"""The prefix of a log line: its time, its writer, and whether that is the kernel.

Formats: /dev/kmsg (`6,3964,206764307,-;…`), dmesg (`[ 1843.308145] …`), dmesg -T (`[Sun Feb 23 16:24:18 2025] …`),
dmesg --decode (`kern  :warn  : 2025-01-21T04:41:44,283302+00:00 …`), journald and syslog, short (`Feb 23 16:24:18 host
kernel: …`) and ISO (`2025-02-23T16:24:18+0000 host kernel: …`), and application lines that begin with an ISO time. Any
other line is `bare`.

The kernel writes six decimals. `[1843.3] …` counts as a kernel line only if words of the driver or the kernel follow,
because Xorg and many applications write such prefixes too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from latdoctor.sanitize import clean


class Writer(StrEnum):
    """Who wrote a line; BARE if the line has no known prefix."""

    KERNEL = "kernel"
    APPLICATION = "application"
    BARE = "bare"


KERNEL, APPLICATION, BARE = Writer
MAX_LINE = 4096  # bytes; only the beginning of a longer line is read

_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_MONTH = f"({'|'.join(_MONTHS)})"
_CLOCK = r"(\d\d):(\d\d):(\d\d)"

_PRIORITY = re.compile(r"<\d{1,3}>(?:1 )?")
_KMSG = re.compile(r"\d{1,4},\d{1,20},(\d{1,18}),[^;]{1,64};(.*)")
_DECODED = re.compile(r"[a-z]{3,8}\d?\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s*(.*)")
_UPTIME = re.compile(r"\[\s*(\d{1,9}\.\d{6})\](?:\[\s*[TC]\d+\])?\s?(.*)")
_SHORTENED = re.compile(
    r"\[\s*(\d{1,9}(?:\.\d{1,9})?)\]\s?((?:NVRM:|nvidia-nvswitch\d+:|Out of memory: |Memory cgroup out of).*)"
)
_RELATIVE = re.compile(rf"\[(?:\s*\+\d+\.\d{{6}}|{_MONTH}\s?\d{{1,2}} \d\d:\d\d)\]\s?(.*)")
_CTIME = re.compile(rf"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH}\s+(\d{{1,2}}) {_CLOCK} (\d{{4}})\]\s?(.*)")
_ISO = re.compile(rf"\[?(\d{{4}})-(\d\d)-(\d\d)[T ]{_CLOCK}(?:([.,])(\d{{1,9}}))?\s?(Z|[+-]\d\d:?\d\d)?\]?\s*(.*)")
_SHORT = re.compile(rf"{_MONTH}\s+(\d{{1,2}}) {_CLOCK}(?:\.\d{{1,9}})? (.*)")
_HOST_AND_TAG = re.compile(r"\S{1,255} ([^\s:\[\]]{1,128})(?:\[(\d{1,10})\])?: ?(.*)")
# Apache's error log has dmesg -T's stamp, followed by a level: [Sun Feb 23 16:24:18 2025] [core:error] …
_APACHE_LEVEL = re.compile(r"\[(?:\w+:)?(?:emerg|alert|crit|error|warn|notice|info|debug|trace\d)\]")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A parsed log line. `time` is unix seconds UTC; `uptime` seconds since boot."""

    message: str
    writer: Writer = Writer.BARE
    time: float | None = None
    zoned: bool = False  # the line has a time zone; otherwise UTC is assumed
    uptime: float | None = None
    pid: str = ""  # of the application that wrote the line
    process: str = ""


def clean_line(raw: bytes) -> str:
    """Decode a line to clean text. Most lines are plain ASCII and need no work."""
    found = raw.decode("utf-8", "replace").rstrip("\r\n")
    return found if found.isascii() and found.isprintable() else clean(found, MAX_LINE)


def parse(text: str, taken_at: float) -> LogLine:
    """Parse `text`, one cleaned line. `taken_at` (unix seconds) supplies the year that syslog's format lacks."""
    text = _PRIORITY.sub("", text, count=1) if text.startswith("<") else text
    if found := _KMSG.match(text):
        return LogLine(found[2], KERNEL, uptime=int(found[1]) / 1e6)
    if found := _DECODED.match(text):
        inner = parse(found[1], taken_at)
        return LogLine(inner.message, KERNEL, inner.time, inner.zoned, inner.uptime)
    if text.startswith("["):
        return _bracketed(text)
    if found := _SHORT.match(text):
        month, day, hour, minute, second, rest = found.groups()
        clock = (_MONTHS[month], int(day), int(hour), int(minute), int(second))
        return _tagged(rest, _without_year(clock, taken_at), zoned=False)
    return _iso(text)


def _bracketed(text: str) -> LogLine:
    if found := _UPTIME.match(text):
        # journalctl -o short-monotonic puts host and writer behind the same bracket.
        behind = _HOST_AND_TAG.match(found[2])
        uptime = float(found[1])
        if behind and behind[2]:
            return LogLine(behind[3], APPLICATION, uptime=uptime, pid=behind[2], process=behind[1])
        return LogLine(behind[3] if behind and behind[1] == "kernel" else found[2], KERNEL, uptime=uptime)
    if found := _CTIME.match(text):
        month, day, hour, minute, second, year, rest = found.groups()
        time = _unix(int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second))
        return LogLine(rest, APPLICATION if _APACHE_LEVEL.match(rest) else KERNEL, time)
    if found := _SHORTENED.match(text):
        return LogLine(found[2], KERNEL, uptime=float(found[1]))
    if found := _RELATIVE.match(text):
        return LogLine(found[2], KERNEL)
    return _iso(text)


def _iso(text: str) -> LogLine:
    found = _ISO.match(text)
    if not found:
        return LogLine(text)
    year, month, day, hour, minute, second, mark, fraction, zone, rest = found.groups()
    time = _unix(int(year), int(month), int(day), int(hour), int(minute), int(second))
    if time is not None:
        time += float(f"0.{fraction or 0}") - _offset(zone)
    if mark == "," and zone and fraction and len(fraction) == 6:  # dmesg --time-format iso: unique to it
        return LogLine(rest, KERNEL, time, zoned=True)
    return _tagged(rest, time, zoned=zone is not None)


def _tagged(rest: str, time: float | None, *, zoned: bool) -> LogLine:
    """The part after a syslog or journald time: `host writer[pid]: message`."""
    found = _HOST_AND_TAG.match(rest)
    if not found:
        return LogLine(rest, APPLICATION, time, zoned)
    process, pid, message = found[1], found[2] or "", found[3]
    if process != "kernel":
        return LogLine(message, APPLICATION, time, zoned, pid=pid, process=process)
    inner = _UPTIME.match(message)  # rsyslog often keeps the kernel's own stamp
    if inner:
        return LogLine(inner[2], KERNEL, time, zoned, uptime=float(inner[1]))
    return LogLine(message, KERNEL, time, zoned)


def _unix(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    try:
        return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:  # 31 February and the like
        return None


def _offset(zone: str | None) -> float:
    """Seconds that `+0200` or `-07:00` is ahead of UTC; 0 for Z or without a zone."""
    if not zone or zone == "Z":
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return -seconds if zone[0] == "-" else seconds


def _without_year(clock: tuple[int, int, int, int, int], taken_at: float) -> float | None:
    """The latest such time that is not after `taken_at`, with a day's tolerance for time zones."""
    try:
        latest = datetime.fromtimestamp(taken_at, tz=UTC) + timedelta(days=1)
    except (OverflowError, ValueError, OSError):  # not a time at all
        return None
    for year in range(latest.year, latest.year - 5, -1):  # five years: 29 February
        time = _unix(year, *clock)
        if time is not None and time <= latest.timestamp():
            return time
    return None
