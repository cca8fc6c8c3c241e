"""Which sections a page has, for a diagnosis and for an incident."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor import __version__
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.incident.document import RUN, Timeline
from latdoctor.report import times
from latdoctor.report.page import causes, course, head, over_time, spreads, stages, walk
from latdoctor.report.page.material import AT_WORST, Seen
from latdoctor.report.page.model import (
    BAD,
    GOOD,
    HAPPENED,
    QUIET,
    WARN,
    Beside,
    Block,
    Key,
    Limit,
    Lines,
    Mark,
    NotSeen,
    Page,
    Section,
)
from latdoctor.report.page.tables import clock

_TONES = {"critical": BAD, "warning": WARN, "healthy": GOOD, "info": GOOD, "inconclusive": QUIET}
_OUTCOMES = {"resolved": GOOD, "verified": GOOD, "false-alarm": QUIET}


def of_diagnosis(diagnosis: Diagnosis, looks: Sequence[Seen]) -> Page:
    """A page of `diagnosis`, which is of the last of `looks`; the others are what it is compared with."""
    return Page(
        title=f"Diagnosis of {diagnosis.target}",
        badge=diagnosis.verdict.level,
        tone=_TONES.get(diagnosis.verdict.level, ""),
        headline=head.headline(diagnosis),
        scope=times.scope(diagnosis),
        answer=head.answer(looks[-1], diagnosis),
        figures=head.figures(looks[-1], diagnosis),
        sections=(
            *_charts(over_time.measured(None, looks), looks, _marks(diagnosis)),
            causes.section(diagnosis),
            walk.section(diagnosis),
            walk.gaps(diagnosis),
            walk.next_steps(diagnosis),
        ),
        foot=(f"latdoctor {diagnosis.tool.version}, diagnosis {diagnosis.run_id} of {diagnosis.generated_at}",),
    )


def of_incident(timeline: Timeline, looks: Sequence[Seen]) -> Page:
    """A page of an incident or a run. `looks` are those of `material.chosen`, with what could be read of them."""
    diagnosis = next((look.diagnosis for look in looks if look.name == AT_WORST), None)
    badge = timeline.outcome or ("open" if timeline.open else "closed")
    return Page(
        title=timeline.title,
        badge=badge,
        tone=_OUTCOMES.get(badge, BAD if timeline.open else WARN),
        headline=head.headline(diagnosis) if diagnosis else head.headline_in_short(timeline),
        scope=head.scope_of(timeline),
        answer=head.answer_of(timeline, looks),
        figures=head.figures_of(timeline, looks),
        sections=(
            *(() if timeline.subject == RUN else _seen(timeline, looks)),
            *_why(timeline, diagnosis),
            course.mending(timeline),
            *(() if timeline.subject == RUN else (course.sop(timeline),)),
            course.story(timeline),
            *_looked_at(timeline, diagnosis, looks),
        ),
        foot=(
            f"latdoctor {__version__}, from the journal up to entry {timeline.last.seq} of {timeline.last.at}",
            f"digest of that entry: {timeline.last.digest}",
        ),
    )


def _seen(timeline: Timeline, looks: Sequence[Seen]) -> tuple[Section, ...]:
    return _charts(over_time.measured(timeline, looks), looks, course.marks(timeline), timeline.impact.slo_p99)


def _why(timeline: Timeline, diagnosis: Diagnosis | None) -> tuple[Section, ...]:
    if diagnosis is not None:
        return (causes.section(diagnosis),)
    if not timeline.looks:
        return ()
    return (causes.in_short(max(timeline.looks, key=lambda look: any(cause.named for cause in look.causes))),)


def _looked_at(timeline: Timeline, diagnosis: Diagnosis | None, looks: Sequence[Seen]) -> tuple[Section, ...]:
    missing = [look.why for look in looks if look.why]
    if diagnosis is None:
        return (walk.gaps_in_short((*timeline.unseen, *missing)),)
    return walk.section(diagnosis), walk.gaps(diagnosis, missing)


def _charts(
    found: over_time.Measured, looks: Sequence[Seen], marks: tuple[Mark, ...], slos: Sequence[float] = ()
) -> tuple[Section, ...]:
    known = [*slos, *(look.slo_p99 for look in looks if look.slo_p99 is not None)]
    limits = tuple(Limit("SLO", slo) for slo in known[:1])
    latency = over_time.chart(over_time.LATENCY, found, limits, marks)
    load = tuple(over_time.chart(wanted, found, (), marks) for wanted in over_time.BESIDE)
    shown = {mark.label for block in (latency, *load) if isinstance(block, Lines) for mark in block.marks}
    key: tuple[Block, ...] = (Key(tuple(mark for mark in marks if mark.label in shown)),) if shown else ()
    drawn: tuple[Block, ...] = tuple(block for block in load if isinstance(block, Lines))
    missing = tuple(block for block in load if isinstance(block, NotSeen))
    batches: tuple[Block, ...] = tuple(spreads.block(asked, looks) for asked in spreads.BATCHES)
    return (
        Section("latency", "Latency", (latency, *key, spreads.block(spreads.LATENCY, looks))),
        Section("load", "Load and memory", (*((Beside(drawn),) if drawn else ()), *missing)),
        Section("batches", "Batches", (Beside(batches),)),
        Section("stages", "Stages", (stages.block(looks),)),
    )


def _marks(diagnosis: Diagnosis) -> tuple[Mark, ...]:
    """Since when it is slow, and what changed shortly before."""
    found = [(change.time, change.says) for change in diagnosis.changes]
    if diagnosis.since is not None:
        found.append((diagnosis.since.time, "slow since then"))
    return tuple(
        Mark(time, str(number), f"{clock(time)[11:]} {says}", HAPPENED)
        for number, (time, says) in enumerate(sorted(found), start=1)
    )
