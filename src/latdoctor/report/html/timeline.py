"""What happened: the marks on the charts, the SOP's clock, the runs, and every moment of the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.conditions.evaluator import show
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
)
from latdoctor.report.html.charts import NOT_SEEN, clock
from latdoctor.report.html.document import (
    BAD,
    CHANGED,
    DUE,
    GOOD,
    HAPPENED,
    MENDED,
    QUIET,
    UNDONE,
    WARN,
    Block,
    Entry,
    Fold,
    Listing,
    Mark,
    NotSeen,
    PageSection,
    Paragraph,
    Table,
)
from latdoctor.report.html.inputs import unix
from latdoctor.sanitize import clean
from latdoctor.units import format_value

MOST_MARKS = 12  # on one chart: more numbers than that are not told apart
_LONGEST = 160  # characters of what a mark says
MOST_MOMENTS = 2000  # of a timeline: beyond that the middle is left out, and the page says so

_KINDS = {
    events.ALERTED: HAPPENED,
    events.CONFIRMED: HAPPENED,
    events.DIAGNOSED: HAPPENED,
    events.CLOSED: HAPPENED,
    "change.made": CHANGED,
    "verify.passed": MENDED,
    "verify.failed": UNDONE,
    "rollback.begun": UNDONE,
    "undo.made": UNDONE,
}
# What a run does in between: told in full below the table.
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
_BASIS = {Basis.FACT: "fact", Basis.INFERENCE: "inference", Basis.REPORTED: "said by a human"}
_TONES = {"met": GOOD, "late": BAD, "unmet": QUIET, "unknown": WARN}
_LEVELS = {"critical": BAD, "warning": WARN, "healthy": GOOD}


def when(told: TimelineEvent, timeline: Timeline) -> float | None:
    """Unix seconds of a moment, counted from the start by the clock that nobody sets where that is known."""
    start = unix(timeline.start.at)
    return start + told.seconds if told.seconds is not None and start is not None else unix(told.at)


def marks(timeline: Timeline) -> tuple[Mark, ...]:
    """What the charts mark: changes and their results first, then diagnoses; and the deadlines among them."""
    found = [
        (time, known)
        for known in timeline.moments
        if known.kind in _KINDS and (time := when(known, timeline)) is not None
    ]
    found = _once(found)
    if len(found) > MOST_MARKS:
        first = [one for one in found if one[1].kind in _FIRST][:MOST_MARKS]
        rest = [one for one in found if one[1].kind not in _FIRST]
        found = sorted([*first, *rest[: MOST_MARKS - len(first)]], key=lambda one: one[0])
    listed = [
        Mark(time, str(number), f"{clock(time)[11:]} {clean(known.message, _LONGEST)}", _KINDS[known.kind])
        for number, (time, known) in enumerate(sorted(found, key=lambda one: one[0]), start=1)
    ]
    return (*listed, *_deadlines(timeline, [mark.time for mark in listed]))


def _once(found: Sequence[tuple[float, TimelineEvent]]) -> list[tuple[float, TimelineEvent]]:
    """Of changes that were made within a second, the first stands for all."""
    kept: list[tuple[float, TimelineEvent]] = []
    last: dict[tuple[str, str], float] = {}
    for time, known in found:
        of = (known.kind, known.run)
        if of not in last or abs(time - last[of]) >= 1:
            last[of] = time
            kept.append((time, known))
    return kept


def _deadlines(timeline: Timeline, times: Sequence[float]) -> Iterator[Mark]:
    """Those within the time that the charts show: the others stand in the table of the SOP."""
    start = unix(timeline.start.at)
    latest = max([*times, unix(timeline.last.at) or 0.0])
    for stage in timeline.stages:
        if start is not None and start + stage.due <= latest:
            due = format_value(stage.due, "time")
            yield Mark(start + stage.due, due, f"{clock(start + stage.due)[11:]} due after {due}: {stage.title}", DUE)


def sop(timeline: Timeline) -> PageSection:
    """Each stage with its due time, when it was met, and by what margin."""
    if not timeline.stages:
        why = (
            "the incident has no SOP" if not timeline.sop else f"how {timeline.sop} stands was not handed to this page"
        )
        return PageSection("sop", "SOP clock", (NotSeen("Stages", why),))
    rows = tuple(_stage(stage) for stage in timeline.stages)
    tones = tuple(_TONES.get(stage.status, "") for stage in timeline.stages)
    table = Table(
        f"SOP {timeline.sop}", ("stage", "due", "status", "met at (UTC)", "margin", "why"), rows, (1, 4), tones
    )
    lead = f"Counted from {timeline.start.at}: {timeline.start.message}, {by_clock(timeline.start.clock)}."
    return PageSection("sop", "SOP clock", (table,), lead)


def _stage(stage: StageReport) -> tuple[str, ...]:
    met = unix(stage.met_at) if stage.met_at else None
    margin = format_value(stage.margin, "time") if stage.margin is not None else NOT_SEEN
    return stage.title, format_value(stage.due, "time"), stage.status, clock(met) if met else "–", margin, stage.why


def mending(timeline: Timeline) -> PageSection:
    """What was changed, and the figures before and after."""
    if not timeline.runs:
        return PageSection("mending", "Changes", (NotSeen("Changes", "no run of a playbook belongs to this"),))
    return PageSection("mending", "Changes", tuple(block for run in timeline.runs for block in _run(run)))


def _run(run: RunReport) -> Iterator[Block]:
    name = run.title or run.playbook or "a run that never began"
    took = f", {format_value(run.seconds, 'time')}" if run.seconds is not None else ""
    tone = GOOD if run.stands else WARN
    yield Listing(
        (Entry(f"{run.outcome or 'not ended'}{took}: {run.reason or run.playbook}", "run", tone),), f"{name} ({run.id})"
    )
    if run.changes:
        rows = tuple((c.step, c.name, c.before, c.after, "yes" if c.stands else "taken back") for c in run.changes)
        yield Table(f"Changes of {run.target}", ("step", "what", "before", "after", "stands"), rows)
    if run.figures:
        figures = tuple(_figure(one) for one in run.figures)
        columns = ("what", "of", "before", "after", "after over before")
        yield Table("Before and after, as the run measured it", columns, figures, numbers=(2, 3, 4))
    else:
        yield NotSeen("Figures", "the run measured none")


def _figure(one: MeasuredSignal) -> tuple[str, ...]:
    known = one.signal in catalogue()
    before = show(one.signal, one.before) if known else f"{one.before:g}"
    after = NOT_SEEN if one.after is None else show(one.signal, one.after) if known else f"{one.after:g}"
    ratio = f"{one.after / one.before:.2f} ×" if one.after is not None and one.before > 0 else "–"
    return one.message or one.signal, one.subject, before, after, ratio


def story(timeline: Timeline) -> PageSection:
    """Every moment, facts told from inference."""
    moments, note = timeline.moments, ""
    if len(moments) > MOST_MOMENTS:
        half = MOST_MOMENTS // 2
        moments = (*moments[:half], *moments[-half:])
        note = f"The {len(timeline.moments) - MOST_MOMENTS} in the middle are left out: latdoctor timeline has them."
    first = [known for known in moments if known.kind not in _STEPS]
    blocks: list[Block] = [_told(first, timeline, f"{timeline.start.at[:10]}, counted from: {timeline.start.message}")]
    if len(first) < len(moments):
        whole = _told(moments, timeline, f"All {len(moments)} moments", note)
        blocks.append(Fold(f"Every step of the runs: {len(moments)} moments", (whole,)))
    if any(known.measured == ClockType.WALL for known in timeline.moments):
        blocks.append(
            Paragraph("≈ by the wall clock: the machine was started anew, or another clock told the time.", QUIET)
        )
    return PageSection("timeline", "Timeline", tuple(blocks))


def _told(moments: Sequence[TimelineEvent], timeline: Timeline, caption: str, note: str = "") -> Table:
    rows = tuple(_moment(known, timeline.start.at[:10]) for known in moments)
    tones = tuple(_LEVELS.get(known.level, "") for known in moments)
    return Table(caption, ("time (UTC)", "after", "what", "basis", "by"), rows, numbers=(1,), tones=tones, note=note)


def _moment(told: TimelineEvent, day: str) -> tuple[str, ...]:
    if told.seconds is None:
        after = "unknown"
    else:
        sign = "−" if told.seconds < 0 else ""
        about = "≈ " if told.measured == ClockType.WALL else ""
        after = f"{about}{sign}{format_value(abs(told.seconds), 'time')}"
    time = unix(told.at)
    at = told.at if time is None else clock(time).removeprefix(f"{day} ")
    whose = "" if told.clock == OWN else f" ({by_clock(told.clock)})"
    return at, after, f"{told.message}{whose}", _BASIS.get(told.basis, told.basis), told.by
