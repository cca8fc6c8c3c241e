"""Elapsed time since the start of an incident.

Within one boot it is measured by the monotonic clock, across boots by the wall clock, and marked as such. If the wall
clock was set back in between, the elapsed time is unknown; only the order of entries is certain.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from latdoctor.incident import events
from latdoctor.incident.state import Incident
from latdoctor.journal.entry import JournalEntry, Moment, unix_seconds

GIVEN_BY_HAND = "given by hand"  # clock name of a start time that an operator entered
UNNAMED_CLOCK = "not told"  # clock name where the source gave none; journaled under this name
CLOCK_SET_BACK = "this machine's clock was set back, so the time is unknown"


class ClockType(StrEnum):
    """Clock of this machine that measured an elapsed time."""

    MONOTONIC = "monotonic"
    WALL = "wall"


@dataclass(frozen=True, slots=True)
class IncidentStart:
    """T0 of an incident. `at` is unix seconds by `clock`; empty: this machine's clock, at the opening.

    `note`: why a reported start time was rejected.
    """

    at: float
    clock: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Seconds from the start and the clock used (`by`); None where unknown, with the reason in `why`."""

    seconds: float | None
    by: ClockType = ClockType.MONOTONIC
    why: str = ""


def opening_of(incident: Incident) -> JournalEntry:
    """The entry that opened it."""
    return next(entry for entry in incident.entries if entry.kind == events.OPENED)


def start_of(incident: Incident) -> IncidentStart:
    """Reported start of the trouble if it is plausible; else the time of the opening."""
    at, stated, clock = unix_seconds(opening_of(incident).at), incident.opened.began, incident.opened.clock
    if stated is None:
        return IncidentStart(at)
    if not is_time(stated):
        return IncidentStart(at, note=f"the reported start, {_shown(stated)}, is not plausible")
    if stated > at:
        ahead = f"{stated - at:.0f} s" if stated - at < 7200 else f"{(stated - at) / 3600:.0f} h"
        return IncidentStart(
            at, note=f"the reported start is {ahead} after the opening (clock: {clock or 'not named'})"
        )
    return IncidentStart(stated, clock or UNNAMED_CLOCK)


def is_time(value: float) -> bool:
    """Whether it can be a moment of an incident: between 1971 and 2100."""
    return 3.15e7 < value < 4.1e9


def _shown(stated: float) -> str:
    """An implausible time, for a message."""
    try:
        return f"{datetime.datetime.fromtimestamp(stated, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):  # a sender may send any number
        return "an impossible time"


class Stopwatch:
    """Elapsed times of an incident's entries, read in order, and of the current moment."""

    def __init__(self, incident: Incident) -> None:
        opening = opening_of(incident)
        self.start = start_of(incident)
        before = unix_seconds(opening.at) - self.start.at
        self._reached = before
        # By boot: seconds from the start, the monotonic clock then, and by which clock the seconds are known.
        self._anchors = {opening.boot: (before, opening.monotonic, ClockType.MONOTONIC)} if opening.boot else {}

    def read(self, at: JournalEntry | Moment) -> Elapsed:
        """Seconds from the start to `at`, which must not be earlier than the previous call's."""
        found = self._by_anchor(at) if at.boot in self._anchors else self._by_wall(at)
        if found.seconds is not None:
            self._reached = max(self._reached, found.seconds)
        return found

    def _by_anchor(self, at: JournalEntry | Moment) -> Elapsed:
        seconds, monotonic, by = self._anchors[at.boot]
        seconds += at.monotonic - monotonic
        return Elapsed(seconds, by) if seconds >= self._reached else Elapsed(None, by, CLOCK_SET_BACK)

    def _by_wall(self, at: JournalEntry | Moment) -> Elapsed:
        seconds = unix_seconds(at.at) - self.start.at
        if seconds < self._reached:
            return Elapsed(None, ClockType.WALL, CLOCK_SET_BACK)
        if at.boot:
            self._anchors[at.boot] = (seconds, at.monotonic, ClockType.WALL)
        return Elapsed(seconds, ClockType.WALL)


def elapsed_by_entry(incident: Incident) -> dict[str, Elapsed]:
    """How long after the start each entry was journaled, by its digest."""
    watch = Stopwatch(incident)
    return {entry.digest: watch.read(entry) for entry in incident.entries}


def elapsed_until(incident: Incident, now: Moment) -> Elapsed:
    """How long it has lasted now."""
    watch = Stopwatch(incident)
    for entry in incident.entries:
        watch.read(entry)
    return watch.read(now)


_NOT_KNOWN = Elapsed(None)


@dataclass(frozen=True, slots=True)
class ElapsedTimes:
    """`start` is unix seconds; `elapsed_by_entry`, by an entry's digest, how long after it that was journaled."""

    start: float
    passed: Mapping[str, Elapsed]

    def of(self, entry: JournalEntry) -> Elapsed:
        return self.passed.get(entry.digest, _NOT_KNOWN)

    def at(self, time: float) -> float:
        """Seconds from the start to `time` (unix seconds of any clock)."""
        return time - self.start

    @property
    def longest(self) -> float:
        """Seconds until the last entry of which it is known."""
        return max((one.seconds for one in self.passed.values() if one.seconds is not None), default=0.0)


def of_incident(incident: Incident) -> ElapsedTimes:
    return ElapsedTimes(start_of(incident).at, elapsed_by_entry(incident))


def of_entries(entries: Sequence[JournalEntry]) -> ElapsedTimes:
    """From the first of `entries` on."""
    first = entries[0]
    return ElapsedTimes(unix_seconds(first.at), {entry.digest: between(first, entry) for entry in entries})


def between(one: JournalEntry, other: JournalEntry) -> Elapsed:
    """Time from `one` to the later `other`: monotonic within one boot, else by the wall clock; None if that was set
    back.
    """
    if one.boot and one.boot == other.boot:
        return Elapsed(max(0.0, other.monotonic - one.monotonic), ClockType.MONOTONIC)
    seconds = unix_seconds(other.at) - unix_seconds(one.at)
    return Elapsed(seconds if seconds >= 0 else None, ClockType.WALL)


def rfc3339(time: float) -> str:
    """Unix seconds in the format of journal entries. An impossible time is clamped to the representable range."""
    try:
        stated = datetime.datetime.fromtimestamp(time, datetime.UTC)
    except (OverflowError, ValueError, OSError):  # a sender may send any number
        stated = datetime.datetime.max if time > 0 else datetime.datetime.min
    return stated.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def by_clock(name: str) -> str:
    """Suffix naming the clock of a time: `by the clock of alertmanager`."""
    if name == GIVEN_BY_HAND:
        return f"as {GIVEN_BY_HAND}"
    return f"by the clock of {name}" if name and name != UNNAMED_CLOCK else "by a clock that was not named"


def clock_of(at: str | None) -> str:
    """`2026-11-22 02:49:10`, UTC: an entry's time for people."""
    return "–" if at is None else f"{at[:10]} {at[11:19]}"
