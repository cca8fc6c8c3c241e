"""The timeline of an incident: everything that its entries in the journal tell, in order.

A function of those entries alone: killed at any moment it tells all that was journaled until then, and the same again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from latdoctor.incident import events
from latdoctor.incident.clock import StageState
from latdoctor.incident.document import (
    INCIDENT,
    OWN,
    RUN,
    SCHEMA_VERSION,
    Last,
    Sample,
    Stage,
    Start,
    Timeline,
    Told,
)
from latdoctor.incident.elapsed import Count, of_entries, of_incident, rfc3339
from latdoctor.incident.impact import impact
from latdoctor.incident.looks import looks, unseen
from latdoctor.incident.measures import measures
from latdoctor.incident.mended import mended
from latdoctor.incident.moments import moments
from latdoctor.incident.samples import sample
from latdoctor.incident.state import Incident
from latdoctor.incident.stopwatch import start_of
from latdoctor.journal.entry import Entry
from latdoctor.remedy import history
from latdoctor.text import clean

__all__ = ["Timeline", "of_run", "timeline"]

_COMMAND = "latdoctor "  # as it calls itself where it acts: `latdoctor listen`


def timeline(incident: Incident, stages: Sequence[StageState] = ()) -> Timeline:
    """`incident` from its start to its last entry; `stages` is how its SOP stands.

    Raises msgspec.ValidationError where a run's entry is not as this version writes it.
    """
    opened = incident.opened
    entries = incident.entries
    start, count = _start(incident), of_incident(incident)
    runs = {run.id: run for run in history.runs(entries)}
    told = mended(incident.runs, runs, entries)
    seen, found = _samples(entries, count), looks(entries, count)
    ended = next(iter(reversed(incident.of(events.CLOSED))), None)
    listed = moments(entries, count, runs)
    return Timeline(
        schema_version=SCHEMA_VERSION,
        subject=INCIDENT,
        id=incident.id,
        title=clean(opened.title, 300),
        targets=tuple(clean(target, 200) for target in opened.targets),
        source=clean(opened.source, 20),
        sop=clean(opened.sop, 100),
        opened_at=entries[0].at,
        closed_at=ended.at if ended else None,
        outcome=clean(incident.closed.outcome, 40) if incident.closed else "",
        start=start,
        last=_last(entries),
        stages=tuple(_stage(stage) for stage in stages),
        measures=measures(incident, start, count, found, told, seen),
        impact=impact(entries, seen, count, _span(count, ended)),
        alerts=tuple(_alert(alert) for alert in incident.alerts.values()),
        looks=found,
        runs=told,
        responders=_responders(listed),
        moments=listed,
        samples=seen,
        unseen=unseen(found),
    )


def of_run(run: str, entries: Sequence[Entry]) -> Timeline:
    """A run alone, of its own `entries` (one at least): there may be no incident around it.

    Raises msgspec.ValidationError.
    """
    count = of_entries(entries)
    runs = {state.id: state for state in history.runs(entries)}
    told = mended([run], runs, entries)
    ended = next((entry for entry in reversed(entries) if entry.kind in ("run.closed", "run.refused")), None)
    last = told[0] if told else None
    return Timeline(
        schema_version=SCHEMA_VERSION,
        subject=RUN,
        id=run,
        title=(last.title if last else "") or "a run that was refused",
        targets=(last.target,) if last and last.target else (),
        source="run",
        sop="",
        opened_at=entries[0].at,
        closed_at=ended.at if ended and last and last.outcome not in ("", "incomplete") else None,
        outcome=last.outcome if last else "",
        start=Start(entries[0].at, OWN, "the run began", entries[0].digest),
        last=_last(entries),
        stages=(),
        measures=(),
        impact=impact(entries, (), count, _span(count, ended)),
        alerts=(),
        looks=(),
        runs=told,
        responders=(),
        moments=moments(entries, count, runs),
        samples=(),
        unseen=(),
    )


def _start(incident: Incident) -> Start:
    """When the trouble began, as the alert or a human tells; else when the incident was opened."""
    first, start = incident.entries[0], start_of(incident)
    if not start.clock:
        note = f" ({clean(start.note, 200)})" if start.note else ""
        return Start(first.at, OWN, f"the incident was opened{note}", first.digest)
    says = "the trouble began" if incident.opened.source == events.BY_HAND else "the alert began to fire"
    return Start(rfc3339(start.at), clean(start.clock, 100), says, first.digest)


def _span(count: Count, ended: Entry | None) -> float:
    """Seconds from the start to the end, or to the last entry."""
    end = count.of(ended).seconds if ended else None
    return count.longest if end is None else end


def _last(entries: Sequence[Entry]) -> Last:
    latest = max(entries, key=lambda entry: entry.seq)
    return Last(latest.seq, latest.digest, latest.at)


def _samples(entries: Sequence[Entry], count: Count) -> tuple[Sample, ...]:
    found = (sample(entry, count) for entry in entries if entry.kind == events.SAMPLED)
    return tuple(one for one in found if one is not None)


def _stage(state: StageState) -> Stage:
    return Stage(
        id=clean(state.id, 100),
        title=clean(state.title, 200),
        due=state.due,
        status=state.status,
        met_at=state.met_at,
        margin=state.margin,
        digest=state.by,
        how=clean(state.how, 300),
        why=clean(state.why, 300),
    )


def _alert(alert: events.Alert) -> events.Alert:
    return msgspec.structs.replace(
        alert,
        fingerprint=clean(alert.fingerprint, 200),
        status=clean(alert.status, 20),
        name=clean(alert.name, 200),
        labels=_cleaned(alert.labels),
        annotations=_cleaned(alert.annotations),
        generator=clean(alert.generator, 500),
        cut=clean(alert.cut or "", 200),
    )


def _cleaned(labels: dict[str, str]) -> dict[str, str]:
    return {clean(name, 200): clean(text, 500) for name, text in labels.items()}


def _responders(listed: Sequence[Told]) -> tuple[str, ...]:
    """Who said or did something, in the order in which they came; a command that acts by itself is none of them."""
    people = (events.OPENED, events.NOTED, events.MARKED, events.CLOSED)
    named = (told.by for told in listed if told.kind in people and not told.by.startswith(_COMMAND))
    return tuple(dict.fromkeys(name for name in named if name))
