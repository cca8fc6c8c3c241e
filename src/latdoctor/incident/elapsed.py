"""How long after the start something was: by the clock that is never set where that can be told, else by wall clocks."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from latdoctor.incident.document import MONOTONIC, WALL
from latdoctor.journal.entry import Entry
from latdoctor.remedy.history import moment


@dataclass(frozen=True, slots=True)
class Count:
    """`first` is the first entry; `before` are the seconds from the start to it, by two wall clocks where the start was
    told by another one, and 0 where the entry is the start itself.
    """

    first: Entry
    before: float = 0.0

    def of(self, entry: Entry) -> tuple[float, str]:
        """Seconds since the start, and what they were measured with."""
        seconds, measured = between(self.first, entry)
        return self.before + seconds, measured

    def at(self, time: float) -> float:
        """The same of a time by another clock, unix seconds."""
        return self.before + time - moment(self.first.at)


def between(one: Entry, other: Entry) -> tuple[float, str]:
    """Seconds from `one` entry to the `other`: monotonic within one boot, else the difference of the wall clock."""
    if one.boot and one.boot == other.boot:
        return other.monotonic - one.monotonic, MONOTONIC
    return moment(other.at) - moment(one.at), WALL


def rfc3339(time: float) -> str:
    """Unix seconds as entries are stamped. A number that is no time gives the nearest end of what can be told."""
    try:
        told = datetime.datetime.fromtimestamp(time, datetime.UTC)
    except (OverflowError, ValueError, OSError):  # whoever sent it may send any number
        told = datetime.datetime.max if time > 0 else datetime.datetime.min
    return told.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def is_time(value: float | None) -> bool:
    """Whether it can be a moment of an incident: between 1971 and 2100."""
    return value is not None and 3.15e7 < value < 4.1e9
