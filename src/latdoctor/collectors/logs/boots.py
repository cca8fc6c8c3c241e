"""Boots within a kernel log: a fault before the last one, and long before the end of the log, is not the present."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.collectors.logs import GPU_LOST, OOM_KILL, SXID, XID
from latdoctor.collectors.logs.line_kind import LineLocation
from latdoctor.collectors.logs.line_prefix import KERNEL
from latdoctor.evidence.model import Event
from latdoctor.units import format_value

# Seconds before the end of a log. A fault just before a boot may have caused it, and the incident that is looked at.
LONG_AGO = 3600.0
_MOST_KINDS = 5
_WORDS = {XID: "Xid", SXID: "SXid", GPU_LOST: "lost GPU", OOM_KILL: "out-of-memory kill"}
_BOOT = re.compile(r"Linux version \d")
_JOURNAL_BOOT = re.compile(r"-- (?:Boot [0-9a-f]{32}|Reboot)\b")
# On bytes; every line of a boot contains one.
HINTS = rb"Linux version \d|^-- (?:Boot [0-9a-f]{8}|Reboot)|\n-- (?:Boot [0-9a-f]{8}|Reboot)"


class Boots:
    """Takes the lines of one log in order. Mutable."""

    def __init__(self) -> None:
        self.place = ""  # of the last boot
        self._before = 0  # events before it
        self.end: float | None = None  # time of the last line with one, unix seconds UTC

    def note(self, at: LineLocation, events: int) -> None:
        """Note a line; `events`: those found before it."""
        if at.line.time is not None:
            self.end = at.line.time if self.end is None else max(self.end, at.line.time)
        if (at.line.writer == KERNEL and _BOOT.match(at.line.message)) or _JOURNAL_BOOT.match(at.text):
            self.place, self._before = at.place, events

    def is_past(self, number: int, event: Event) -> bool:
        """Whether `event`, the one with `number` from 0, is of an earlier boot and long ago."""
        if number >= self._before or event.signal not in _WORDS or event.time is None or self.end is None:
            return False
        return self.end - event.time > LONG_AGO


@dataclass(frozen=True, slots=True)
class PastEvents:
    """Events of earlier boots: their signals, and what the screen says about them."""

    signals: tuple[str, ...]
    reason: str


def past_events(boots: Boots, events: Sequence[Event]) -> PastEvents | None:
    """The events that are past; None without any."""
    past = [event for number, event in enumerate(events) if boots.is_past(number, event)]
    if not past:
        return None
    kinds = Counter(_named(event) for event in past)
    shown = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in kinds.most_common(_MOST_KINDS))
    age = format_value((boots.end or 0.0) - max(event.time or 0.0 for event in past), "time")
    reason = f"before the last boot ({boots.place}), {age} before the end of the log, so not the present: {shown}"
    return PastEvents(tuple(dict.fromkeys(event.signal for event in past)), reason)


def _named(event: Event) -> str:
    code = event.fields.get("code")
    return f"{_WORDS[event.signal]} {code:g}" if isinstance(code, float) else _WORDS[event.signal]
