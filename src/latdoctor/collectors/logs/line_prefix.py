"""The prefix of a log line: its time, its writer, and whether that is the kernel.

Formats: /dev/kmsg (`6,3964,206764307,-;…`), dmesg (`[ 1843.308145] …`), dmesg -T (`[Sun Feb 23 16:24:18 2025] …`),
dmesg --decode (`kern  :warn  : 2025-01-21T04:41:44,283302+00:00 …`), journald and syslog in all their forms
(`Feb 23 16:24:18 host kernel: …`, RFC 5424), and application lines that begin with a time (`timestamps.py`), alone or
behind what loggers and carriers write before it: `INFO`, `[GIN]`, `(EngineCore_0 pid=7)`, `time="`, `[pod/x/c]`,
`web-1  | `, `> `. Where a carrier wrote a time of its own (`kubectl logs --timestamps`, the container runtime), the
inner time is read in the zone in which it agrees with the outer one. Any other line is `bare`.

The kernel writes six decimals. `[1843.3] …` counts as a kernel line only if words of the driver or the kernel follow,
because Xorg and many applications write such prefixes too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from latdoctor.collectors.logs.month_names import MONTH
from latdoctor.collectors.logs.timestamps import Stamp, stamp_at
from latdoctor.sanitize import clean


class Writer(StrEnum):
    """Who wrote a line; BARE if the line has no known prefix."""

    KERNEL = "kernel"
    APPLICATION = "application"
    BARE = "bare"


KERNEL, APPLICATION, BARE = Writer
MAX_LINE = 4096  # bytes; only the beginning of a longer line is read

_PRIORITY = re.compile(r"<\d{1,3}>(1 )?")
_KMSG = re.compile(r"\d{1,4},\d{1,20},(\d{1,18}),[^;]{1,64};(.*)")
_DECODED = re.compile(r"[a-z]{3,8}\d?\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s*(.*)")
_UPTIME = re.compile(r"\[\s*(\d{1,9}\.\d{6})\](?:\[\s*[TC]\d+\])?\s?(.*)")
_SHORTENED = re.compile(
    r"\[\s*(\d{1,9}(?:\.\d{1,9})?)\]\s?((?:NVRM:|nvidia-nvswitch\d+:|Out of memory: |Memory cgroup out of).*)"
)
_RELATIVE = re.compile(r"\[(?:\s*\+\d+\.\d{6}|[A-Z][a-z]{2}\s?\d{1,2} \d\d:\d\d)\]\s?(.*)")
# dmesg -T writes the time in the order of C's ctime, with the names of the system's language.
_CTIME = re.compile(rf"\[[^\W\d_]{{1,4}}\.? {MONTH}\s+\d{{1,2}} \d\d:\d\d:\d\d \d{{4}}\]")
_DMESG_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d ")
# Host, program, process, message id and structured data.
_RFC_5424 = re.compile(r"(\S{1,255}) (\S{1,48}) (\S{1,128}) \S{1,32} (?:-|(?:\[(?:[^\]\\]|\\.){0,2000}\]){1,8}) ?(.*)")
# Apache's error log has dmesg -T's stamp, followed by a level: [Sun Feb 23 16:24:18 2025] [core:error] …
_APACHE_LEVEL = re.compile(r"\[(?:\w+:)?(?:emerg|alert|crit|error|warn|notice|info|debug|trace\d)\]")
_STREAM = re.compile(r"std(?:out|err) [FP] ")  # of the container runtime
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL|ALERT|EMERG|PANIC|SEVERE)"
_HOST_AND_TAG = re.compile(
    rf"(?!(?i:{_LEVEL})\b)([^\s\[\](){{}}=|]{{1,255}}) ([^\s:\[\]]{{1,128}})(?:\[(\d{{1,10}})\])?:(?: |$)(.*)"
)
_HOST = re.compile(r"(?!localhost\b)(?=[\w.-]*[A-Za-z])[A-Za-z0-9][\w.-]{0,252}|\d{1,3}(?:\.\d{1,3}){3}")
# `CUDA error: …` without a host and a program before it.
_NO_PROGRAM = re.compile(r"(?i:errors?|failures?|warnings?|exceptions?|failed|fatal|code|status|traceback|memory)")
# What stands before a time; each may follow another.
_LEAD = re.compile(
    r"(?P<quote>(?:>\s?){1,5})"
    r"|\((?P<process>[\w.:/-]{1,80})[ ,]pid=(?P<pid>\d{1,10})[^()]{0,120}\)\s{0,4}"
    rf"|(?i:{_LEVEL})\b[:\s|-]{{1,12}}(?:root:)?"
    r"|(?:level|lvl|severity)=\"?\w{1,10}\"?\s"
    r"|(?:time|ts|t|timestamp|@timestamp|datetime|asctime|date)="
    r"|\[(?:rank ?\d{1,5}|[^\[\]\d][^\[\]]{0,120}|\d{1,4},\d{1,4})\](?:<std(?:out|err)>)?[:,]?\s{0,4}"
    r"|[\w.@/-]{1,120} {0,80}\|\s{0,4}"
    r"|\{\w{1,80}=\"[^{}]{0,600}\} "
    # stern: a pod, with the ending that a controller gives it, and a container
    r"|[a-z0-9][a-z0-9.-]{1,240}-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|\d{1,3}) [a-z0-9][a-z0-9-]{0,62} (?=\S)"
    r"|(?:[\w.-]{1,80}[.-][a-z0-9]{4,12} )?[\w.-]{1,80} (?=\d{4}-\d\d-\d\d[T ])"
    r"|[\w./-]{1,200}:(?:\d{1,9}:)?\s{0,2}(?=[\[\w])"
    r"|\s{1,8}"
)
_MOST_LEADS, _MOST_BEFORE, _MOST_STAMPS = 5, 300, 3
_NO_EPOCH = re.compile(r"\s*(?:[KMGT]?i?B\b|bytes?\b|[^A-Za-z]*$|[mun]?s\b|tokens?\b|requests?\b|%)")
_RANK = re.compile(r"\s?((?:(?:DP|TP|PP|EP|rank)\s?\d{1,5}\s?)+)\s*\]")
_BRACKETS = {"[": "]", "(": ")", "<": ">", '"': '"', "'": "'"}
_OFFSET_STEP, _MOST_OFFSET = 900.0, 14 * 3600.0  # seconds; zones differ by quarters of an hour


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
    host: str = ""  # the machine that wrote the line, where a system log states it


def host_of(text: str) -> str:
    """The name of the machine that `text` is; empty where it is none that tells machines apart, such as localhost."""
    return text if _HOST.fullmatch(text) else ""


def clean_line(raw: bytes) -> str:
    """Decode a line to clean text. Most lines are plain ASCII and need no work."""
    found = raw.decode("utf-8", "replace").rstrip("\r\n")
    return found if found.isascii() and found.isprintable() else clean(found, MAX_LINE)


def parse(text: str, written_at: float) -> LogLine:
    """Parse `text`, one cleaned line. `written_at` (unix seconds) supplies the year that some formats lack."""
    if text.startswith("<") and (priority := _PRIORITY.match(text)):
        text = text[priority.end() :]
        if priority[1]:
            return _rfc_5424(text, written_at)
    if found := _KMSG.match(text):
        return LogLine(found[2], KERNEL, uptime=int(found[1]) / 1e6)
    if found := _DECODED.match(text):
        inner = parse(found[1], written_at)
        return LogLine(inner.message, KERNEL, inner.time, inner.zoned, inner.uptime, host=inner.host)
    kernel = _of_kernel(text, written_at) if text.startswith("[") else None
    return kernel or _timed(text, written_at) or LogLine(text)


def _of_kernel(text: str, written_at: float) -> LogLine | None:
    if found := _UPTIME.match(text):
        # journalctl -o short-monotonic puts host and writer behind the same bracket.
        behind = _HOST_AND_TAG.match(found[2])
        uptime = float(found[1])
        if behind and behind[3]:
            host = host_of(behind[1])
            return LogLine(behind[4], APPLICATION, uptime=uptime, pid=behind[3], process=behind[2], host=host)
        if behind and behind[2] == "kernel":
            return LogLine(behind[4], KERNEL, uptime=uptime, host=host_of(behind[1]))
        return LogLine(found[2], KERNEL, uptime=uptime)
    if found := _CTIME.match(text):
        stamp = stamp_at(text, 1, written_at)
        if stamp is not None:
            rest = text[found.end() :].removeprefix(" ")
            return LogLine(rest, APPLICATION if _APACHE_LEVEL.match(rest) else KERNEL, stamp.time)
    if found := _SHORTENED.match(text):
        return LogLine(found[2], KERNEL, uptime=float(found[1]))
    if found := _RELATIVE.match(text):
        return LogLine(found[1], KERNEL)
    return None


@dataclass(frozen=True, slots=True)
class _Front:
    """The time of a line, what stands before it, and the index at which its message begins."""

    stamp: Stamp
    begin: int
    plain: bool  # nothing stands before the time
    pid: str
    process: str


def _front(text: str, written_at: float) -> _Front | None:
    start, pid, process = 0, "", ""
    for _ in range(_MOST_LEADS):
        opened = text[start : start + 1]
        closing = _BRACKETS.get(opened, "")
        stamp = stamp_at(text, start + bool(closing), written_at)
        if stamp is not None and not (stamp.epoch and not closing and _NO_EPOCH.match(text, stamp.end)):
            begin, rank = _behind(text, stamp.end, closing)
            return _Front(stamp, begin, start == 0 and not closing, pid, rank or process)
        lead = _LEAD.match(text, start)
        if lead is None or lead.end() == start or lead.end() > _MOST_BEFORE:
            return None
        pid, process = lead["pid"] or pid, lead["process"] or process
        start = lead.end()
    return None


def is_carrier(prefix: str, written_at: float) -> bool:
    """Whether `prefix` is wholly a carrier's: a time, names and streams as `parse` knows them, or nothing."""
    start = 0
    for _ in range(_MOST_LEADS):
        if start == len(prefix):
            return True
        front = _front(prefix[start:], written_at)
        if front is not None:
            start += front.begin
            stream = _STREAM.match(prefix, start)
            start = stream.end() if stream else start
            continue
        lead = _LEAD.match(prefix, start)
        if lead is None or lead.end() == start:
            return False
        start = lead.end()
    return start == len(prefix)


