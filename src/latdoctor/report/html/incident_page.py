"""The page of an incident or a run: its state, measurements, cause, changes, SOP and timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from latdoctor import __version__
from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.evidence.catalogue import catalogue
from latdoctor.incident import events
from latdoctor.incident.elapsed import ClockType, by_clock
from latdoctor.incident.timeline_model import (
    OWN,
    Basis,
    MeasuredSignal,
    RunReport,
    StageReport,
    Timeline,
    TimelineEvent,
    TimelineSubject,
)
from latdoctor.report import diagnosis_text
from latdoctor.report.html import diagnosis_page, incident_figures, measurement_charts, time_series
from latdoctor.report.html.chart_tables import NOT_MEASURED, clock, shown, time_of_day
from latdoctor.report.html.page_inputs import AFTER, AT_WORST, Period, Snapshot, highlight, unix
from latdoctor.report.html.page_model import (
    TIME,
    Fact,
    Highlight,
    Item,
    Mark,
    MarkKind,
    Missing,
    Page,
    Section,
    Table,
    Tone,
)
from latdoctor.report.subject_names import shortened
from latdoctor.sanitize import clean
from latdoctor.units import format_value

MAX_MARKS = 12  # on one chart
_MAX_MESSAGE = 160  # characters of a mark's message
MAX_EVENTS = 2000  # of a timeline: beyond that the middle is left out, with a note
_MARGIN = 60.0  # seconds of the charts before the start and after the last entry

_KINDS = {
    events.ALERTED: MarkKind.EVENT,
    events.CONFIRMED: MarkKind.EVENT,
    events.DIAGNOSED: MarkKind.EVENT,
    events.CLOSED: MarkKind.EVENT,
    "change.made": MarkKind.CHANGED,
    "verify.passed": MarkKind.VERIFIED,
    "verify.failed": MarkKind.ROLLED_BACK,
    "rollback.begun": MarkKind.ROLLED_BACK,
    "undo.made": MarkKind.ROLLED_BACK,
}
# Steps within a run: in the full table only.
_STEPS = (
    "before.longer",
    "before.measured",
    "change.intended",
    "evidence.kept",
    "settled",
    "stage.skipped",
    "stage.verified",
    "verify.window",
    events.RUN_JOINED,
)
_FIRST = ("change.made", events.ALERTED, events.CONFIRMED, "verify.passed", "rollback.begun", "verify.failed")
_BASIS = {Basis.FACT: "fact", Basis.INFERENCE: "inference", Basis.REPORTED: "reported by a human"}
_STAGES = {"met": Tone.GOOD, "late": Tone.BAD, "unmet": Tone.QUIET, "unknown": Tone.WARN}
_LEVELS = {"critical": Tone.BAD, "warning": Tone.WARN, "healthy": Tone.GOOD}
_OUTCOMES = {"resolved": Tone.GOOD, "verified": Tone.GOOD, "false-alarm": Tone.QUIET}


class Run(Struct, frozen=True):
    """A run of a playbook: its outcome, what it changed, and its figures before and after."""

    title: str
    outcome: Item
    changes: Table | None
    figures: Table | Missing


class Events(Struct, frozen=True):
    """`every` also has the steps within runs; None where there are none."""

    main: Table
    every: Table | None
    wall_clock: bool


def of_incident(timeline: Timeline, snapshots: Sequence[Snapshot]) -> Page:
    """The page of an incident or a run. `snapshots` are those of `snapshots.chosen`, as far as they can be read."""
    worst = next((one for one in snapshots if one.name == AT_WORST), None)
    diagnosis = worst.diagnosis if worst else None
    badge = timeline.outcome or ("open" if timeline.open else "closed")
    is_run = timeline.subject == TimelineSubject.RUN
    charts, not_drawn = ((), ()) if is_run else _measurements(timeline, snapshots)
    sections = (
        *charts,
        *_causes(timeline, diagnosis),
        changes(timeline),
        *(() if is_run else (sop(timeline),)),
        event_table(timeline),
        *_coverage(timeline, diagnosis, (*(one.why for one in snapshots if one.why), *not_drawn)),
    )
    return Page(
        title=timeline.title,
        badge=badge,
        tone=_OUTCOMES.get(badge, Tone.BAD if timeline.open else Tone.WARN),
        headline=_headline(timeline, diagnosis),
        scope=_scope(timeline),
        answer=diagnosis_page.answer_lines(diagnosis, advice=timeline.open and not timeline.runs) if diagnosis else (),
        answer_title=f"Diagnosis {AT_WORST}",
        facts=tuple(_facts(timeline, snapshots)),
        figures=incident_figures.figures(timeline, snapshots),
        sections=sections,
        foot=(
            f"latdoctor {__version__}, from the journal up to entry {timeline.last.seq} of {timeline.last.at}",
            f"digest of that entry: {timeline.last.digest}",
        ),
    )


def _headline(timeline: Timeline, diagnosis: Diagnosis | None) -> str:
    """The cause, as the diagnosis or else the journal names it."""
    if diagnosis is not None:
        first = next(iter(diagnosis_text.shown_causes(diagnosis, every=False)), None)
        if first is None:
            return diagnosis_text.answer_line(diagnosis).capitalize() or diagnosis.verdict.message
        return first.title if diagnosis.answer.kind == "named" else f"Possibly: {first.title}"
    named = [cause.title for event in timeline.looks for cause in event.causes if cause.named]
    if named:
        return named[-1]
    return timeline.runs[-1].title if timeline.runs else "No cause was named"


def _scope(timeline: Timeline) -> str:
    names = ", ".join(shortened(target) for target in timeline.targets)
    began, ended = unix(timeline.start.at), unix(timeline.closed_at or "")
    parts = (
        timeline.id,
        f"target {names}" if names else "",
        f"since {clock(began)} UTC" if began else "",
        f"closed {clock(ended)} UTC" if ended else "still open",
    )
    return " · ".join(part for part in parts if part)


def _facts(timeline: Timeline, snapshots: Sequence[Snapshot]) -> Iterator[Fact]:
    """What was done, and the state afterwards."""
    for run in timeline.runs:
        yield Fact("Run", f"{run.title or run.playbook or run.id}: {run.outcome or 'not ended'}")
    for one in snapshots:
        if one.name == AFTER and one.diagnosis is not None:
            yield Fact("Afterwards", one.diagnosis.verdict.message)


def _measurements(timeline: Timeline, snapshots: Sequence[Snapshot]) -> tuple[tuple[Section, ...], tuple[str, ...]]:
    began, last = unix(timeline.start.at), unix(timeline.closed_at or timeline.last.at)
    front = Period(began - _MARGIN, last + _MARGIN) if began is not None and last is not None else None
    return measurement_charts.sections(
        time_series.measured(timeline, snapshots),
        snapshots,
        marks(timeline),
        slos=timeline.impact.slo_p99,
        highlights=tuple(_highlights(timeline, snapshots)),
        front=front,
    )


def _highlights(timeline: Timeline, snapshots: Sequence[Snapshot]) -> Iterator[Highlight]:
    """The latency of the diagnosis shown in the head, and the worst P99 of all."""
    shown = (highlight(one) for one in snapshots if one.name == AT_WORST)
    yield from (replace(one, name="diagnosis") for one in shown if one)
    worst = incident_figures.worst_p99(timeline, snapshots)
    value, _, time = worst or (0.0, "", None)
    if time is not None:
        yield Highlight("worst", f"P99 {format_value(value, TIME)}", value, time, time)


def _causes(timeline: Timeline, diagnosis: Diagnosis | None) -> tuple[Section, ...]:
    if diagnosis is not None:
        return (diagnosis_page.causes(diagnosis),)
    if not timeline.looks:
        return ()
    event = max(timeline.looks, key=lambda one: any(cause.named for cause in one.causes))
    lead = "Of this diagnosis only the summary in the journal is left, without points and rivals."
    return (Section("why", "Why", "recorded_causes", event, lead),)


def _coverage(timeline: Timeline, diagnosis: Diagnosis | None, missing: tuple[str, ...]) -> Iterator[Section]:
    if diagnosis is not None:
        yield diagnosis_page.checks(diagnosis)
        yield diagnosis_page.gaps(diagnosis, missing)
    else:
        gaps = diagnosis_page.Gaps((*timeline.unseen, *missing), None)
        yield Section("gaps", "What was not measured", "gaps", gaps)


def when(event: TimelineEvent, timeline: Timeline) -> float | None:
    """Unix seconds of an event, from the start by the monotonic clock where that is known."""
    start = unix(timeline.start.at)
    return start + event.seconds if event.seconds is not None and start is not None else unix(event.at)


def marks(timeline: Timeline) -> tuple[Mark, ...]:
    """Changes and their results first, then diagnoses; and the deadlines among them."""
    timed = ((when(event, timeline), event) for event in timeline.moments if event.kind in _KINDS)
    found = _once([(time, event) for time, event in timed if time is not None])
    if len(found) > MAX_MARKS:
        first = [one for one in found if one[1].kind in _FIRST][:MAX_MARKS]
        rest = [one for one in found if one[1].kind not in _FIRST]
        found = sorted([*first, *rest[: MAX_MARKS - len(first)]], key=lambda one: one[0])
    listed = [
        Mark(time, str(number), f"{time_of_day(time)} {clean(event.message, _MAX_MESSAGE)}", _KINDS[event.kind])
        for number, (time, event) in enumerate(sorted(found, key=lambda one: one[0]), start=1)
    ]
    return (*listed, *_deadlines(timeline, [mark.time for mark in listed]))


def _once(found: Sequence[tuple[float, TimelineEvent]]) -> list[tuple[float, TimelineEvent]]:
    """Of equal events of a run within a second, the first."""
    kept: list[tuple[float, TimelineEvent]] = []
    last: dict[tuple[str, str], float] = {}
    for time, event in found:
        key = (event.kind, event.run)
        if key not in last or abs(time - last[key]) >= 1:
            last[key] = time
            kept.append((time, event))
    return kept


def _deadlines(timeline: Timeline, times: Sequence[float]) -> Iterator[Mark]:
    """Those within the time of the charts; the table of the SOP has all."""
    start = unix(timeline.start.at)
    latest = max([*times, unix(timeline.last.at) or 0.0])
    for stage in timeline.stages:
        if start is not None and start + stage.due <= latest:
            due = format_value(stage.due, TIME)
            message = f"{time_of_day(start + stage.due)} due after {due}: {stage.title}"
            yield Mark(start + stage.due, due, message, MarkKind.DUE)


def sop(timeline: Timeline) -> Section:
    """Each stage with its due time, when it was met, and the margin."""
    if not timeline.stages:
        why = "the incident has no SOP" if not timeline.sop else f"the state of {timeline.sop} was not computed"
        return Section("sop", "SOP clock", "table", Missing("SOP stages", why))
    rows = tuple(_stage(stage) for stage in timeline.stages)
    tones = tuple(_STAGES.get(stage.status, Tone.NONE) for stage in timeline.stages)
    columns = ("stage", "due", "status", "met at (UTC)", "margin", "why")
    lead = f"Counted from {timeline.start.at}: {timeline.start.message}, {by_clock(timeline.start.clock)}."
    return Section("sop", "SOP clock", "table", Table(f"SOP {timeline.sop}", columns, rows, (1, 4), tones), lead)


def _stage(stage: StageReport) -> tuple[str, ...]:
    met = unix(stage.met_at) if stage.met_at else None
    met_at, margin = clock(met) if met else "–", shown(stage.margin, TIME)
    return stage.title, format_value(stage.due, TIME), stage.status, met_at, margin, stage.why


def changes(timeline: Timeline) -> Section:
    """What was changed, and the figures before and after."""
    return Section("changes", "Changes", "runs", tuple(_run(run) for run in timeline.runs))


def _run(run: RunReport) -> Run:
    took = f", {format_value(run.seconds, TIME)}" if run.seconds is not None else ""
    message = f"{run.outcome or 'not ended'}{took}: {run.reason or run.playbook}"
    changed = tuple(
        (one.step, one.name, one.before, one.after, "in place" if one.stands else "rolled back") for one in run.changes
    )
    figures = tuple(_figure(one) for one in run.figures)
    columns = ("signal", "subject", "before", "after", "after / before")
    return Run(
        title=f"{run.title or run.playbook or 'a run that never began'} ({run.id})",
        outcome=Item(message, "run", Tone.GOOD if run.stands else Tone.WARN),
        changes=Table(f"Changes of {run.target}", ("step", "setting", "before", "after", "state"), changed)
        if changed
        else None,
        figures=Table("Before and after, as the run measured it", columns, figures, numbers=(2, 3, 4))
        if figures
        else Missing("Figures", "the run measured none"),
    )


def _figure(one: MeasuredSignal) -> tuple[str, ...]:
    def text(value: float) -> str:
        return show(one.signal, value) if one.signal in catalogue() else f"{value:g}"

    after = NOT_MEASURED if one.after is None else text(one.after)
    ratio = f"{one.after / one.before:.2f} ×" if one.after is not None and one.before > 0 else "–"
    return one.message or one.signal, one.subject, text(one.before), after, ratio


def event_table(timeline: Timeline) -> Section:
    """Every event of the journal, facts separate from inferences."""
    known, note = timeline.moments, ""
    if len(known) > MAX_EVENTS:
        half = MAX_EVENTS // 2
        known = (*known[:half], *known[-half:])
        note = f"The {len(timeline.moments) - MAX_EVENTS} in the middle are left out: see latdoctor timeline."
    main = [event for event in known if event.kind not in _STEPS]
    caption = f"{timeline.start.at[:10]}, counted from: {timeline.start.message}"
    content = Events(
        main=_event_rows(main, timeline, caption),
        every=_event_rows(known, timeline, f"All {len(known)} events", note) if len(main) < len(known) else None,
        wall_clock=any(event.measured == ClockType.WALL for event in timeline.moments),
    )
    return Section("timeline", "Timeline", "events", content)


def _event_rows(known: Sequence[TimelineEvent], timeline: Timeline, caption: str, note: str = "") -> Table:
    rows = tuple(_event(event, timeline.start.at[:10]) for event in known)
    tones = tuple(_LEVELS.get(event.level, Tone.NONE) for event in known)
    return Table(caption, ("time (UTC)", "after", "event", "basis", "by"), rows, numbers=(1,), tones=tones, note=note)


def _event(event: TimelineEvent, day: str) -> tuple[str, ...]:
    if event.seconds is None:
        after = "unknown"
    else:
        sign = "−" if event.seconds < 0 else ""
        about = "≈ " if event.measured == ClockType.WALL else ""
        after = f"{about}{sign}{format_value(abs(event.seconds), TIME)}"
    time = unix(event.at)
    at = event.at if time is None else clock(time).removeprefix(f"{day} ")
    other = "" if event.clock == OWN else f" ({by_clock(event.clock)})"
    return at, after, f"{event.message}{other}", _BASIS.get(event.basis, event.basis), event.by
