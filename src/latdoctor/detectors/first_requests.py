"""Whether the first requests after the start of a process were slow and the later ones are not.

The start is known from a log; the requests one by one from the same file, and the first of them came after it. The
median of the first three is compared with what nine in ten of the others stay below, so that neither one lucky request
among the first nor one slow one among the others decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from latdoctor.detectors.derived_readings import STARTED
from latdoctor.evidence.model import Evidence, Origin, Reading, Series, Window

REQUESTS = "request.latency"
TIME, RATIO = "start.first_requests", "start.first_ratio"
DERIVED = (TIME, RATIO)
SOON = 1800.0  # seconds from a start to the first request
_FIRST, _FEWEST_OTHERS = 3, 20
_USUAL = 0.9  # of the others


def first_requests(evidence: Evidence) -> Evidence:
    """Derive `start.first_requests` and `start.first_ratio` for each server whose start stands before its requests."""
    reported = {one.subject for one in evidence.readings_by_signal.get(RATIO, ())}
    starts = [
        (_file(event.subject), event.time)
        for event in evidence.events_by_signal.get(STARTED, ())
        if event.time is not None
    ]
    series = [one for one in evidence.series if one.signal == REQUESTS and one.subject not in reported]
    return Evidence(readings=tuple(reading for one in series for reading in _of_one(one, starts)))


def _file(subject: str) -> str:
    """The log of `server/a.log`, `node/a.log` and `replica/r@a.log`."""
    name = subject.partition("/")[2]
    return name.rpartition("@")[2] if "@" in name else name


def _of_one(series: Series, starts: list[tuple[str, float]]) -> Iterator[Reading]:
    log = _file(series.subject)
    first = series.times[0]
    begun = [time for of, time in starts if of == log and first - SOON <= time <= first]
    others = sorted(series.values[_FIRST:])
    if not begun or len(others) < _FEWEST_OTHERS:
        return
    usual = others[int(_USUAL * (len(others) - 1))]
    if usual <= 0:
        return
    slow = median(series.values[:_FIRST])
    note = f"the first {_FIRST} requests after a start against {len(others)} others"
    origin = Origin(series.origin.artifact, series.origin.place)
    window = Window(max(begun), series.times[-1])
    for signal, value in ((TIME, slow), (RATIO, slow / usual)):
        yield Reading(signal, series.subject, value, origin, window, (), note)
