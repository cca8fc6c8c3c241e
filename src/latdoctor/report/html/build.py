"""What stands at the head of a page: how it is, what it is, what was done, and the figures of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor import __version__
from latdoctor.diagnosis.recommend import first_playbook
from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.incident.timeline_model import Timeline, TimelineSubject
from latdoctor.report import presenter, time_scope
from latdoctor.report.html import causes, coverage, distributions, time_series
from latdoctor.report.html import timeline as course
from latdoctor.report.html.charts import NOT_SEEN, clock
from latdoctor.report.html.document import (
    BAD,
    GOOD,
    HAPPENED,
    QUIET,
    WARN,
    Beside,
    Block,
    Fact,
    Facts,
    Key,
    Limit,
    Lines,
    Mark,
    NotSeen,
    Page,
    PageSection,
)
from latdoctor.report.html.inputs import AFTER, AT_WORST, Seen, unix
from latdoctor.report.html.time_series import over_slo, worst_p99
from latdoctor.units import format_value, percent

P99 = "latency.p99"
_MORE = (("waiting", "queue.depth", "count"), ("arriving", "arrival.rate", "rate"))


def headline(diagnosis: Diagnosis) -> str:
    """The cause, in its own words."""
    cause = _first(diagnosis)
    if cause is None:
        return presenter.answer_line(diagnosis).capitalize() or diagnosis.verdict.message
    return cause.title if diagnosis.answer.kind == "named" else f"Perhaps: {cause.title}"


def headline_in_short(timeline: Timeline) -> str:
    """The same where only the journal tells of it."""
    named = [cause.title for look in timeline.looks for cause in look.causes if cause.named]
    if named:
        return named[-1]
    return timeline.runs[-1].title if timeline.runs else "No cause was named"


def answer(seen: Seen, diagnosis: Diagnosis) -> Facts:
    """Harm, since when, what to do, whom to wake."""
    harm = _harm(diagnosis)
    facts = [Fact("harm", harm)] if harm else []
    facts += [Fact(*_since(line)) for line in time_scope.since_lines(diagnosis)]
    cause = _first(diagnosis)
    facts += [Fact(label, message) for label, message in presenter.advice(cause)] if cause else []
    return Facts((*facts, *([Fact("missing", seen.why)] if seen.why else [])))


def answer_of(timeline: Timeline, looks: Sequence[Seen]) -> Facts:
    """How it was at its worst, what was done about it, and how it was afterwards."""
    return Facts(tuple(_told(timeline, looks)))


def _told(timeline: Timeline, looks: Sequence[Seen]) -> Iterator[Fact]:
    diagnoses = {look.name: look.diagnosis for look in looks if look.diagnosis is not None}
    if AT_WORST in diagnoses:
        worst = diagnoses[AT_WORST]
        yield Fact("at worst", _harm(worst) or worst.verdict.message)
        if worst.since is not None:
            yield from (Fact(*_since(line)) for line in time_scope.since_lines(worst)[:1])
    for run in timeline.runs:
        yield Fact("done", f"{run.title or run.playbook or run.id}: {run.outcome or 'not ended'}")
    if AFTER in diagnoses:
        yield Fact("afterwards", diagnoses[AFTER].verdict.message)
    if timeline.open and not timeline.runs and diagnoses:
        last = list(diagnoses.values())[-1]
        playbooks = [name for cause in last.causes if cause.named and (name := first_playbook(cause))]
        yield from (
            Fact("safe next", f"latdoctor remediate --playbook {name} --server URL (shows what it would change)")
            for name in playbooks[:1]
        )


def scope_of(timeline: Timeline) -> str:
    names = ", ".join(presenter.shortened(target) for target in timeline.targets)
    targets = f"target {names}" if names else ""
    began, ended = unix(timeline.start.at), unix(timeline.closed_at or "")
    begun = f"since {clock(began)} UTC" if began else ""
    closed = f"closed {clock(ended)} UTC" if ended else "still open"
    return " · ".join(part for part in (timeline.id, targets, begun, closed) if part)


def figures_of(timeline: Timeline, looks: Sequence[Seen]) -> Facts:
    """What it cost, and how long each part of it took."""
    facts = [
        Fact(
            one.title, NOT_SEEN if one.seconds is None else format_value(one.seconds, "time"), one.why or one.id.upper()
        )
        for one in timeline.measures
    ]
    if timeline.subject == TimelineSubject.RUN:
        return Facts(tuple(facts))
    return Facts((worst_p99(timeline, looks), over_slo(timeline), *facts))


def figures(seen: Seen, diagnosis: Diagnosis) -> Facts:
    slo = f"SLO {format_value(seen.slo_p99, 'time')}" if seen.slo_p99 is not None else "no SLO was given"
    p99 = _highest(seen, P99)
    facts = [Fact("P99", NOT_SEEN if p99 is None else format_value(p99, "time"), slo)]
    for label, signal, dimension in _MORE:
        value = _highest(seen, signal)
        facts += [Fact(label, format_value(value, dimension), "requests")] if value is not None else []
    cause = _first(diagnosis)
    if cause is not None:
        facts.append(Fact("cause", percent(cause.probability), cause.confidence))
    fired = sum(check.status == "fired" for check in diagnosis.checks)
    judged = fired + sum(check.status == "clear" for check in diagnosis.checks)
    note = f"of {judged} that could be judged, {len(diagnosis.checks)} in all"
    return Facts((*facts, Fact("findings", f"{fired} hold", note)))


def _harm(diagnosis: Diagnosis) -> str:
    return "; ".join(line.message for line in presenter.symptoms(diagnosis)[:2] if line.kind == presenter.FOR)


def _since(line: str) -> tuple[str, str]:
    """`changed of late: …` as a label and what it says."""
    label, colon, message = line.partition(": ")
    return (label, message) if colon and " since " not in label else ("since", line)


def _first(diagnosis: Diagnosis) -> RankedCause | None:
    return next(iter(presenter.shown_causes(diagnosis, every=False)), None)


def _highest(seen: Seen, signal: str) -> float | None:
    """Of all subjects: replicas are never averaged."""
    found = seen.evidence.readings_by_signal.get(signal, ()) if seen.evidence else ()
    return max((one.value for one in found if isinstance(one.value, float) and not one.labels), default=None)


_TONES = {"critical": BAD, "warning": WARN, "healthy": GOOD, "info": GOOD, "inconclusive": QUIET}
_OUTCOMES = {"resolved": GOOD, "verified": GOOD, "false-alarm": QUIET}


def of_diagnosis(diagnosis: Diagnosis, looks: Sequence[Seen]) -> Page:
    """A page of `diagnosis`, which is of the last of `looks`; the others are what it is compared with."""
    return Page(
        title=f"Diagnosis of {diagnosis.target}",
        badge=diagnosis.verdict.level,
        tone=_TONES.get(diagnosis.verdict.level, ""),
        headline=headline(diagnosis),
        scope=f"target {time_scope.scope(diagnosis)}",
        answer=answer(looks[-1], diagnosis),
        figures=figures(looks[-1], diagnosis),
        sections=(
            *_charts(time_series.measured(None, looks), looks, _marks(diagnosis)),
            causes.section(diagnosis),
            coverage.section(diagnosis),
            coverage.gaps(diagnosis),
            coverage.next_steps(diagnosis),
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
        headline=headline(diagnosis) if diagnosis else headline_in_short(timeline),
        scope=scope_of(timeline),
        answer=answer_of(timeline, looks),
        figures=figures_of(timeline, looks),
        sections=(
            *(() if timeline.subject == TimelineSubject.RUN else _seen(timeline, looks)),
            *_why(timeline, diagnosis),
            course.mending(timeline),
            *(() if timeline.subject == TimelineSubject.RUN else (course.sop(timeline),)),
            course.story(timeline),
            *_looked_at(timeline, diagnosis, looks),
        ),
        foot=(
            f"latdoctor {__version__}, from the journal up to entry {timeline.last.seq} of {timeline.last.at}",
            f"digest of that entry: {timeline.last.digest}",
        ),
    )


def _seen(timeline: Timeline, looks: Sequence[Seen]) -> tuple[PageSection, ...]:
    return _charts(time_series.measured(timeline, looks), looks, course.marks(timeline), timeline.impact.slo_p99)


def _why(timeline: Timeline, diagnosis: Diagnosis | None) -> tuple[PageSection, ...]:
    if diagnosis is not None:
        return (causes.section(diagnosis),)
    if not timeline.looks:
        return ()
    return (causes.in_short(max(timeline.looks, key=lambda look: any(cause.named for cause in look.causes))),)


def _looked_at(timeline: Timeline, diagnosis: Diagnosis | None, looks: Sequence[Seen]) -> tuple[PageSection, ...]:
    missing = [look.why for look in looks if look.why]
    if diagnosis is None:
        return (coverage.gaps_in_short((*timeline.unseen, *missing)),)
    return coverage.section(diagnosis), coverage.gaps(diagnosis, missing)


def _charts(
    found: time_series.Measured, looks: Sequence[Seen], marks: tuple[Mark, ...], slos: Sequence[float] = ()
) -> tuple[PageSection, ...]:
    known = [*slos, *(look.slo_p99 for look in looks if look.slo_p99 is not None)]
    limits = tuple(Limit("SLO", slo) for slo in known[:1])
    latency = time_series.chart(time_series.LATENCY, found, limits, marks)
    load = tuple(time_series.chart(wanted, found, (), marks) for wanted in time_series.BESIDE)
    shown = {mark.label for block in (latency, *load) if isinstance(block, Lines) for mark in block.marks}
    key: tuple[Block, ...] = (Key(tuple(mark for mark in marks if mark.label in shown)),) if shown else ()
    drawn: tuple[Block, ...] = tuple(block for block in load if isinstance(block, Lines))
    missing = tuple(block for block in load if isinstance(block, NotSeen))
    batches: tuple[Block, ...] = tuple(distributions.histogram_block(asked, looks) for asked in distributions.BATCHES)
    return (
        PageSection("latency", "Latency", (latency, *key, distributions.histogram_block(distributions.LATENCY, looks))),
        PageSection("load", "Load and memory", (*((Beside(drawn),) if drawn else ()), *missing)),
        PageSection("batches", "Batches", (Beside(batches),)),
        PageSection("stages", "Stages", (distributions.stage_block(looks),)),
    )


def _marks(diagnosis: Diagnosis) -> tuple[Mark, ...]:
    """Since when it is slow, and what changed shortly before."""
    found = [(change.time, change.message) for change in diagnosis.changes]
    if diagnosis.since is not None:
        found.append((diagnosis.since.time, "slow since then"))
    return tuple(
        Mark(time, str(number), f"{clock(time)[11:]} {message}", HAPPENED)
        for number, (time, message) in enumerate(sorted(found), start=1)
    )
