"""A post-mortem as Markdown, to be completed by a human. Text from outside is escaped: it cannot format or link.

Every such text follows a label or stands in a cell, so that what it begins with makes no list, heading or quotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.incident.document import Timeline, Told
from latdoctor.incident.elapsed import clock
from latdoctor.incident.postmortem import SHORT, TODO, Line, Section, attributed, postmortem, since, whose
from latdoctor.report.markdown import escape


def render(timeline: Timeline) -> str:
    """The whole post-mortem as one Markdown document."""
    lines: list[str] = []
    for line in _lines(timeline):
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def _lines(timeline: Timeline) -> Iterator[str]:
    page = postmortem(timeline)
    yield f"# {escape(page.title)}"
    yield ""
    yield f"Status: {escape(page.status)}"
    yield ""
    yield "Times are UTC. Each line says whether it is a *fact* (measured, done or received), an *inference* of a"
    yield "diagnosis, or what a human *said*, and where it is written."
    for section in page.sections:
        yield from ("", f"## {escape(section.title)}", "")
        yield from _section(section, timeline)


def _section(section: Section, timeline: Timeline) -> Iterator[str]:
    yield from (_line(line) for line in section.lines)
    for table in section.tables:
        yield ""
        yield from _table(table.heads, table.rows)
    if section.timeline:
        yield from _table(
            ("time (UTC)", "since start", "event", "basis", "source"), [_row(one) for one in timeline.moments]
        )
    if section.todo:
        yield ""
        yield from (f"* {TODO}: {what}" for what in section.todo)


def _line(line: Line) -> str:
    source = f" ({escape(line.source)})" if line.source else ""
    return f"* **{escape(attributed(line.basis, line.by))}**: {escape(line.says)}{source}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(escape, heads))} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(map(escape, row))} |" for row in rows)


def _row(told: Told) -> tuple[str, ...]:
    kept = f", {', '.join(told.evidence)}" if told.evidence else ""
    source = f"journal {told.digest[:SHORT]}{kept}"
    return clock(told.at) + whose(told), since(told.seconds), told.says, attributed(told.basis, told.by), source
