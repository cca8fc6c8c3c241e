"""Why: each cause with what is for and against it, beside its rivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.incident.events import CauseRecord
from latdoctor.incident.timeline_model import DiagnosisEvent
from latdoctor.report import presenter
from latdoctor.report.html.charts import signed
from latdoctor.report.html.document import (
    BAD,
    GOOD,
    QUIET,
    RATIO,
    Account,
    Bars,
    Block,
    Card,
    Entry,
    Fact,
    Facts,
    Fold,
    Group,
    Listing,
    NotSeen,
    PageSection,
    Paragraph,
    Share,
    Table,
)
from latdoctor.report.presenter import unexplained
from latdoctor.units import percent

_RIVALS = 6  # causes beside each other, the named ones among them
_TONES = {presenter.FOR: GOOD, presenter.AGAINST: BAD, presenter.UNSEEN: QUIET}
_TITLE = "Why"
ID = "why"


def section(diagnosis: Diagnosis) -> PageSection:
    """The causes of a whole diagnosis."""
    if not diagnosis.causes:
        return PageSection(ID, _TITLE, (NotSeen("A cause", presenter.answer_line(diagnosis) or "none was found"),))
    shown = presenter.shown_causes(diagnosis, every=False) or diagnosis.causes[:1]
    blocks: list[Block] = [Paragraph(line) for line in (presenter.answer_line(diagnosis),) if line]
    blocks += [_card(cause, diagnosis, place) for place, cause in enumerate(shown)]
    blocks.append(_probabilities(diagnosis))
    blocks += _network(diagnosis)
    left = unexplained(diagnosis)
    if left:
        blocks.append(Listing(tuple(Entry(line) for line in left), "Found, and not explained by what is named"))
    lead = (
        "A finding counts for a cause that expects it. Ten points make a cause ten times likelier than its best rival."
    )
    return PageSection(ID, _TITLE, tuple(blocks), lead)


def in_short(look: DiagnosisEvent) -> PageSection:
    """The same of a look of which only the journal's line is left."""
    blocks: tuple[Block, ...] = tuple(_named(cause) for cause in look.causes if cause.named)
    if not blocks:
        blocks = (NotSeen("A cause", f"the look at {look.at} named none"),)
    lead = "Of this diagnosis only what the journal says is left: points and rivals are not."
    return PageSection(ID, _TITLE, blocks, lead)


def _named(cause: CauseRecord) -> Card:
    entries = [Entry(line, "for", GOOD) for line in cause.because] + [
        Entry(line, "against", BAD) for line in cause.against
    ]
    facts = " · ".join(part for part in (cause.id, cause.tier, ", ".join(cause.subjects)) if part)
    return Card(cause.title, percent(cause.probability), "", facts, (Listing(tuple(entries)),))


def _card(cause: RankedCause, diagnosis: Diagnosis, place: int) -> Card:
    lines = presenter.evidence_lines(cause, diagnosis)
    entries = tuple(
        Entry(line.message, line.kind, _TONES[line.kind], line.details) for line in lines if not line.unlooked
    )
    unlooked = [line.message for line in lines if line.unlooked]
    blocks: list[Block] = [Paragraph(cause.explanation)] if cause.explanation else []
    blocks.append(Facts(tuple(Fact(label, message) for label, message in presenter.advice(cause))))
    blocks.append(Listing(entries, "What is for and against it"))
    if unlooked:
        folded = Listing(tuple(Entry(line, presenter.UNSEEN, QUIET) for line in unlooked))
        blocks.append(Fold(f"{len(unlooked)} more that no source was given for", (folded,)))
    if cause.contributions:
        blocks.append(_account(cause, place))
    badge = f"{percent(cause.probability)} {cause.confidence}"
    return Card(
        cause.title, badge, BAD if cause.severity == "critical" else "", presenter.facts_of(cause), tuple(blocks)
    )


def _account(cause: RankedCause, place: int) -> Account:
    rows = tuple(Share(row.message, row.points) for row in cause.contributions)
    rival = f", against its best rival {cause.rival}" if cause.rival else ""
    return Account(f"account-{place}", f"The account of {percent(cause.probability)}{rival}", rows)


def _rivals(diagnosis: Diagnosis) -> Sequence[RankedCause]:
    return diagnosis.causes[:_RIVALS]


def _probabilities(diagnosis: Diagnosis) -> Bars:
    rivals = _rivals(diagnosis)
    names = (*(cause.title for cause in rivals), "none that the catalogue knows")
    values = (*(cause.probability for cause in rivals), diagnosis.answer.no_known_cause)
    note = f"{len(diagnosis.causes) - len(rivals)} more are less likely" if len(diagnosis.causes) > len(rivals) else ""
    group = Group("probability", values)
    return Bars("rivals", "How likely each cause is", "cause", RATIO, names, (group,), lying=True, note=note)


def _network(diagnosis: Diagnosis) -> Iterator[Block]:
    """Findings by causes: which expects what, and what each finding moves."""
    rivals = _rivals(diagnosis)
    checks = {check.id: check for check in diagnosis.checks}
    known = dict.fromkeys(name for cause in rivals for name in (*cause.evidence_for, *cause.evidence_against))
    rows = [
        (checks[name].message, *(_cell(cause, name) for cause in rivals))
        for name in sorted(known, key=lambda name: -sum(name in cause.evidence_for for cause in rivals))
        if name in checks
    ]
    if rows:
        note = (
            "for: the cause expects it, and it holds; against: it is expected and does not hold, or it rules the cause "
            "out; ·: the cause says nothing of it. With the points that it brings, where they are one at least."
        )
        columns = ("finding", *(cause.id for cause in rivals))
        table = Table("Findings and causes", columns, tuple(rows), note=note)
        yield Fold(f"The network: {len(rows)} findings by {len(rivals)} causes", (table,), open=True)


def _cell(cause: RankedCause, name: str) -> str:
    points = sum(row.points for row in cause.contributions if row.check == name)
    known = f" {signed(points)}" if points else ""
    if name in cause.evidence_for:
        return f"for{known}"
    if name in cause.evidence_against:
        return f"against{known}"
    return "not seen" if name in cause.unseen else f"·{known}"
