"""The page of a diagnosis: the terminal's answer, charts of the measurements, causes, checks, gaps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.evidence.model import CoverageStatus
from latdoctor.report import diagnosis_text
from latdoctor.report.answer import answer
from latdoctor.report.fit_to_screen import Line, Rank
from latdoctor.report.html import measurement_charts, time_series
from latdoctor.report.html.chart_tables import signed, time_of_day
from latdoctor.report.html.page_inputs import Snapshot, front, highlight
from latdoctor.report.html.page_model import (
    RATIO,
    AnswerLine,
    Bars,
    Group,
    LineKind,
    Mark,
    MarkKind,
    Page,
    Score,
    ScoreBreakdown,
    Section,
    Table,
    Tone,
)
from latdoctor.units import percent

_MAX_RIVALS = 6  # causes that are compared, the named ones among them
_COLUMNS = re.compile(" {2,}")
_TONES = {
    "critical": Tone.BAD,
    "warning": Tone.WARN,
    "healthy": Tone.GOOD,
    "info": Tone.GOOD,
    "inconclusive": Tone.QUIET,
}
_STATUS = {
    CoverageStatus.READ: "read",
    CoverageStatus.PARTLY: "read in part",
    CoverageStatus.FAILED: "could not be read",
    CoverageStatus.NOT_REQUESTED: "not requested",
}


class CauseCard(Struct, frozen=True):
    """A cause with its evidence; `not_given` is what no source was read for."""

    cause: RankedCause
    probability: str
    facts: str
    advice: tuple[tuple[str, str], ...]
    evidence: tuple[diagnosis_text.EvidenceLine, ...]
    not_given: tuple[str, ...]
    breakdown: ScoreBreakdown | None


class Causes(Struct, frozen=True):
    summary: str
    cards: tuple[CauseCard, ...]
    rivals: Bars | None
    network: Table | None
    unexplained: tuple[str, ...]


class Checks(Struct, frozen=True):
    symptoms: tuple[diagnosis_text.EvidenceLine, ...]
    tiers: tuple[diagnosis_text.TierLine, ...]


class Gaps(Struct, frozen=True):
    lines: tuple[str, ...]
    sources: Table | None


def of_diagnosis(diagnosis: Diagnosis, snapshots: Sequence[Snapshot]) -> Page:
    """The page of the last of `snapshots`, which `diagnosis` is of; the others are compared with it."""
    verdict, *lines = answer_lines(diagnosis)
    badge, *headline = verdict.cells
    shown = highlight(snapshots[-1])
    steps = Section("next", "Next", "steps", diagnosis_text.next_steps(diagnosis))
    charts, not_drawn = measurement_charts.sections(
        time_series.measured(None, snapshots),
        snapshots,
        _marks(diagnosis),
        highlights=(shown,) if shown else (),
        front=front(diagnosis, shown),
    )
    whys = tuple(snapshot.why for snapshot in snapshots if snapshot.why)
    return Page(
        title=f"Diagnosis of {diagnosis.target}",
        badge=badge,
        tone=_TONES.get(diagnosis.verdict.level, Tone.NONE),
        headline=" ".join(headline),
        scope=" ".join(lines.pop(0).cells) if lines else "",
        answer=tuple(lines),
        sections=(*charts, causes(diagnosis), checks(diagnosis), gaps(diagnosis, (*whys, *not_drawn)), steps),
        foot=(f"latdoctor {diagnosis.tool.version}, diagnosis {diagnosis.run_id} of {diagnosis.generated_at}",),
    )


def answer_lines(diagnosis: Diagnosis, *, advice: bool = True) -> tuple[AnswerLine, ...]:
    """The lines of the terminal's answer, each sentence unwrapped, without the hint at other options.

    `advice`: with what to do next.
    """
    left_out = (Rank.MORE,) if advice else (Rank.MORE, Rank.DO)
    sentences: list[list[Line]] = []
    for line in answer(diagnosis):
        if line.rank in left_out:
            continue
        if line.continued and sentences:
            sentences[-1].append(line)
        elif line.text:
            sentences.append([line])
    return tuple(_answer_line(sentence, first=place == 0) for place, sentence in enumerate(sentences))


def _answer_line(sentence: Sequence[Line], *, first: bool) -> AnswerLine:
    text = " ".join(line.text.strip().removesuffix("\\").rstrip() for line in sentence)
    cells = tuple(_COLUMNS.split(text))
    if first:
        return AnswerLine(cells, LineKind.VERDICT)
    bold = sentence[0].style == "bold"
    match sentence[0].rank:
        case Rank.EVIDENCE:
            return AnswerLine(cells, LineKind.EVIDENCE)
        case Rank.DO if bold:
            return AnswerLine(cells, LineKind.COMMAND)
        case Rank.DO if len(cells) == 1:
            return AnswerLine(cells, LineKind.DETAIL)
    tone = Tone.QUIET if sentence[0].style == "dim" else Tone.NONE
    return AnswerLine(cells, LineKind.CAUSE if bold else LineKind.ROW, tone)


def _marks(diagnosis: Diagnosis) -> tuple[Mark, ...]:
    """The onset, and what changed shortly before."""
    found = [(change.time, change.message) for change in diagnosis.changes]
    if diagnosis.since is not None:
        found.append((diagnosis.since.time, "slow since then"))
    return tuple(
        Mark(time, str(number), f"{time_of_day(time)} {message}", MarkKind.EVENT)
        for number, (time, message) in enumerate(sorted(found), start=1)
    )


def causes(diagnosis: Diagnosis) -> Section:
    """The named causes, else the likeliest, with their evidence and their rivals."""
    shown = diagnosis_text.shown_causes(diagnosis, every=False) or diagnosis.causes[:1]
    content = Causes(
        summary=diagnosis_text.answer_line(diagnosis) or ("" if shown else "no cause found"),
        cards=tuple(_card(cause, diagnosis, place) for place, cause in enumerate(shown)),
        rivals=_probabilities(diagnosis) if shown else None,
        network=_network(diagnosis),
        unexplained=diagnosis_text.unexplained(diagnosis),
    )
    lead = "A finding counts for a cause that expects it. Ten points are ten times the odds against its best rival."
    return Section("why", "Why", "causes", content, lead if shown else "")


def _card(cause: RankedCause, diagnosis: Diagnosis, place: int) -> CauseCard:
    lines = diagnosis_text.evidence_lines(cause, diagnosis)
    probability = percent(cause.probability)
    rivals = [one.title for one in diagnosis.causes if one.id == cause.rival]
    rival = f" against its best rival: {rivals[0]}" if rivals else ""
    scores = tuple(Score(row.message, row.points) for row in cause.contributions)
    return CauseCard(
        cause=cause,
        probability=probability,
        facts=diagnosis_text.facts_of(cause),
        advice=diagnosis_text.advice(cause, diagnosis),
        evidence=tuple(line for line in lines if not line.no_source),
        not_given=tuple(line.message for line in lines if line.no_source),
        breakdown=ScoreBreakdown(f"account-{place}", f"Score in points{rival}", scores) if scores else None,
    )


def _probabilities(diagnosis: Diagnosis) -> Bars:
    rivals = diagnosis.causes[:_MAX_RIVALS]
    names = (*(cause.title for cause in rivals), "no known cause")
    values = (*(cause.probability for cause in rivals), diagnosis.answer.no_known_cause)
    more = len(diagnosis.causes) - len(rivals)
    note = f"{more} more are less likely" if more else ""
    group = Group("probability", values)
    return Bars("rivals", "Probability of each cause", "cause", RATIO, names, (group,), horizontal=True, note=note)


def _network(diagnosis: Diagnosis) -> Table | None:
    """Findings by causes: which cause expects which finding, and the points of each."""
    rivals = diagnosis.causes[:_MAX_RIVALS]
    messages = {check.id: check.message for check in diagnosis.checks}
    known = dict.fromkeys(name for cause in rivals for name in (*cause.evidence_for, *cause.evidence_against))
    ordered = sorted(known, key=lambda name: -sum(name in cause.evidence_for for cause in rivals))
    rows = [(messages[name], *(_cell(cause, name) for cause in rivals)) for name in ordered if name in messages]
    if not rows:
        return None
    note = (
        "for: the cause expects the finding, and it holds; against: the cause expects it and it does not hold, or it "
        "rules the cause out; ·: the cause does not depend on it. Points are shown from one."
    )
    columns = ("finding", *(cause.id for cause in rivals))
    return Table(f"{len(rows)} findings by {len(rivals)} causes", columns, tuple(rows), note=note)


def _cell(cause: RankedCause, name: str) -> str:
    points = sum(row.points for row in cause.contributions if row.check == name)
    shown = f" {signed(points)}" if points else ""
    if name in cause.evidence_for:
        return f"for{shown}"
    if name in cause.evidence_against:
        return f"against{shown}"
    return "not measured" if name in cause.unseen else f"·{shown}"


def checks(diagnosis: Diagnosis) -> Section:
    """The tiers: infrastructure, framework, application."""
    lead = "Infrastructure, then the framework, then the application. What was not measured is unknown, never healthy."
    content = Checks(diagnosis_text.symptoms(diagnosis), diagnosis_text.tier_lines(diagnosis))
    return Section("checks", "What was checked", "checks", content, lead)


def gaps(diagnosis: Diagnosis, more: Sequence[str] = ()) -> Section:
    """What was not measured, and the sources that were read."""
    rows = tuple(
        (row.title, _STATUS.get(row.status, row.status), str(row.artifacts), row.detail) for row in diagnosis.coverage
    )
    sources = Table("Sources", ("source", "status", "artifacts", "detail"), rows, numbers=(2,)) if rows else None
    lines = (*diagnosis_text.gap_lines(diagnosis, every=True), *more)
    return Section("gaps", "What was not measured", "gaps", Gaps(lines, sources))
