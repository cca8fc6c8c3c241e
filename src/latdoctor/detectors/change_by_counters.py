"""What a change did to the compute per request, by two pages: against the server's whole past, which counters hold.

Where no course of time is known, `change_effect` has nothing to date a rise with. The window is compared with all that
the server did before it, if a change came shortly before: the load too, as the mean rate since the process began. That
mean includes idle hours, so the load seems to have grown by more than it did, and the past includes what came after
the change, so compute seems to have grown by less. A change at a process's own start has no past to be compared with,
nor has the first loading of a model that a log shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from latdoctor.detectors.change_effect import (
    CHANGES,
    COMPUTE,
    EFFECT,
    LEAD,
    LOAD,
    LOADS,
    RATIO,
    belongs,
    of_load,
    what_changed,
)
from latdoctor.detectors.derived_readings import STARTED, latest_numbers, latest_values
from latdoctor.evidence.model import Event, Evidence, Origin, Reading
from latdoctor.units import clock_time

PAST_COMPUTE, PAST_BATCH, CALLS = "compute.past_mean", "batch.past_mean", "forward.calls"
DERIVED = (RATIO, LOAD, EFFECT)
LOADED = "change.model"
OF_START = 15.0  # seconds before and after a process's start that belong to it


def changes_by_counters(evidence: Evidence) -> Evidence:
    """Derive how much more compute a request takes than in the past, for each subject with a change shortly before."""
    known = {one.subject for one in evidence.readings_by_signal.get(RATIO, ())}
    past = latest_values(evidence, PAST_COMPUTE)
    found: list[Reading] = []
    for one, compute in latest_numbers(evidence, COMPUTE):
        before = past.get(one.subject, 0.0)
        if one.subject in known or before <= 0:
            continue
        change = _last_change(evidence, one)
        if change is not None:
            found.extend(_readings(one, compute / before, change, _load(evidence, one)))
    return Evidence(readings=tuple(found))


def _last_change(evidence: Evidence, compute: Reading) -> Event | None:
    """The last change at most LEAD before the window, or within it, that a start does not bring; deployments first."""
    start, end = compute.window.start, compute.window.end
    if start is None or end is None or start == end:
        return None
    starts, first = _starts(evidence), _first_loadings(evidence)
    for name in CHANGES:
        found = [
            (event.time, number)
            for number, event in enumerate(evidence.events_by_signal.get(name, ()))
            if event.time is not None
            and start - LEAD <= event.time <= end
            and belongs(evidence, event.subject, compute.subject)
            and event not in first
            and not any(abs(event.time - began) <= OF_START for began in starts)
        ]
        if found:
            return evidence.events_by_signal[name][max(found)[1]]
    return None


def _starts(evidence: Evidence) -> tuple[float, ...]:
    return tuple(one.time for one in evidence.events_by_signal.get(STARTED, ()) if one.time is not None)


def _first_loadings(evidence: Evidence) -> tuple[Event, ...]:
    """The first event of each model in each source: the start of the server may have loaded it."""
    first: dict[tuple[str, object], Event] = {}
    for event in evidence.events_by_signal.get(LOADED, ()):
        key = (event.subject, event.fields.get("what"))
        if event.time is not None and (key not in first or event.time < (first[key].time or 0.0)):
            first[key] = event
    return tuple(first.values())


def _load(evidence: Evidence, compute: Reading) -> float | None:
    """The rate of requests over their mean rate since the process began; None where that is not known.

    Few requests come more often than usual by chance: the rate counts less one standard deviation.
    """
    starts = _starts(evidence)
    calls = latest_values(evidence, CALLS).get(compute.subject)
    batch = latest_values(evidence, PAST_BATCH).get(compute.subject)
    rates = (latest_values(evidence, name).get(compute.subject) for name in LOADS)
    now = next((rate for rate in rates if rate is not None), None)
    start, end = compute.window.start, compute.window.end
    if not starts or not calls or not batch or not now or start is None or end is None:
        return None
    if start <= max(starts) or end <= start:
        return None
    usual = calls * batch / (start - max(starts))
    return max(0.0, now - math.sqrt(now / (end - start))) / usual


def _readings(compute: Reading, ratio: float, change: Event, load: float | None) -> Iterator[Reading]:
    when = clock_time(change.time or 0.0)
    text = f"compute per request is {ratio:.2g} × that of the server's past, after {when}: {what_changed(change)}"
    origin = Origin(compute.origin.artifact, f"{COMPUTE} over {PAST_COMPUTE}")
    yield Reading(RATIO, compute.subject, ratio, origin, compute.window)
    yield Reading(EFFECT, compute.subject, text + of_load(load), origin, compute.window)
    if load is not None:
        yield Reading(LOAD, compute.subject, load, origin, compute.window)
