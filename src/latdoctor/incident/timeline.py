"""Timeline of an incident: all events of its journal entries, in order.

A function of the entries alone: after a kill at any moment it contains all that was journaled, identically.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.evidence.catalogue import catalogue
from latdoctor.incident import events
from latdoctor.incident.elapsed import ElapsedTimes, between, is_time, of_entries, of_incident, rfc3339, start_of
from latdoctor.incident.events import OpenedBy
from latdoctor.incident.impact import impact
from latdoctor.incident.journal_entry_texts import timeline_events, value_text
from latdoctor.incident.response_times import measures
from latdoctor.incident.slo_samples import read_sample
from latdoctor.incident.sop.clock import StageState
from latdoctor.incident.state import Incident, decode_body
from latdoctor.incident.timeline_model import (
    OWN,
    SCHEMA_VERSION,
    ChangedValue,
    DiagnosisEvent,
    LastEntry,
    MeasuredSignal,
    RunReport,
    SloSample,
    StageReport,
    Timeline,
    TimelineEvent,
    TimelineStart,
    TimelineSubject,
)
from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation import run_history
from latdoctor.remediation.run_history import ChangeRef, RunState
from latdoctor.remediation.run_result import Measure
from latdoctor.sanitize import clean

Cleanable = TypeVar("Cleanable")
_LONGEST = 500  # characters of a text


def diagnosis_events(entries: Iterable[JournalEntry], count: ElapsedTimes) -> tuple[DiagnosisEvent, ...]:
    """All diagnoses in journal order. Entries of another version are left out here, and listed among the events."""
    found = []
    for entry in entries:
        if entry.kind == events.DIAGNOSED:
            try:
                record = decode_body(entry, events.DiagnosisRecord)
            except UNDECODABLE:
                continue
            found.append(_diagnosis_event(entry, record, count))
    return tuple(found)


def _diagnosis_event(entry: JournalEntry, record: events.DiagnosisRecord, count: ElapsedTimes) -> DiagnosisEvent:
    return DiagnosisEvent(
        at=entry.at,
        seconds=count.of(entry).seconds,
        digest=entry.digest,
        run_id=clean(record.run_id, 100),
        target=clean(record.target, 200),
        level=clean(record.level, 20),
        message=clean(record.message, 400),
        answer=clean(record.answer, 40),
        causes=tuple(_cause(cause) for cause in record.causes),
        fired=_cleaned(record.fired),
        unseen=_cleaned(record.unseen),
        since=rfc3339(record.since) if record.since is not None and is_time(record.since) else None,
        document=clean(record.document, 300),
        bundle=clean(record.bundle, 300),
    )


def _cause(cause: events.CauseRecord) -> events.CauseRecord:
    return msgspec.structs.replace(_cleaned(cause), probability=min(1.0, max(0.0, cause.probability)))


def _cleaned(value: Cleanable) -> Cleanable:
    """`value` with every text in it cleaned, at any depth of structs, tuples and dicts."""
    cleaned: Any = value
    if isinstance(value, str) and not isinstance(value, StrEnum):
        cleaned = clean(value, _LONGEST)
    elif isinstance(value, tuple):
        cleaned = tuple(map(_cleaned, value))
    elif isinstance(value, dict):
        cleaned = {clean(name, _LONGEST): _cleaned(one) for name, one in value.items()}
    elif isinstance(value, Struct):
        cleaned = msgspec.structs.replace(value, **{k: _cleaned(v) for k, v in msgspec.structs.asdict(value).items()})
    return cleaned  # type: ignore[no-any-return]


def not_observed(found: Sequence[DiagnosisEvent]) -> tuple[str, ...]:
    """Missing evidence of the last diagnosis, and of earlier ones, each once."""
    if not found:
        return ("nothing was diagnosed",)
    ever = dict.fromkeys(reason for diagnosis in found for reason in diagnosis.unseen)
    last = set(found[-1].unseen)
    return tuple(reason if reason in last else f"{reason} (not in the last diagnosis)" for reason in ever)


REFUSED = "refused"
_MEASURED = ("before.measured", "verify.passed", "verify.failed")  # the later ones have the values after the change


class _Refused(Struct, frozen=True):
    guard: str
    reason: str


class _Measured(Struct, frozen=True):
    measures: tuple[Measure, ...] = ()


def run_reports(
    joined: Iterable[str], runs: Mapping[str, RunState], entries: Sequence[JournalEntry]
) -> tuple[RunReport, ...]:
    """The runs that `joined` names, in that order; each once."""
    by_run: dict[str, list[JournalEntry]] = {name: [] for name in joined}
    for entry in entries:
        if entry.run in by_run:
            by_run[entry.run].append(entry)
    reports = (
        _run(runs[name], own) if name in runs else _refused_run(name, own) for name, own in by_run.items() if own
    )
    return tuple(reports)


def _run(run: RunState, entries: Sequence[JournalEntry]) -> RunReport:
    plan = run.plan
    opened = next(entry for entry in entries if entry.kind == "run.opened")
    closed = next((entry for entry in reversed(entries) if entry.kind == "run.closed"), None)
    return RunReport(
        id=run.id,
        playbook=clean(plan.playbook, 100),
        title=clean(plan.title, 200),
        target=clean(plan.target.name, 200),
        risk=clean(plan.risk, 20),
        cause=clean(plan.diagnosis.cause, 100) if plan.diagnosis else "",
        outcome=run.outcome or "",
        reason=clean(run.reason, 600),
        opened_at=rfc3339(run.opened_at),
        ended_at=closed.at if closed else None,
        seconds=between(opened, closed).seconds if closed else None,
        changes=tuple(_changes(run)),
        figures=_figures(entries),
    )


def _refused_run(name: str, entries: Sequence[JournalEntry]) -> RunReport:
    """A run that a guard refused leaves that one entry: not even which playbook it was."""
    refused = next((entry for entry in entries if entry.kind == "run.refused"), None)
    record = msgspec.json.decode(refused.body, type=_Refused) if refused else None
    reason = clean(f"{record.guard}: {record.reason}", 600) if record else ""
    return RunReport(
        id=name,
        playbook="",
        title="",
        target="",
        risk="",
        cause="",
        outcome=REFUSED if record else "",
        reason=reason,
        opened_at=entries[0].at,
        ended_at=entries[-1].at if record else None,
        seconds=None,
        changes=(),
        figures=(),
    )


def _changes(run: RunState) -> Iterable[ChangedValue]:
    applied = set(run.in_effect)
    for touched in dict.fromkeys([*run.intended, *sorted(run.undone, key=_place)]):
        change = run.change(touched)
        for field in change.fields:
            yield ChangedValue(
                step=clean(change.step, 100),
                resource=clean(change.resource, 200),
                name=clean(field.name, 100),
                before=value_text(field.before),
                after=value_text(field.after),
                stands=touched in applied,
            )


def _place(touched: ChangeRef) -> tuple[int, int]:
    return touched.stage, touched.index


def _figures(entries: Sequence[JournalEntry]) -> tuple[MeasuredSignal, ...]:
    """Values from the latest entry that has them; those from before, where a run got no further."""
    for entry in reversed(entries):
        if entry.kind in _MEASURED:
            found = msgspec.json.decode(entry.body, type=_Measured).measures
            if found:
                return tuple(_figure(one) for one in found)
    return ()


def _figure(one: Measure) -> MeasuredSignal:
    known = catalogue().get(one.signal)
    return MeasuredSignal(
        clean(one.signal, 100), known.description if known else "", clean(one.subject, 200), one.before, one.after
    )


__all__ = ["Timeline", "of_run", "timeline"]

_COMMAND = "latdoctor "  # prefix of the name under which a command acts: `latdoctor listen`


def timeline(incident: Incident, stages: Sequence[StageState] = ()) -> Timeline:
    """Timeline of `incident` from its start to its last entry; `stages` are those of its SOP.

    Raises msgspec.ValidationError for a run's entry in the format of another version.
    """
    opened = incident.opened
    entries = incident.entries
    start, count = _start(incident), of_incident(incident)
    runs = {run.id: run for run in run_history.runs(entries)}
    reports = run_reports(incident.runs, runs, entries)
    samples, found = _samples(entries, count), diagnosis_events(entries, count)
    ended = next(iter(reversed(incident.of(events.CLOSED))), None)
    listed = timeline_events(entries, count, runs)
    return Timeline(
        schema_version=SCHEMA_VERSION,
        subject=TimelineSubject.INCIDENT,
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
        measures=measures(incident, start, count, found, reports, samples),
        impact=impact(entries, samples, count, _span(count, ended)),
        alerts=tuple(_alert(alert) for alert in incident.alerts.values()),
        looks=found,
        runs=reports,
        responders=_responders(listed),
        moments=listed,
        samples=samples,
        unseen=not_observed(found),
    )


def of_run(run: str, entries: Sequence[JournalEntry]) -> Timeline:
    """A run alone, of its own `entries` (one at least): there may be no incident around it.

    Raises msgspec.ValidationError.
    """
    count = of_entries(entries)
    runs = {state.id: state for state in run_history.runs(entries)}
    reports = run_reports([run], runs, entries)
    ended = next((entry for entry in reversed(entries) if entry.kind in ("run.closed", "run.refused")), None)
    last = reports[0] if reports else None
    return Timeline(
        schema_version=SCHEMA_VERSION,
        subject=TimelineSubject.RUN,
        id=run,
        title=(last.title if last else "") or "a run that was refused",
        targets=(last.target,) if last and last.target else (),
        source="run",
        sop="",
        opened_at=entries[0].at,
        closed_at=ended.at if ended and last and last.outcome not in ("", "incomplete") else None,
        outcome=last.outcome if last else "",
        start=TimelineStart(entries[0].at, OWN, "the run began", entries[0].digest),
        last=_last(entries),
        stages=(),
        measures=(),
        impact=impact(entries, (), count, _span(count, ended)),
        alerts=(),
        looks=(),
        runs=reports,
        responders=(),
        moments=timeline_events(entries, count, runs),
        samples=(),
        unseen=(),
    )


def _start(incident: Incident) -> TimelineStart:
    """Start of the trouble as reported by the alert or an operator; else the opening."""
    first, start = incident.entries[0], start_of(incident)
    if not start.clock:
        note = f" ({clean(start.note, 200)})" if start.note else ""
        return TimelineStart(first.at, OWN, f"the incident was opened{note}", first.digest)
    message = "the trouble began" if incident.opened.source == OpenedBy.HAND else "the alert began to fire"
    return TimelineStart(rfc3339(start.at), clean(start.clock, 100), message, first.digest)


def _span(count: ElapsedTimes, ended: JournalEntry | None) -> float:
    """Seconds from the start to the end, or to the last entry."""
    end = count.of(ended).seconds if ended else None
    return count.longest if end is None else end


def _last(entries: Sequence[JournalEntry]) -> LastEntry:
    latest = max(entries, key=lambda entry: entry.seq)
    return LastEntry(latest.seq, latest.digest, latest.at)


def _samples(entries: Sequence[JournalEntry], count: ElapsedTimes) -> tuple[SloSample, ...]:
    found = (read_sample(entry, count) for entry in entries if entry.kind == events.SAMPLED)
    return tuple(one for one in found if one is not None)


def _stage(state: StageState) -> StageReport:
    return StageReport(
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
    return msgspec.structs.replace(_cleaned(alert), cut=clean(alert.cut or "", 200))


def _responders(listed: Sequence[TimelineEvent]) -> tuple[str, ...]:
    """People who reported or did something, in order; not commands that act by themselves."""
    people = (events.OPENED, events.NOTED, events.MARKED, events.CLOSED)
    named = (reports.by for reports in listed if reports.kind in people and not reports.by.startswith(_COMMAND))
    return tuple(dict.fromkeys(name for name in named if name))