def _behind(text: str, end: int, closing: str) -> tuple[int, str]:
    """Where the message begins behind a time that ends at `end`, and the rank that stands in its bracket."""
    rank = ""
    if closing and text[end : end + 1] == closing:
        end += 1
    elif closing == "]" and (found := _RANK.match(text, end)):
        end, rank = found.end(), found[1].strip()
    if text[end : end + 2] == ": ":
        end += 1
    while text[end : end + 1].isspace():
        end += 1
    return end, rank


def _timed(text: str, written_at: float, depth: int = _MOST_STAMPS) -> LogLine | None:
    front = _front(text, written_at)
    if front is None:
        return None
    rest, stamp = text[front.begin :], front.stamp
    if front.plain and _DMESG_ISO.match(text):  # unique to it
        return LogLine(rest, KERNEL, stamp.time, zoned=True)
    stream = _STREAM.match(rest)
    outer = LogLine(rest, APPLICATION, stamp.time, stamp.zoned, pid=front.pid, process=front.process)
    if stream:
        outer = replace(outer, message=rest[stream.end() :])
    elif front.plain and stamp_at(rest, 0, written_at) is None:
        outer = _tagged(rest, outer)
    inner = _timed(outer.message, written_at, depth - 1) if depth > 1 and outer.writer != KERNEL else None
    if inner is None or inner.time is None or (inner.writer == KERNEL and outer.process):
        return outer  # a program that quotes the kernel is not the kernel
    return joined(outer, inner)


