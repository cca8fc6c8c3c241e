"""A post-mortem out of a timeline: sections of lines and tables, facts apart from what is inferred.

The sections are those of PagerDuty's template (postmortems.pagerduty.com), and one for what was not seen. What only a
human can write is a `TODO(human)`; nothing is made up in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from latdoctor.conditions.evaluator import show
from latdoctor.evidence.catalogue import catalogue
from latdoctor.incident import events, timeline_entries
from latdoctor.incident.elapsed import by_clock, clock_of
from latdoctor.incident.impact import impact_lines
from latdoctor.incident.timeline_model import (
    FACT,
    INCIDENT,
    INFERENCE,
    OWN,
    SAID,
    DiagnosisEvent,
    ResponseTime,
    RunReport,
    StageReport,
    Timeline,
    TimelineEvent,
)
from latdoctor.units import format_value

TODO = "TODO(human)"
BECAUSE = ", because "  # between a cause and what its findings say
SHORT = 12  # characters of a digest that tell it from others
_KEY = (events.OPENED, events.CONFIRMED, events.DIAGNOSED, events.SAMPLED, events.CLOSED, "run.closed")


class Statement(Struct, frozen=True):
    """`source`: where it is known from, an entry's digest or a file in the state folder."""

    message: str
    basis: str = FACT
    by: str = ""
    source: str = ""


class PostmortemTable(Struct, frozen=True):
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PostmortemSection(Struct, frozen=True):
    """`todo` is what a human has to add. `timeline`: here stand all moments."""

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
    """Every section, also of an incident that goes on: it says so."""
    return Postmortem(
        title=f"{'Post-mortem' if timeline.subject == INCIDENT else 'Run'}: {timeline.title}",
        status=_status(timeline),
        sections=tuple(_sections(timeline)),
    )


def _status(timeline: Timeline) -> str:
    ended = f"ended {clock_of(timeline.closed_at)} as {timeline.outcome}" if timeline.closed_at else "goes on"
    sop = f" · SOP {timeline.sop}" if timeline.sop else ""
    whole = f"whole up to entry {timeline.last.seq} ({timeline.last.digest[:SHORT]}) of {clock_of(timeline.last.at)}"
    return f"{timeline.id} · opened {clock_of(timeline.opened_at)} · {ended}{sop} · {whole}"


def _sections(told: Timeline) -> Iterator[PostmortemSection]:
    yield PostmortemSection(
        "Overview", tuple(_overview(told)), todo=("what happened, in two or three sentences for all to read",)
    )
    yield PostmortemSection("What happened", tuple(_moment(one) for one in told.moments if _is_key(one)))
    yield PostmortemSection(
        "Contributing factors",
        tuple(_causes(told.looks)),
        todo=("what made this possible", "why it was not found before it hurt"),
    )
    yield PostmortemSection(
        "Resolution",
        tuple(_run(run) for run in told.runs)
        or (Statement("No run of a playbook belongs to it.", source=_source(told)),),
        tuple(_run_tables(told.runs)),
        todo=("what else was done, and whether the cause itself is gone",),
    )
    yield PostmortemSection("Impact", tuple(_impact(told)), todo=("which customers noticed it, and what it cost them",))
    yield PostmortemSection(
        "Responders", tuple(Statement(name) for name in told.responders), todo=("who else, and in which role",)
    )
    yield PostmortemSection("Timeline", timeline=True)
    yield PostmortemSection(
        "How did we do",
        tuple(_not_so_well(told)),
        tuple(_how(told)),
        todo=("what went well", "what did not go so well", "where luck helped"),
    )
    yield PostmortemSection("What was not seen", tuple(_unseen(told)))
    yield PostmortemSection("Action items", todo=("each with an owner, a date and a ticket",))
    yield PostmortemSection("Messaging", todo=("message within the company", "message to customers"))


def _overview(told: Timeline) -> Iterator[Statement]:
    yield Statement(f"It began {clock_of(told.start.at)} ({told.start.message}, {by_clock(told.start.clock)}).")
    if told.targets:
        yield Statement(f"What was looked at: {', '.join(told.targets)}.")
    for line in _causes(told.looks):
        yield Statement(line.message.partition(BECAUSE)[0] + ".", line.basis, source=line.source)
    for run in told.runs:
        if run.stands:
            yield _run(run)
    yield from list(_impact(told))[:1]
    if told.open:
        yield Statement("It has not ended yet: all of this is as far as the journal goes.", source=_source(told))


def _is_key(told: TimelineEvent) -> bool:
    return told.kind in _KEY


def _moment(told: TimelineEvent) -> Statement:
    """Why a cause was named stands with the contributing factors."""
    message = told.message.partition(BECAUSE)[0] if told.basis == INFERENCE else told.message
    return Statement(f"{clock_of(told.at)}{other_clock(told)} {message}", told.basis, told.by, _digest(told.digest))


