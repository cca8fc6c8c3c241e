"""A diagnosis on a terminal of 80 columns: the answer, the evidence in full, and the screen of --watch.

Untrusted text goes into rich's Text objects, never into its markup.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.evidence.model import SourceQuery
from latdoctor.report import answer, comparison, comparison_screen, diagnosis_text, time_scope
from latdoctor.report.comparison import answered
from latdoctor.report.diagnosis_text import EvidenceKind, gap_lines, unexplained
from latdoctor.report.fit_to_screen import HEIGHT
from latdoctor.report.subject_names import shortened
from latdoctor.report.text_utils import wrapped
from latdoctor.report.vital_signs import measured
from latdoctor.sanitize import clean
from latdoctor.units import percent

_MARK = {
    EvidenceKind.FOR: ("+", "green"),
    EvidenceKind.AGAINST: ("-", "red"),
    EvidenceKind.NOT_MEASURED: ("?", "magenta"),
}
_COMPACT = {EvidenceKind.FOR: 5, EvidenceKind.AGAINST: 2, EvidenceKind.NOT_MEASURED: 2}
_MAX_GAPS = 3
_MAX_QUERIES = 6
LATELY = 4  # that the screen keeps


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A change of the answer. `at` in unix seconds."""

    at: float
    message: str


def render(diagnosis: Diagnosis, console: Console, *, verbosity: int = 0) -> None:
    """Print the answer on one screen; from 1 on the evidence in full, from 2 on every check, score and gap."""
    if verbosity == 0:
        answer.render(diagnosis, console)
        return
    for part in parts(diagnosis, verbose=verbosity > 1):
        console.print(part, crop=False)


def parts(diagnosis: Diagnosis, *, verbose: bool = False) -> Iterator[RenderableType]:
    """The same, piece by piece."""
    if diagnosis.against and (speed := diagnosis.against.speed):
        yield Text(comparison_screen.headline(speed), style=comparison_screen.STYLE[speed.pace])
    yield Text(
        diagnosis_text.headline(diagnosis), style=diagnosis_text.LEVEL_STYLE.get(diagnosis.verdict.level, "bold")
    )
    for line in wrapped(f"target {time_scope.scope(diagnosis)}", "", "  "):
        yield Text(line, style="dim")
    if line := diagnosis_text.site_line(diagnosis):
        yield Text(line, style="dim")
    for line in time_scope.since_lines(diagnosis):
        yield Text(line, style="bold")
    for part in _body(diagnosis, verbose=verbose):
        yield Text()
        yield part


def _body(diagnosis: Diagnosis, *, verbose: bool) -> Iterable[RenderableType]:
    line = diagnosis_text.answer_line(diagnosis)
    if line:
        yield Text(line, style="bold")
    for cause in diagnosis_text.shown_causes(diagnosis, every=verbose):
        yield _cause(cause, diagnosis, verbose=verbose)
    if numbers := [line for line in measured(diagnosis) if line.strip()]:
        yield Group(Text("Measured", style="bold"), *(Text(line) for line in numbers))
    if diagnosis.verdict.level == "inconclusive":
        yield _listing("Why not healthy", diagnosis.verdict.reasons)
    pain = diagnosis_text.symptoms(diagnosis)
    if any(line.kind == EvidenceKind.FOR for line in pain) or (pain and verbose):
        yield Group(Text("Symptoms", style="bold"), *_evidence(pain, verbose=True))
    if left := unexplained(diagnosis):
        yield _listing("Findings that no named cause explains", left)
    yield _tiers(diagnosis, verbose=verbose)
    if diagnosis.gaps:
        yield _gaps(diagnosis, verbose=verbose)
    if diagnosis.against:
        known = comparison.of_against(diagnosis.against, every=verbose)
        yield _listing(f"{diagnosis.against.name}, against {diagnosis.against.than}", known)
    if diagnosis.queries:
        yield _queries(diagnosis, verbose=verbose)
    yield _listing("Next", diagnosis_text.next_steps(diagnosis))


def _cause(cause: RankedCause, diagnosis: Diagnosis, *, verbose: bool) -> RenderableType:
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    style = diagnosis_text.LEVEL_STYLE.get(cause.severity, "bold")
    head.add_row(Text(cause.title, style=style), Text(f"{percent(cause.probability)} {cause.confidence}", style="bold"))
    facts = _indented(Text(diagnosis_text.facts_of(cause), style="dim"), 2)
    rows: list[RenderableType] = [head, facts, _advice(cause, diagnosis)]
    rows += _evidence(diagnosis_text.evidence_lines(cause, diagnosis), verbose=verbose)
    if verbose:
        rows.append(_score(cause))
    return Group(*rows)


def _evidence(lines: Iterable[diagnosis_text.EvidenceLine], *, verbose: bool) -> list[RenderableType]:
    shown: list[RenderableType] = []
    counts: Counter[str] = Counter()
    shown_of: Counter[str] = Counter()
    for line in lines:
        counts[line.kind] += 1
        if not verbose and (shown_of[line.kind] >= _COMPACT[line.kind] or line.no_source):
            continue
        shown_of[line.kind] += 1
        mark, style = _MARK[line.kind]
        shown.append(_marked(mark, style, Text(line.message)))
        for detail in line.details if verbose else line.details[:1]:
            shown.append(_indented(Text(detail, style="dim"), 6))
    if left := counts - shown_of:
        more = ", ".join(f"{count} more {kind}" for kind, count in left.items())
        shown.append(_indented(Text(f"({more}: -v)", style="dim"), 4))
    return shown


