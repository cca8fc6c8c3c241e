"""A post-mortem as plain text of 80 columns, without colour: for a mail, a ticket, a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.incident.document import FACT, Timeline, Told
from latdoctor.incident.elapsed import clock
from latdoctor.incident.postmortem import TODO, Line, Section, Table, attributed, postmortem, since, whose
from latdoctor.report.wrapping import wrapped
from latdoctor.text import TITLE, fitted


def render(timeline: Timeline) -> str:
    """The whole post-mortem; no line is longer than 80 columns."""
    return "\n".join(line.rstrip() for line in _lines(timeline)).rstrip() + "\n"


def _lines(timeline: Timeline) -> Iterator[str]:
    page = postmortem(timeline)
    yield from wrapped(fitted(page.title, TITLE))  # whole where the incident's opening is told
    yield from wrapped(page.status)
    for section in page.sections:
        yield from ("", section.title, "-" * len(section.title))
        yield from _section(section, timeline)


def _section(section: Section, timeline: Timeline) -> Iterator[str]:
    for line in section.lines:
        yield from wrapped(_said(line), "- ", "  ")
    for table in section.tables:
        yield from _table(table)
    if section.timeline:
        yield from _moments(timeline)
    for what in section.todo:
        yield from wrapped(f"{TODO}: {what}", "- ", "  ")


def _said(line: Line) -> str:
    source = f" [{line.source}]" if line.source else ""
    mark = "" if line.basis == FACT and not line.by else f"({attributed(line.basis, line.by)}) "
    return f"{mark}{line.says}{source}"


def _table(table: Table) -> Iterator[str]:
    """Each row as a few lines: five columns of prose do not stand side by side in 80."""
    yield from wrapped(f"{table.heads[0]}:")
    for row in table.rows:
        told = [f"{head} {cell}" for head, cell in zip(table.heads[1:], row[1:], strict=True) if cell]
        yield from wrapped(f"{row[0]}: {' · '.join(told)}", "  ", "    ")


def _moments(timeline: Timeline) -> Iterator[str]:
    day = ""
    for told in timeline.moments:
        if told.at[:10] != day:
            day = told.at[:10]
            yield f"{day} (UTC)"
        stamp = f"{clock(told.at)[11:]} {since(told.seconds):>9}"
        yield from wrapped(_event(told), f"{stamp}  ", " " * (len(stamp) + 2))


def _event(told: Told) -> str:
    mark = "" if told.basis == FACT else f"({attributed(told.basis, told.by)}) "
    by = f" [{told.by}]" if told.by and told.basis == FACT else ""
    return f"{mark}{told.says}{whose(told)}{by}"
