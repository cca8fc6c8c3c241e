"""Lines of the GPU driver that something else carries: containers, collectors of logs, `grep -H`, RFC 5424.

    2025-02-23T16:24:18.1Z stdout F [ 1843.308145] NVRM: Xid (PCI:0000:9b:00): 79, …
    gpu-7: Feb 23 16:24:18 gpu-7 kernel: NVRM: Xid …
    <3>1 2025-02-23T16:24:18Z gpu-7 kernel - - - NVRM: Xid …

Before the driver's own words stands nothing then but times, the marks of who carried it, a host and `kernel:`. Where
another program speaks (`monitor: saw NVRM: Xid …`, `vllm[7]: NVRM: …`, quotes), it merely quotes the driver.
"""

from __future__ import annotations

import re
from dataclasses import replace

from latdoctor.collect.logs import stamps
from latdoctor.collect.logs.stamps import KERNEL, Line

_DRIVER = re.compile(r"NVRM: |nvidia-nvswitch\d{1,4}: SXid \(")
_MOMENT = re.compile(
    r"(?P<own>\[\s*\d{1,12}(?:\.\d{1,9})?\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d \d{4}\])"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\s?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?"
)
_QUOTES = re.compile(r"[\"'`‘’“”«»]")
_SIGNS = re.compile(
    r"-|\||[FP]|std(?:out|err)|<\d{1,3}>1?|\[[^\]]{0,300}\]|kern(?:\.[a-z]{3,7})?"
    r"|(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|ALERT|FATAL)",
    re.IGNORECASE,
)
_TIME, _OWN_STAMP = "\x01", "\x02"  # put in a moment's place; a cleaned line has neither
_MOST_BEFORE = 400  # characters before the driver's words
# Words that may stand there: a pod and its container, a host. Where `kernel:` stands too, one more does no harm.
_WITH_KERNEL, _WITH_OWN_STAMP, _WITH_TIME = 3, 2, 1


def carried(text: str, line: Line, taken_at: float) -> Line:
    """`line`, which is `text` taken apart; where that carries a line of the driver, the driver's."""
    if line.writer == KERNEL:
        return line
    found = _DRIVER.search(text)
    before = text[: found.start()] if found else ""
    if found is None or not before.strip() or len(before) > _MOST_BEFORE or not _carries(before):
        return line
    moments = list(_MOMENT.finditer(text, 0, found.start()))
    inner = stamps.parse(text[moments[-1].start() :], taken_at) if moments else line
    time, zoned = (line.time, line.zoned) if inner.time is None else (inner.time, inner.zoned)
    return replace(line, message=text[found.start() :], writer=KERNEL, time=time, zoned=zoned, uptime=inner.uptime,
                   pid="", process="")  # fmt: skip


def _carries(before: str) -> bool:
    """Whether `before`, all that stands before the driver's words, is what carries them and nobody's message."""
    if _QUOTES.search(before):
        return False
    words = _MOMENT.sub(lambda moment: f" {_OWN_STAMP if moment['own'] else _TIME} ", before).split()
    named = "kernel:" in words[-2:] or _ends_as_rfc_5424(words)
    left = []
    for number, word in enumerate(words):
        after = words[number + 1] if number + 1 < len(words) else ""
        if word in (_TIME, _OWN_STAMP, "kernel:") or after == "|" or _SIGNS.fullmatch(word):
            continue
        if word.endswith(":") and not (number == 0 and after in (_TIME, _OWN_STAMP)):  # grep -H, pdsh
            return False
        left.append(word)
    if named:
        return len(left) <= _WITH_KERNEL
    if words[-1] == _OWN_STAMP:
        return len(left) <= _WITH_OWN_STAMP
    return len(left) <= (_WITH_TIME if _TIME in words else 0)


def _ends_as_rfc_5424(words: list[str]) -> bool:
    """`host kernel - - -`: the program, its process, the message's id and structured data."""
    return words[-4:] == ["kernel", "-", "-", "-"]