def _marked(mark: str, style: str, text: Text) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    row.add_column(width=3, justify="right")
    row.add_column()
    row.add_row(Text(mark, style=style), text)
    return row


def _score(cause: RankedCause) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", width=8)
    table.add_column()
    for points, message in diagnosis_text.score_rows(cause):
        table.add_row(Text(points), Text(message))
    title = Text(f"why {percent(cause.probability)}, against its best rival: {cause.rival}", style="italic")
    return Group(_indented(title, 2), table)


def _advice(cause: RankedCause, diagnosis: Diagnosis) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=7, justify="right", style="bold")
    table.add_column()
    for title, message in diagnosis_text.advice(cause, diagnosis):
        table.add_row(title, Text(message))
    return table


def _tiers(diagnosis: Diagnosis, *, verbose: bool) -> RenderableType:
    rows: list[RenderableType] = [Text("Tiers", style="bold")]
    for tier in diagnosis_text.tier_lines(diagnosis):
        rows.append(_indented(Text.assemble((tier.heading, "bold"), "  ", (tier.counts, "dim")), 2))
        rows += [_indented(part, 2) for part in _evidence(tier.fired, verbose=verbose)] if verbose else []
        rows += [_indented(part, 2) for part in _evidence(tier.clear, verbose=True)] if verbose else []
        reasons = tier.not_evaluated if verbose else tier.not_evaluated_with_sources[:1]
        rows += [_marked("?", "magenta", Text(reason, style="dim")) for reason in reasons]
    if not verbose and (line := diagnosis_text.summary(diagnosis)):
        rows.append(_indented(Text(line, style="dim"), 2))
    return Group(*rows)


def _gaps(diagnosis: Diagnosis, *, verbose: bool) -> RenderableType:
    rows: list[RenderableType] = [Text("Not measured", style="bold")]
    gaps = gap_lines(diagnosis, every=verbose)
    shown = gaps if verbose else gaps[:_MAX_GAPS]
    rows += [_marked("?", "magenta", Text(line)) for line in shown]
    if len(shown) < len(gaps):
        rows.append(_indented(Text(f"({len(gaps) - len(shown)} more: -v)", style="dim"), 4))
    return Group(*rows)


def _queries(diagnosis: Diagnosis, *, verbose: bool) -> RenderableType:
    """PromQL behind the findings, each on one line however long it is, so that it can be pasted."""
    shown = diagnosis.queries if verbose else diagnosis.queries[:_MAX_QUERIES]
    text = Text("PromQL, to paste into Prometheus", style="bold", no_wrap=True, overflow="ignore")
    for one in shown:
        text.append(f"\n  {one.signal} of {shortened(one.subject)}, at {_at(one)}", style="not bold")
        text.append(f"\n    {clean(one.expression, 4000)}", style="not bold dim")
    if len(shown) < len(diagnosis.queries):
        text.append(f"\n    ({len(diagnosis.queries) - len(shown)} more: -vv)", style="not bold dim")
    return Group(text)  # print() alone would join it to a text that wraps


def _at(query: SourceQuery) -> str:
    return time_scope.utc_moment(query.at)


def _listing(title: str, lines: Iterable[str]) -> RenderableType:
    return Group(Text(title, style="bold"), *(_indented(Text(line), 2) for line in lines))


def _indented(part: RenderableType, columns: int) -> RenderableType:
    return Padding(part, (0, 0, 0, columns), expand=False)


def summary(diagnosis: Diagnosis) -> str:
    """The verdict and the answer in one line; a change of it is a new line of --watch."""
    return answered(diagnosis.verdict, diagnosis.answer)


def line(diagnosis: Diagnosis) -> str:
    """The same with probabilities and the symptoms that fired."""
    shares = [percent(cause.probability) for cause in diagnosis_text.shown_causes(diagnosis, every=False)]
    pain = [line.message for line in diagnosis_text.symptoms(diagnosis) if line.kind == EvidenceKind.FOR]
    listed = f" ({', '.join(shares)})" if shares else ""
    return f"{summary(diagnosis)}{listed}{': ' if pain else ''}{'; '.join(pain[:2])}"


def stamped(event: StatusChange) -> str:
    """`2026-11-22 02:51:10 UTC  critical: app.load.burst (94 %)`."""
    return f"{moment(event.at)}  {event.message}"


def moment(at: float) -> str:
    """`2026-11-22 02:51:10 UTC`."""
    return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def screen(diagnosis: Diagnosis, recent: Sequence[StatusChange], heading: str) -> RenderableType:
    """The newest answer below the recent changes, in at most HEIGHT lines."""
    parts = [Text(heading, style="dim", no_wrap=True, overflow="ellipsis")]
    parts += [
        Text(f"{moment(event.at)[11:19]}  {event.message}", no_wrap=True, overflow="ellipsis")
        for event in recent[-LATELY:]
    ]
    lines = answer.answer(diagnosis, HEIGHT - len(parts) - 1)
    return Group(*parts, Text(), *(Text(line.text, style=line.style, no_wrap=True) for line in lines))
