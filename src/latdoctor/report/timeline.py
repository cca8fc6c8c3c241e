"""A post-mortem as plain text of 80 columns, without colour: for a mail, a ticket, a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.incident.elapsed import clock_of
from latdoctor.incident.postmortem import (
    SHORT,
    TODO,
    PostmortemSection,
    PostmortemTable,
    Statement,
    attributed,
    other_clock,
    postmortem,
    since_start,
)
from latdoctor.incident.timeline_model import Basis, Timeline, TimelineEvent
from latdoctor.report.markdown import escape
from latdoctor.report.text_utils import wrapped
from latdoctor.sanitize import TITLE, fitted


def render_markdown(timeline: Timeline) -> str:
    """The whole post-mortem as one Markdown document."""
    lines: list[str] = []
    for line in _markdown_lines(timeline):
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def _markdown_lines(timeline: Timeline) -> Iterator[str]:
    page = postmortem(timeline)
    yield f"# {escape(page.title)}"
    yield ""
    yield f"Status: {escape(page.status)}"
    yield ""
    yield "Times are UTC. Each line says whether it is a *fact* (measured, done or received), an *inference* of a"
    yield "diagnosis, or *reported* by a human, and where it is recorded."
    for section in page.sections:
        yield from ("", f"## {escape(section.title)}", "")
        yield from _markdown_section(section, timeline)


def _markdown_section(section: PostmortemSection, timeline: Timeline) -> Iterator[str]:
    yield from (_line(line) for line in section.lines)
    for table in section.tables:
        yield ""
        yield from _markdown_table(table.heads, table.rows)
    if section.timeline:
        yield from _markdown_table(
            ("time (UTC)", "since start", "event", "basis", "source"), [_row(one) for one in timeline.moments]
        )
    if section.todo:
        yield ""
        yield from (f"* {TODO}: {what}" for what in section.todo)


def _line(line: Statement) -> str:
    source = f" ({escape(line.source)})" if line.source else ""
    return f"* **{escape(attributed(line.basis, line.by))}**: {escape(line.message)}{source}"


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(escape, heads))} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(map(escape, row))} |" for row in rows)


def _row(event: TimelineEvent) -> tuple[str, ...]:
    files = f", {', '.join(event.evidence)}" if event.evidence else ""
    source = f"journal {event.digest[:SHORT]}{files}"
    return (
        clock_of(event.at) + other_clock(event),
        since_start(event.seconds),
        event.message,
        attributed(event.basis, event.by),
        source,
    )


def render_text(timeline: Timeline) -> str:
    """The whole post-mortem; no line is longer than 80 columns."""
    return "\n".join(line.rstrip() for line in _lines(timeline)).rstrip() + "\n"


def _lines(timeline: Timeline) -> Iterator[str]:
    page = postmortem(timeline)
    yield from wrapped(fitted(page.title, TITLE))  # the opening has it whole
    yield from wrapped(page.status)
    for section in page.sections:
        yield from ("", section.title, "-" * len(section.title))
        yield from _section(section, timeline)


def _section(section: PostmortemSection, timeline: Timeline) -> Iterator[str]:
    for line in section.lines:
        yield from wrapped(_statement(line), "- ", "  ")
    for table in section.tables:
        yield from _table(table)
    if section.timeline:
        yield from _moments(timeline)
    for what in section.todo:
        yield from wrapped(f"{TODO}: {what}", "- ", "  ")


def _statement(line: Statement) -> str:
    source = f" [{line.source}]" if line.source else ""
    mark = "" if line.basis == Basis.FACT and not line.by else f"({attributed(line.basis, line.by)}) "
    return f"{mark}{line.message}{source}"


def _table(table: PostmortemTable) -> Iterator[str]:
    """Each row as a few lines: five columns of prose do not fit into 80 columns."""
    yield from wrapped(f"{table.heads[0]}:")
    for row in table.rows:
        event = [f"{head} {cell}" for head, cell in zip(table.heads[1:], row[1:], strict=True) if cell]
        yield from wrapped(f"{row[0]}: {' · '.join(event)}", "  ", "    ")


def _moments(timeline: Timeline) -> Iterator[str]:
    day = ""
    for event in timeline.moments:
        if event.at[:10] != day:
            day = event.at[:10]
            yield f"{day} (UTC)"
        stamp = f"{clock_of(event.at)[11:]} {since_start(event.seconds):>9}"
        yield from wrapped(_event(event), f"{stamp}  ", " " * (len(stamp) + 2))


def _event(event: TimelineEvent) -> str:
    mark = "" if event.basis == Basis.FACT else f"({attributed(event.basis, event.by)}) "
    by = f" [{event.by}]" if event.by and event.basis == Basis.FACT else ""
    return f"{mark}{event.message}{other_clock(event)}{by}"
