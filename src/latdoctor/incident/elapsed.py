"""When entries were made, counted from the start of what they tell of."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latdoctor.incident.state import Incident
from latdoctor.incident.stopwatch import GIVEN, MONOTONIC, NOT_TOLD, WALL, Passed, passed, start_of
from latdoctor.journal.entry import Entry
from latdoctor.remedy.history import moment

_NOT_KNOWN = Passed(None)


@dataclass(frozen=True, slots=True)
class Count:
    """`start` is unix seconds; `passed`, by an entry's digest, how long after it that was journaled."""

    start: float
    passed: Mapping[str, Passed]

    def of(self, entry: Entry) -> Passed:
        return self.passed.get(entry.digest, _NOT_KNOWN)

    def at(self, time: float) -> float:
        """Seconds from the start to a time that another clock tells, unix seconds."""
        return time - self.start

    @property
    def longest(self) -> float:
        """Seconds until the last entry of which it is known."""
        return max((one.seconds for one in self.passed.values() if one.seconds is not None), default=0.0)


def of_incident(incident: Incident) -> Count:
    return Count(start_of(incident).at, passed(incident))


def of_entries(entries: Sequence[Entry]) -> Count:
    """From the first of `entries` on."""
    first = entries[0]
    return Count(moment(first.at), {entry.digest: between(first, entry) for entry in entries})


def between(one: Entry, other: Entry) -> Passed:
    """From `one` entry to the `other`, later one: monotonic within one boot, else by the wall clock; None where that
    went back meanwhile.
    """
    if one.boot and one.boot == other.boot:
        return Passed(max(0.0, other.monotonic - one.monotonic), MONOTONIC)
    seconds = moment(other.at) - moment(one.at)
    return Passed(seconds if seconds >= 0 else None, WALL)


def rfc3339(time: float) -> str:
    """Unix seconds as entries are stamped. A number that is no time gives the nearest end of what can be told."""
    try:
        told = datetime.datetime.fromtimestamp(time, datetime.UTC)
    except (OverflowError, ValueError, OSError):  # whoever sent it may send any number
        told = datetime.datetime.max if time > 0 else datetime.datetime.min
    return told.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def by_clock(name: str) -> str:
    """Whose clock a time was by, behind what it says: `by the clock of alertmanager`."""
    if name == GIVEN:
        return f"as {GIVEN}"
    return f"by the clock of {name}" if name and name != NOT_TOLD else "by a clock that was not named"


def clock(at: str | None) -> str:
    """`2026-11-22 02:49:10`, UTC: an entry's time for people."""
    return "–" if at is None else f"{at[:10]} {at[11:19]}"
