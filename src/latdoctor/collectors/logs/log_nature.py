"""What a text of lines is: a kernel log, an application's log, an extract of one, or no log at all.

Only what was searched rules something out. A log of an application has a time or a level at the beginning of most of
its lines; a table, a report or an export with a time somewhere in it does not. A kernel log has messages of any kind;
where all of them are about the GPU driver, PCIe or kills for memory, it is an extract (`dmesg | grep`).
"""

from __future__ import annotations

import re
from enum import StrEnum

from latdoctor.collectors.logs.line_prefix import APPLICATION, BARE, KERNEL, LogLine

_LEAST_SHARE = 0.5  # of the lines
_DRIVER = re.compile(r"NVRM:|nvidia")
# What else people select from a kernel log.
_SELECTED = re.compile(
    r"pcieport |pci 0000|AER: |\{\d+\}\[Hardware Error\]|\S+ [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d: "
    r"|(?:Memory cgroup )?[Oo]ut of memory|.{0,40}(?:oom[-_]|invoked oom|Killed process)|.{0,200}\+0x[0-9a-f]+/0x"
    r"|(?:memory|memory\+swap|kmem|swap|anon|cache|rss|Mem|Node|Tasks|DMA)\b.{0,40}[: ]|CPU: \d+ |Hardware name"
    r"|Call Trace"
    r"|\s*</?TASK>|(?:RIP|RSP|RAX|RBX|RCX|RDX|RBP|RDI|R\d\d|Code|CR2|FS): |\[\s*(?:\d+|pid)\s*\]|Memory cgroup|Mem-Info"
    r"|(?:active|inactive|unevictable|slab|mapped|free|pagetables|total_)\w*[: ]"
)
_LEVELS = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRIT(?:ICAL)?)"
# A level at the beginning, behind at most what carriers and loggers write in brackets.
_LEVEL = re.compile(
    r"(?:(?:\[[^\[\]]{0,80}\]|\([^()]{0,120}\)|\{[^{}]{0,200}\}|[\w.@/-]{1,80} {0,40}\|)[:,]?\s{0,4}){0,4}"
    rf"(?:{_LEVELS}\b(?:[\]:|\t]| (?!=)|$)|\[(?i:{_LEVELS})\]|(?:level|lvl|severity)=\"?\w)|[IWEFV]\d{{4}} \d\d:"
)
# Lines of a traceback, which belong to the line before.
_CONTINUES = re.compile(
    r"\s|Traceback \(|[\w.]{1,120}(?:Error|Exception|Warning|Interrupt|Exit)\b|The above exc|During h"
)
# A time followed by a separator begins the row of a table; trtexec's log is that of a benchmark.
_ROW = re.compile(
    r"\"?\[?\d{2,4}[/-]\d\d[/-]\d\d(?:\d\d)?[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?\"?"
    rf"(?: ?[,;|](?!\d{{1,9}}[\s\]]\s?\S)|\t)(?!\s*\"?\[?(?i:{_LEVELS})\b)"
)
# Requests stand in the logs of servers and of proxies alike, so they tell nothing about whose log it is.
_REQUEST = re.compile(r"\"[A-Z]{3,7} [^\"]{1,2000}HTTP/\d|^\[GIN\] ")
# Programs that never call CUDA: proxies, the fabric manager (`[tid 9]`).
_WITHOUT_CUDA = re.compile(r"(?:haproxy|nginx|envoy|traefik|caddy|nv-fabricmanager)\[\d|\] \[tid \d{1,10}\] ")
_NUMBERS = re.compile(r"[\d\s.,;:%+-]+(?:[eE][+-]\d+)?$")
_BENCHMARK = re.compile(r"\s*\[[VIWEF]\]|&&&& ")


class KernelExtent(StrEnum):
    """How much of a kernel log there is."""

    NONE = "none"
    OTHER_EXTRACT = "extract"  # lines of some part of the kernel, without the GPU driver
    DRIVER_EXTRACT = "driver-extract"  # the GPU driver's lines, perhaps with those of another part
    WHOLE = "whole"


class LogNature:
    """Takes the lines of one text in order. Mutable; used by the scanner of a log only."""

    def __init__(self) -> None:
        self.kernel_lines = False
        self.application_lines = False
        self._last_writer = BARE
        self._of_driver = self._of_others = False
        self._headed = self._continued = self._other = self._rows = 0

    def note(self, line: LogLine, text: str, *, sampled: bool) -> None:
        """Note who wrote a line, and count it among those that are `sampled`; `text` is all of it."""
        message = line.message.strip()
        if not message or message.startswith("-- "):  # journalctl's own remarks
            return
        if line.writer == KERNEL or message.startswith("NVRM:"):
            self.kernel_lines = True
            self._last_writer = KERNEL
            driver = _DRIVER.match(message) is not None
            self._of_driver |= driver
            self._of_others = self._of_others or not (driver or _SELECTED.match(message))
        elif line.writer == APPLICATION or not (line.message[0].isspace() and self._last_writer == KERNEL):
            self.application_lines = True
            self._last_writer = APPLICATION
            if sampled:
                self._count(line, text)

    def _count(self, line: LogLine, text: str) -> None:
        if _REQUEST.search(text):
            return
        if _WITHOUT_CUDA.search(text) or (line.writer == APPLICATION and _is_row(line, text)):
            self._rows += 1
        elif line.writer == APPLICATION or _LEVEL.match(line.message):
            self._headed += 1
        elif _CONTINUES.match(line.message):
            self._continued += 1
        else:
            self._other += 1

    @property
    def is_application_log(self) -> bool:
        """Whether most lines begin with a time or a level, requests and lines of programs without CUDA left out."""
        total = self._headed + self._continued + self._other + self._rows
        return self._headed > 0 and self._headed + self._continued >= _LEAST_SHARE * total

    @property
    def kernel_extent(self) -> KernelExtent:
        if not self.kernel_lines:
            return KernelExtent.NONE
        if self._of_others:
            return KernelExtent.WHOLE
        return KernelExtent.DRIVER_EXTRACT if self._of_driver else KernelExtent.OTHER_EXTRACT


def _is_row(line: LogLine, text: str) -> bool:
    """Whether a time begins a row of numbers, or a line of a benchmark."""
    message = line.message
    return any(found is not None for found in (_ROW.match(text), _NUMBERS.match(message), _BENCHMARK.match(message)))
