"""How long after an incident's start something happened.

Within one boot of this machine by its monotonic clock, which nobody sets; across boots by the wall clock, and said so.
Where the wall clock went back meanwhile nothing is told: an order of entries is sure, a time between them is not.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latdoctor.incident import events
from latdoctor.incident.state import Incident
from latdoctor.journal.entry import JournalEntry, Moment, unix_seconds

MONOTONIC, WALL = "monotonic", "wall"
GIVEN_BY_HAND = "given by hand"  # whose clock a beginning is by that nobody measured
UNNAMED_CLOCK = "not told"  # whose clock it is by where nobody says so
CLOCK_SET_BACK = "this machine's clock went back meanwhile, so that the time is not known"


@dataclass(frozen=True, slots=True)
class IncidentStart:
    """T0. `at` is unix seconds by `clock`, whose skew is not known; empty: this machine's own, when it was opened.

    `note`: why a time that was told is not taken.
    """

    at: float
    clock: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Seconds from the start, and by which clock of this machine; None where it cannot be told, and `why`."""

    seconds: float | None
    by: str = MONOTONIC
    why: str = ""


def opening_of(incident: Incident) -> JournalEntry:
    """The entry that opened it."""
    return next(entry for entry in incident.entries if entry.kind == events.OPENED)


def start_of(incident: Incident) -> IncidentStart:
    """When the trouble began, where that was told and can be; else when the incident was opened."""
    at, told, clock = unix_seconds(opening_of(incident).at), incident.opened.began, incident.opened.clock
    if told is None:
        return IncidentStart(at)
    if not is_time(told):
        return IncidentStart(at, note=f"it was told to begin at {_shown(told)}, which is not believed")
    if told > at:
        ahead = f"{told - at:.0f} s" if told - at < 7200 else f"{(told - at) / 3600:.0f} h"
        return IncidentStart(
            at, note=f"it was told to begin {ahead} after it was opened here (clock: {clock or UNNAMED_CLOCK})"
        )
    return IncidentStart(told, clock or UNNAMED_CLOCK)


def is_time(value: float) -> bool:
    """Whether it can be a moment of an incident: between 1971 and 2100."""
    return 3.15e7 < value < 4.1e9


def _shown(told: float) -> str:
    """What is no moment of an incident, as it was told."""
    try:
        return f"{datetime.datetime.fromtimestamp(told, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):  # whoever sent it may send any number
        return "a time that makes no sense"


class Stopwatch:
    """Reads entries of one incident in their order, and then what it is now."""

    def __init__(self, incident: Incident) -> None:
        opening = opening_of(incident)
        self.start = start_of(incident)
        before = unix_seconds(opening.at) - self.start.at
        self._reached = before
        # By boot: seconds from the start, the monotonic clock then, and by which clock the seconds are known.
        self._anchors = {opening.boot: (before, opening.monotonic, MONOTONIC)} if opening.boot else {}

    def read(self, at: JournalEntry | Moment) -> Elapsed:
        """Seconds from the start to `at`, which is not before what was read last."""
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
            return Elapsed(None, WALL, CLOCK_SET_BACK)
        if at.boot:
            self._anchors[at.boot] = (seconds, at.monotonic, WALL)
        return Elapsed(seconds, WALL)


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
        """Seconds from the start to a time that another clock tells, unix seconds."""
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
    """From `one` entry to the `other`, later one: monotonic within one boot, else by the wall clock; None where that
    went back meanwhile.
    """
    if one.boot and one.boot == other.boot:
        return Elapsed(max(0.0, other.monotonic - one.monotonic), MONOTONIC)
    seconds = unix_seconds(other.at) - unix_seconds(one.at)
    return Elapsed(seconds if seconds >= 0 else None, WALL)


def rfc3339(time: float) -> str:
    """Unix seconds as entries are stamped. A number that is no time gives the nearest end of what can be told."""
    try:
        told = datetime.datetime.fromtimestamp(time, datetime.UTC)
    except (OverflowError, ValueError, OSError):  # whoever sent it may send any number
        told = datetime.datetime.max if time > 0 else datetime.datetime.min
    return told.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def by_clock(name: str) -> str:
    """Whose clock a time was by, behind what it says: `by the clock of alertmanager`."""
    if name == GIVEN_BY_HAND:
        return f"as {GIVEN_BY_HAND}"
    return f"by the clock of {name}" if name and name != UNNAMED_CLOCK else "by a clock that was not named"


def clock_of(at: str | None) -> str:
    """`2026-11-22 02:49:10`, UTC: an entry's time for people."""
    return "–" if at is None else f"{at[:10]} {at[11:19]}"
