"""Times without a zone beside times with one: one timeline, or a gap that says that it is not known to be one.

The times of a log without a zone are read as UTC. Lines with a zone in it show which one it is (`logs/log_clock.py`).
Otherwise other logs may: the same event (an Xid in the kernel log and in the journal) at times that differ by the zone,
or a beginning and an end that both do. A log whose zone none of them shows stays as it is, and a gap says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from latdoctor.collectors.log_zones import whole_zone
from latdoctor.evidence.model import HOST, Event, Evidence, Gap, LogClock, Window
from latdoctor.gap_code import GapCode

_SAME = 2.0  # seconds between two records of one event
_ENDS = 60.0  # seconds between the ends of two logs of one time
_LONG = 600.0  # seconds that a log must span for its ends to mean something
_PRINTED = ("zone", "uptime_s", HOST)  # fields of an event that depend on how a log was printed
_LOGS = ("logs/", "access_log/")
_STEP = "pass the log with zones: journalctl -o short-iso, dmesg --time-format iso, kubectl logs --timestamps"
_SHOWN = 3


def with_one_timeline(parts: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """`parts`, each what one file showed, with the times of logs without a zone in UTC as far as that is known."""
    zoned = [part for part in parts if any(clock.zoned.start is not None for clock in part.clocks)]
    found: list[Evidence] = []
    unknown: list[LogClock] = []
    said: dict[str, Gap] = {}  # by the log, which several readers may have read
    for part in parts:
        clocks = [clock for clock in part.clocks if clock.local.start is not None]
        others = [one for one in zoned if one is not part]
        ahead = _ahead_of(part, clocks[0], others) if len(clocks) == 1 and _is_local(part) else None
        found.append(_earlier(part, ahead) if ahead else part)
        for clock in clocks:
            if (read_as := ahead if clock.ahead is None else clock.ahead) is None:
                unknown += [clock] if others or clock.zoned.start is not None else []
            elif read_as:
                said.setdefault(_name(clock), _read_as(clock, read_as))
    return (*found, Evidence(gaps=(*said.values(), *_taken_as_utc(unknown))))


def _is_local(part: Evidence) -> bool:
    """Whether it is a log none of whose times has a zone: then all of them are in the same one."""
    return all(
        clock.origin.artifact.startswith(_LOGS) and clock.zoned.start is None and clock.ahead is None
        for clock in part.clocks
    )


def _ahead_of(part: Evidence, clock: LogClock, others: Sequence[Evidence]) -> float | None:
    """Seconds that the times of `part` are ahead of UTC, by logs with a zone."""
    known: Counter[float | None] = Counter()
    own = _once(part.events)
    for other in others:
        theirs = _once(other.events)
        for identity in own.keys() & theirs.keys():
            (local, host), (utc, other_host) = own[identity], theirs[identity]
            if not host or not other_host or host == other_host:
                known[whole_zone(local - utc, _SAME)] += 1
    if not known:
        ends = [_by_ends(clock.local, one.zoned) for other in others for one in other.clocks]
        known.update(ahead for ahead in ends if ahead is not None)
    (ahead, _), *rest = known.most_common() or [(None, 0)]
    return None if rest else ahead


def _once(events: Iterable[Event]) -> dict[tuple[object, ...], tuple[float, str]]:
    """The times of the events that are like no other of the log, and the machines that they are of."""
    times: dict[tuple[object, ...], list[tuple[float, str]]] = {}
    for event in events:
        if event.time is not None and event.fields:
            fields = sorted((name, str(value)) for name, value in event.fields.items() if name not in _PRINTED)
            times.setdefault((event.signal, *fields), []).append((event.time, str(event.fields.get(HOST, ""))))
    return {identity: found[0] for identity, found in times.items() if len(found) == 1}


def _by_ends(local: Window, zoned: Window) -> float | None:
    """The difference of zones if both logs span the same time."""
    if local.start is None or local.end is None or zoned.start is None or zoned.end is None:
        return None
    if min(local.end - local.start, zoned.end - zoned.start) < _LONG:
        return None
    first, last = whole_zone(local.start - zoned.start, _ENDS), whole_zone(local.end - zoned.end, _ENDS)
    return first if first == last else None


def _earlier(part: Evidence, seconds: float) -> Evidence:
    """`part` with all its times earlier by `seconds`."""

    def window(one: Window) -> Window:
        return Window(*(None if moment is None else moment - seconds for moment in (one.start, one.end)))

    zone = f"not given, read as {_zone(seconds)}"
    return structs.replace(
        part,
        readings=tuple(structs.replace(one, window=window(one.window)) for one in part.readings),
        distributions=tuple(structs.replace(one, window=window(one.window)) for one in part.distributions),
        series=tuple(structs.replace(one, times=tuple(time - seconds for time in one.times)) for one in part.series),
        events=tuple(
            structs.replace(one, time=one.time - seconds, fields={**one.fields, "zone": zone})
            if one.time is not None
            else one
            for one in part.events
        ),
    )


def _read_as(clock: LogClock, ahead: float) -> Gap:
    reason = f"{_name(clock)}: its times without a zone are read as {_zone(ahead)}, as the times with a zone show"
    return Gap("derived", reason, origin=clock.origin, code=GapCode.INCONSISTENT)


def _taken_as_utc(clocks: Sequence[LogClock]) -> Iterator[Gap]:
    names = list(dict.fromkeys(_name(clock) for clock in clocks))
    if names:
        reason = f"{_listed(names)}: times without a zone are taken as UTC"
        yield Gap("derived", reason, (), None, _STEP, clocks[0].origin, GapCode.UNZONED)


def _name(clock: LogClock) -> str:
    return clock.origin.artifact.rpartition("/")[2]


def _zone(ahead: float) -> str:
    """`UTC+05:30`."""
    minutes = round(abs(ahead) / 60)
    return f"UTC{'-' if ahead < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