def joined(outer: LogLine, inner: LogLine) -> LogLine:
    """The line of `inner`, whose time a carrier preceded with its own."""
    process, host = inner.process or outer.process, inner.host or outer.host
    found = replace(inner, pid=inner.pid or outer.pid, process=process, host=host)
    if outer.time is None or inner.time is None or inner.zoned:
        return found
    if not outer.zoned:
        return replace(found, time=outer.time)
    ahead = round((inner.time - outer.time) / _OFFSET_STEP) * _OFFSET_STEP
    if abs(ahead) > _MOST_OFFSET:  # an old line that was replayed, or a clock that is wrong
        return replace(found, time=outer.time, zoned=True)
    return replace(found, time=inner.time - ahead, zoned=True)


def _tagged(rest: str, line: LogLine) -> LogLine:
    """The part after a syslog or journald time: `host writer[pid]: message`."""
    found = _HOST_AND_TAG.match(rest)
    if not found:
        return line
    process, pid, message = found[2], found[3] or "", found[4]
    if not pid and _NO_PROGRAM.fullmatch(process):
        return line
    # `name program: …` without a process is the form of many loggers too.
    host = host_of(found[1]) if pid or process == "kernel" else ""
    line = replace(line, host=host)
    if process != "kernel":
        return replace(line, message=message, pid=pid, process=process)
    inner = _UPTIME.match(message)  # rsyslog often keeps the kernel's own stamp
    if inner:
        return replace(line, message=inner[2], writer=KERNEL, uptime=float(inner[1]))
    return replace(line, message=message, writer=KERNEL)


def _rfc_5424(text: str, written_at: float) -> LogLine:
    """`time host program pid message-id [data] message`, the part after `<PRI>1 `."""
    front = _front(text, written_at)
    found = _RFC_5424.match(text, front.begin) if front else None
    if front is None or found is None:
        return _timed(text, written_at) or LogLine(text)
    process, pid, message = found[2], found[3] if found[3].isdigit() else "", found[4]
    stamp, host = front.stamp, host_of(found[1])
    if process == "kernel":
        return LogLine(message, KERNEL, stamp.time, stamp.zoned, host=host)
    process = process.removeprefix("-")
    return LogLine(message, APPLICATION, stamp.time, stamp.zoned, pid=pid, process=process, host=host)
