"""What was looked at, tier by tier, what could not be seen, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.report import presenter
from latdoctor.report.html.document import (
    BAD,
    GOOD,
    QUIET,
    Block,
    Entry,
    Fold,
    Listing,
    NotSeen,
    PageSection,
    Paragraph,
    Table,
)
from latdoctor.report.presenter import gap_lines

WALK, GAPS, NEXT = "walk", "gaps", "next"
_STATUS = {"read": "read", "partly": "read in part", "failed": "could not be read", "not-asked": "not asked"}


def section(diagnosis: Diagnosis) -> PageSection:
    """The tier walk: infrastructure, framework, application."""
    blocks: list[Block] = []
    for tier in presenter.tier_lines(diagnosis):
        fired = [Entry(line.message, "fired", BAD, line.details) for line in tier.fired]
        clear = [Entry(line.message, "clear", GOOD, line.details) for line in tier.clear]
        unseen = [Entry(reason, "not seen", QUIET) for reason in tier.not_evaluated]
        heading = f"{tier.heading} ({tier.counts})" if tier.counts else tier.heading
        blocks.append(Listing(tuple(fired) or (Entry("nothing fired", "", QUIET),), heading))
        blocks += _folded(f"{len(clear)} clear", clear)
        blocks += _folded("Why the others were not evaluated", unseen)
    symptoms = [
        Entry(
            line.message,
            "holds" if line.kind == presenter.FOR else line.kind,
            BAD if line.kind == presenter.FOR else QUIET,
            line.details,
        )
        for line in presenter.symptoms(diagnosis)
    ]
    if symptoms:
        blocks.insert(0, Listing(tuple(symptoms), "Symptoms"))
    lead = "Infrastructure, then the framework, then the application. What could not be seen is unknown, never well."
    return PageSection(WALK, "What was looked at", tuple(blocks), lead)


def _folded(summary: str, entries: Sequence[Entry]) -> list[Block]:
    return [Fold(summary, (Listing(tuple(entries)),))] if entries else []


def gaps(diagnosis: Diagnosis, more: Sequence[str] = ()) -> PageSection:
    """What could not be seen, and by which collectors it was looked."""
    lines = (*gap_lines(diagnosis, every=True), *more)
    blocks: list[Block] = (
        [Listing(tuple(Entry(line) for line in lines))]
        if lines
        else [Paragraph("Nothing that was looked for was out of sight.")]
    )
    rows = tuple(
        (row.title, _STATUS.get(row.status, row.status), str(row.artifacts), row.detail) for row in diagnosis.coverage
    )
    if rows:
        table = Table("Sources", ("source", "status", "artifacts", "detail"), rows, numbers=(2,))
        blocks.append(Fold(f"{len(rows)} sources", (table,)))
    return PageSection(GAPS, "What could not be seen", tuple(blocks))


def gaps_in_short(unseen: Sequence[str]) -> PageSection:
    """The same where only the journal is left."""
    listed = Listing(tuple(Entry(line) for line in unseen))
    return PageSection(
        GAPS, "What could not be seen", (listed if unseen else NotSeen("Gaps", "the journal tells of none"),)
    )


def next_steps(diagnosis: Diagnosis) -> PageSection:
    return PageSection(NEXT, "Next", (Listing(tuple(Entry(step) for step in presenter.next_steps(diagnosis))),))
