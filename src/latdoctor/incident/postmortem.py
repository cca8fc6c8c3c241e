"""Post-mortem from a timeline: sections of statements and tables, with facts separate from inferences.

The sections follow PagerDuty's template (postmortems.pagerduty.com), plus one for missing evidence. Parts that only a
human can write are marked `TODO(human)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from latdoctor.conditions.evaluator import show
from latdoctor.evidence.catalogue import catalogue
from latdoctor.incident import events, journal_entry_texts
from latdoctor.incident.elapsed import by_clock, clock_of
from latdoctor.incident.impact import impact_lines
from latdoctor.incident.timeline_model import (
    OWN,
    Basis,
    DiagnosisEvent,
    ResponseTime,
    RunReport,
    StageReport,
    Timeline,
    TimelineEvent,
    TimelineSubject,
)
from latdoctor.units import format_value

TODO = "TODO(human)"
SHORT = 12  # characters of a digest that are printed
_KEY = (events.OPENED, events.CONFIRMED, events.DIAGNOSED, events.SAMPLED, events.CLOSED, "run.closed")


class Statement(Struct, frozen=True):
    """One sentence. `source`: digest of an entry, or a file in the state folder."""

    message: str
    basis: str = Basis.FACT
    by: str = ""
    source: str = ""


class PostmortemTable(Struct, frozen=True):
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PostmortemSection(Struct, frozen=True):
    """A section. `todo`: what a human has to add. `timeline`: the section lists all events."""

    title: str
    lines: tuple[Statement, ...] = ()
    tables: tuple[PostmortemTable, ...] = ()
    todo: tuple[str, ...] = ()
    timeline: bool = False


class Postmortem(Struct, frozen=True):
    title: str
    status: str
    sections: tuple[PostmortemSection, ...]


def postmortem(timeline: Timeline) -> Postmortem:
    """All sections, also for an open incident."""
    return Postmortem(
        title=f"{'Post-mortem' if timeline.subject == TimelineSubject.INCIDENT else 'Run'}: {timeline.title}",
        status=_status(timeline),
        sections=tuple(_sections(timeline)),
    )


def _status(timeline: Timeline) -> str:
    ended = f"ended {clock_of(timeline.closed_at)} as {timeline.outcome}" if timeline.closed_at else "goes on"
    sop = f" · SOP {timeline.sop}" if timeline.sop else ""
    whole = f"whole up to entry {timeline.last.seq} ({timeline.last.digest[:SHORT]}) of {clock_of(timeline.last.at)}"
    return f"{timeline.id} · opened {clock_of(timeline.opened_at)} · {ended}{sop} · {whole}"


def _sections(timeline: Timeline) -> Iterator[PostmortemSection]:
    causes = _cause_names(timeline.looks)
    yield PostmortemSection(
        "Overview", tuple(_overview(timeline)), todo=("what happened, in two or three sentences for all to read",)
    )
    yield PostmortemSection(
        "What happened", tuple(_moment(one, causes) for one in timeline.moments if one.kind in _KEY)
    )
    yield PostmortemSection(
        "Contributing factors",
        tuple(_causes(timeline.looks)),
        todo=("what made this possible", "why it was not found before users were affected"),
    )
    yield PostmortemSection(
        "Resolution",
        tuple(_run(run) for run in timeline.runs)
        or (Statement("No run of a playbook belongs to it.", source=_source(timeline)),),
        tuple(_run_tables(timeline.runs)),
        todo=("what else was done, and whether the cause itself is gone",),
    )
    yield PostmortemSection(
        "Impact", tuple(_impact(timeline)), todo=("which customers noticed it, and what it cost them",)
    )
    yield PostmortemSection(
        "Responders",
        tuple(Statement(name) for name in timeline.responders),
        todo=("further responders and their roles",),
    )
    yield PostmortemSection("Timeline", timeline=True)
    yield PostmortemSection(
        "How did we do",
        tuple(_not_so_well(timeline)),
        tuple(_how(timeline)),
        todo=("what went well", "what did not go so well", "where luck helped"),
    )
    yield PostmortemSection("What was not measured", tuple(_not_observed(timeline)))
    yield PostmortemSection("Action items", todo=("each with an owner, a date and a ticket",))
    yield PostmortemSection("Messaging", todo=("message within the company", "message to customers"))


def _overview(timeline: Timeline) -> Iterator[Statement]:
    yield Statement(
        f"It began {clock_of(timeline.start.at)} ({timeline.start.message}, {by_clock(timeline.start.clock)})."
    )
    if timeline.targets:
        yield Statement(f"Targets: {', '.join(timeline.targets)}.")
    for cause, diagnosis in _surest(timeline.looks):
        yield Statement(f"{journal_entry_texts.cause_name(cause)}.", Basis.INFERENCE, source=_stored(diagnosis))
    for run in timeline.runs:
        if run.stands:
            yield _run(run)
    yield from list(_impact(timeline))[:1]
    if timeline.open:
        yield Statement("It has not ended yet: all of this is as far as the journal goes.", source=_source(timeline))


def _moment(event: TimelineEvent, causes: Mapping[str, str]) -> Statement:
    """A key event; a cause without its findings, which are under the contributing factors."""
    message = causes.get(event.id, event.message)
    return Statement(
        f"{clock_of(event.at)}{other_clock(event)} {message}", event.basis, event.by, _digest(event.digest)
    )


def _cause_names(diagnoses: Iterable[DiagnosisEvent]) -> dict[str, str]:
    """Short sentence of each named cause, by the id of its event."""
    return {
        f"{diagnosis.digest}.{journal_entry_texts.cause_part(number)}": journal_entry_texts.cause_name(cause)
        for diagnosis in diagnoses
        for number, cause in enumerate((one for one in diagnosis.causes if one.named), 1)
    }


def other_clock(timeline: TimelineEvent) -> str:
    """Clock of the event's time, where it was not this machine's."""
    return "" if timeline.clock == OWN else f" ({by_clock(timeline.clock)})"


def _causes(diagnoses: Iterable[DiagnosisEvent]) -> Iterator[Statement]:
    for cause, diagnosis in _surest(diagnoses):
        by = f"diagnosis {diagnosis.run_id}"
        yield Statement(journal_entry_texts.cause_sentence(cause), Basis.INFERENCE, by, _stored(diagnosis))


def _surest(diagnoses: Iterable[DiagnosisEvent]) -> Iterable[tuple[events.CauseRecord, DiagnosisEvent]]:
    """Every named cause, with the diagnosis of the highest probability."""
    surest: dict[str, tuple[events.CauseRecord, DiagnosisEvent]] = {}
    for diagnosis in diagnoses:
        for cause in diagnosis.causes:
            known = surest.get(cause.id)
            if cause.named and (known is None or known[0].probability < cause.probability):
                surest[cause.id] = cause, diagnosis
    return surest.values()


def _stored(diagnosis: DiagnosisEvent) -> str:
    return diagnosis.document or diagnosis.bundle or _digest(diagnosis.digest)


def _run(run: RunReport) -> Statement:
    if not run.playbook:
        return Statement(f"Run {run.id}: {run.outcome or 'not ended'} ({run.reason}).")
    took = f" in {format_value(run.seconds, 'time')}" if run.seconds is not None else ""
    why = f": {run.reason}" if run.reason and run.reason != run.outcome else ""
    cause = f", to fix {run.cause}" if run.cause else ""
    ended = run.outcome or "has not ended"
    return Statement(f"Run {run.id} of {run.playbook} ({run.title}) on {run.target}{cause}: {ended}{took}{why}.")


def _run_tables(runs: Iterable[RunReport]) -> Iterator[PostmortemTable]:
    for run in runs:
        if run.changes:
            rows = (
                (
                    f"{one.step}: {one.name}",
                    one.resource,
                    one.before,
                    one.after,
                    "in place" if one.stands else "rolled back",
                )
                for one in run.changes
            )
            yield PostmortemTable((f"changed by {run.id}", "of", "before", "after", "now"), tuple(rows))
        if run.figures:
            yield PostmortemTable((f"measured by {run.id}", "of", "before", "after"), tuple(_figures(run)))


def _figures(run: RunReport) -> Iterator[tuple[str, ...]]:
    for one in run.figures:
        known = one.signal in catalogue()
        before = show(one.signal, one.before) if known else f"{one.before:g}"
        after = "not measured" if one.after is None else show(one.signal, one.after) if known else f"{one.after:g}"
        yield f"{one.message} ({one.signal})" if one.message else one.signal, one.subject, before, after


def _impact(timeline: Timeline) -> Iterator[Statement]:
    return (Statement(message) for message in impact_lines(timeline.impact))


def _how(timeline: Timeline) -> Iterator[PostmortemTable]:
    if timeline.measures:
        heads = ("measure", "time", "from", "to", "basis", "definition")
        yield PostmortemTable(heads, tuple(_measure(one) for one in timeline.measures))
    if timeline.stages:
        heads = ("stage", "due", "met", "margin", "status", "by")
        yield PostmortemTable(heads, tuple(_stage(one) for one in timeline.stages))


def _measure(one: ResponseTime) -> tuple[str, ...]:
    time = format_value(one.seconds, "time") if one.seconds is not None else f"unknown: {one.why}"
    by = f"{one.basis}, {one.measured} clock" if one.measured else one.basis
    return f"{one.id} {one.title}", time, one.begins, one.ends, by, one.definition


def _stage(one: StageReport) -> tuple[str, ...]:
    margin = "" if one.margin is None else format_value(one.margin, "time")
    met = clock_of(one.met_at)
    timeline = one.how or one.why
    status = f"{one.status}: {timeline}" if timeline else one.status
    return one.title, format_value(one.due, "time"), met, margin, status, _digest(one.digest) if one.digest else ""


def _not_so_well(timeline: Timeline) -> Iterator[Statement]:
    """Delays and failures that the journal shows; the rest is for humans."""
    for stage in timeline.stages:
        if stage.status == "late":
            by = f" by {format_value(-stage.margin, 'time')}" if stage.margin is not None else ""
            yield Statement(f"Stage {stage.title} was late{by}.", source=_digest(stage.digest) if stage.digest else "")
    for run in timeline.runs:
        if run.outcome and not run.stands:
            yield Statement(f"Run {run.id}{f' of {run.playbook}' if run.playbook else ''} ended {run.outcome}.")
    for one in timeline.moments:
        if one.kind == events.NOTIFIED and one.level:
            yield Statement(f"{clock_of(one.at)} {one.message}", source=_digest(one.digest))


def _not_observed(timeline: Timeline) -> Iterator[Statement]:
    impact = timeline.impact
    if impact.span:
        share = f"{impact.unseen / impact.span:.0%}".replace("%", " %")
        unseen, span = format_value(impact.unseen, "time"), format_value(impact.span, "time")
        yield Statement(f"{unseen} of its {span} ({share}) the service was not monitored.")
    yield from (Statement(f"{one.id} is not known: {one.why}.") for one in timeline.measures if one.seconds is None)
    yield from (Statement(reason, by="the diagnoses") for reason in timeline.unseen)
    untimed = sum(one.seconds is None for one in timeline.moments)
    if untimed:
        yield Statement(f"Of {untimed} moments the order is known and not the time: this machine's clock was set back.")


def _source(timeline: Timeline) -> str:
    return _digest(timeline.last.digest)


def _digest(digest: str) -> str:
    return f"journal {digest[:SHORT]}"


def since_start(seconds: float | None) -> str:
    """`+5:12` after the start; with hours where needed."""
    if seconds is None:
        return "?"
    whole = round(abs(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    sign = "-" if seconds < 0 and whole else "+"
    return f"{sign}{hours}:{minutes:02d}:{rest:02d}" if hours else f"{sign}{minutes}:{rest:02d}"


def attributed(basis: str, by: str) -> str:
    """`fact`, `inference, by diagnosis d1a9`, `reported by Ada`."""
    if basis == Basis.REPORTED:
        return f"reported by {by.strip() or 'an operator'}"
    return f"{basis}, by {by.strip()}" if by.strip() else basis