def other_clock(told: TimelineEvent) -> str:
    """Whose clock it was by, where it was not this machine's."""
    return "" if told.clock == OWN else f" ({by_clock(told.clock)})"


def _causes(looks: Iterable[DiagnosisEvent]) -> Iterator[Statement]:
    """Every cause that was named, as the look that was surest of it told it."""
    surest: dict[str, tuple[events.CauseRecord, DiagnosisEvent]] = {}
    for look in looks:
        for cause in look.causes:
            known = surest.get(cause.id)
            if cause.named and (known is None or known[0].probability < cause.probability):
                surest[cause.id] = cause, look
    for cause, look in surest.values():
        source = look.document or look.bundle or _digest(look.digest)
        yield Statement(timeline_entries.cause_sentence(cause), INFERENCE, f"diagnosis {look.run_id}", source)


def _run(run: RunReport) -> Statement:
    if not run.playbook:
        return Statement(f"Run {run.id}: {run.outcome or 'not ended'} ({run.reason}).")
    took = f" in {format_value(run.seconds, 'time')}" if run.seconds is not None else ""
    why = f": {run.reason}" if run.reason and run.reason != run.outcome else ""
    cause = f", to mend {run.cause}" if run.cause else ""
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
                    "stands" if one.stands else "taken back",
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
        after = "not seen" if one.after is None else show(one.signal, one.after) if known else f"{one.after:g}"
        yield f"{one.message} ({one.signal})" if one.message else one.signal, one.subject, before, after


def _impact(told: Timeline) -> Iterator[Statement]:
    return (Statement(message) for message in impact_lines(told.impact))


def _how(told: Timeline) -> Iterator[PostmortemTable]:
    if told.measures:
        heads = ("measure", "time", "from", "to", "basis", "definition")
        yield PostmortemTable(heads, tuple(_measure(one) for one in told.measures))
    if told.stages:
        heads = ("stage", "due", "met", "margin", "status", "by")
        yield PostmortemTable(heads, tuple(_stage(one) for one in told.stages))


def _measure(one: ResponseTime) -> tuple[str, ...]:
    time = format_value(one.seconds, "time") if one.seconds is not None else f"unknown: {one.why}"
    by = f"{one.basis}, {one.measured} clock" if one.measured else one.basis
    return f"{one.id} {one.title}", time, one.begins, one.ends, by, one.definition


def _stage(one: StageReport) -> tuple[str, ...]:
    margin = "" if one.margin is None else format_value(one.margin, "time")
    met = clock_of(one.met_at)
    told = one.how or one.why
    status = f"{one.status}: {told}" if told else one.status
    return one.title, format_value(one.due, "time"), met, margin, status, _digest(one.digest) if one.digest else ""


def _not_so_well(told: Timeline) -> Iterator[Statement]:
    """What the journal itself shows of that; the rest is for humans."""
    for stage in told.stages:
        if stage.status == "late":
            by = f" by {format_value(-stage.margin, 'time')}" if stage.margin is not None else ""
            yield Statement(f"Stage {stage.title} was late{by}.", source=_digest(stage.digest) if stage.digest else "")
    for run in told.runs:
        if run.outcome and not run.stands:
            yield Statement(f"Run {run.id}{f' of {run.playbook}' if run.playbook else ''} ended {run.outcome}.")
    for one in told.moments:
        if one.kind == events.NOTIFIED and one.level:
            yield Statement(f"{clock_of(one.at)} {one.message}", source=_digest(one.digest))


def _unseen(told: Timeline) -> Iterator[Statement]:
    impact = told.impact
    if impact.span:
        share = f"{impact.unseen / impact.span:.0%}".replace("%", " %")
        unseen, span = format_value(impact.unseen, "time"), format_value(impact.span, "time")
        yield Statement(f"{unseen} of its {span} ({share}) nobody was watching the service.")
    yield from (Statement(f"{one.id} is not known: {one.why}.") for one in told.measures if one.seconds is None)
    yield from (Statement(reason, by="the diagnoses") for reason in told.unseen)
    untimed = sum(one.seconds is None for one in told.moments)
    if untimed:
        yield Statement(f"Of {untimed} moments the order is known and not the time: this machine's clock was set back.")


def _source(told: Timeline) -> str:
    return _digest(told.last.digest)


def _digest(digest: str) -> str:
    return f"journal {digest[:SHORT]}"


def since_start(seconds: float | None) -> str:
    """`+5:12` after the start; hours where there are any."""
    if seconds is None:
        return "?"
    whole = round(abs(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    sign = "-" if seconds < 0 and whole else "+"
    return f"{sign}{hours}:{minutes:02d}:{rest:02d}" if hours else f"{sign}{minutes}:{rest:02d}"


def attributed(basis: str, by: str) -> str:
    """`fact`, `inference, by diagnosis d1a9`, `said by Ada`."""
    if basis == SAID:
        return f"said by {by.strip() or 'somebody'}"
    return f"{basis}, by {by.strip()}" if by.strip() else basis
