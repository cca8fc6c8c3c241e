"""Past incidents on a screen and as JSON: causes, playbooks that worked, and those that were rolled back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from latdoctor.incident.elapsed import clock_of
from latdoctor.incident.impact import impact_lines
from latdoctor.incident.response_times import mean
from latdoctor.incident.similar import PastIncident, SimilarIncident
from latdoctor.incident.timeline_model import ResponseTime, Timeline
from latdoctor.report.fit_to_screen import HEIGHT, Line, print_lines, sentence_lines
from latdoctor.report.fit_to_screen import fitted as fit
from latdoctor.report.text_utils import WIDTH, print_json
from latdoctor.sanitize import counted, fitted
from latdoctor.units import format_value

MEASURES = ("MTTD", "MTTA", "MTTM", "MTTR")
_LISTED = 8  # incidents on the default screen
_TITLE, _TEXT, _ROWS = 80, 2 * 68, 14  # columns of a title, of a text in two lines, and rows at most


def print_list(
    found: Sequence[PastIncident],
    measures: Iterable[ResponseTime],
    console: Console,
    *,
    as_json: bool,
    verbose: bool = False,
    titles: Mapping[str, str] | None = None,
) -> None:
    """The incidents, the newest first, and the means of their response times; with `verbose` all of them.

    `titles` are those of causes, by id.
    """
    ordered = sorted(found, key=lambda one: one.opened_at, reverse=True)
    counted_measures = tuple(measures)
    means = {name: mean(counted_measures, name) for name in MEASURES}
    if as_json:
        listed = [{"id": name, "seconds": seconds, "of": of} for name, (seconds, of) in means.items()]
        print_json({"incidents": [_summary(one) for one in ordered], "means": listed}, console)
        return
    if not ordered:
        console.print("no incident yet. Next: latdoctor sop start")
        return
    shown = ordered if verbose else ordered[:_LISTED]
    rows = [line for one in shown for line in _listed(one, titles or {})]
    if len(shown) < len(ordered):
        rows.append(Line(f" and {len(ordered) - len(shown)} older: -v"))
    known = " · ".join(_mean(name, *means[name]) for name in MEASURES if means[name][0] is not None)
    times = [Line(fitted(f" {known or 'no response time is known'}", WIDTH), "dim")]
    end = [Line(f" Next  latdoctor incidents show {ordered[0].id}", "bold")]
    if not verbose:
        end.append(Line(" -v every incident · -o json", "dim"))
    opened = sum(not one.outcome for one in ordered)
    head = [Line(f"{counted(len(ordered), 'incident')}, {opened} open", "bold red" if opened else "bold")]
    height = HEIGHT if not verbose else len(rows) + HEIGHT
    print_lines(fit([head, rows, times, end], height), console)


def _listed(one: PastIncident, titles: Mapping[str, str]) -> Iterator[Line]:
    """Two lines: when, how it ended and what it is about; its cause and what was tried."""
    ended = one.outcome or "OPEN"
    head = f" {one.opened_at[:16].replace('T', ' ')}  {ended:<12} {one.title}"
    yield Line(fitted(head, WIDTH), "" if one.outcome else "bold")
    cause = ", ".join(titles.get(name, name) for name in one.named) or "no cause named"
    tried = f"{_helped(one)} · " if one.remedies else ""
    yield Line(fitted(f"   {one.id}  {tried}{cause}", WIDTH), "dim")


def _mean(name: str, seconds: float | None, of: int) -> str:
    return f"{name} unknown" if seconds is None else f"{name} {format_value(seconds, 'time')} ({of})"


def _helped(one: PastIncident) -> str:
    tried = [f"{name} verified" for name in one.worked] + [f"{name} rolled back" for name in one.taken_back]
    tried += dict.fromkeys(f"{run.playbook} {run.outcome or 'unfinished'}" for run in _others(one))
    return ", ".join(tried) or "–"


def print_incident(
    one: PastIncident,
    timeline: Timeline,
    alike: Sequence[SimilarIncident],
    console: Console,
    *,
    as_json: bool,
    verbose: bool = False,
) -> None:
    """One incident: state, causes, runs, response times, impact, similar ones. Without `verbose` at most 24 lines."""
    if as_json:
        print_json({**_summary(one), "measures": timeline.measures, "impact": timeline.impact}, console)
        return
    ended = f"CLOSED as {one.outcome} {clock_of(one.closed_at)}" if one.closed_at else "OPEN"
    console.print(Text(f"{ended}  worst verdict: {one.level or 'none'}", style="bold"))
    console.print(Text(fitted(one.title, _TITLE)))
    console.print(Text(f"{one.id}  opened {clock_of(one.opened_at)} UTC\n", style="dim"))
    times = ", ".join(
        f"{one.id} {format_value(one.seconds, 'time')}" for one in timeline.measures if one.seconds is not None
    )
    rows = [("Cause", title) for title in _titles(one, timeline)] or [("Cause", "none named")]
    rows += [("Runs", _helped(one))]
    rows += [(measure.id, _time_to(measure)) for measure in timeline.measures] if verbose else [("Times", times or "–")]
    rows += [("Impact", message) for message in list(impact_lines(timeline.impact))[: None if verbose else 2]]
    rows += [("Similar", _like(other, names=verbose)) for other in alike[: 3 if verbose else 1]]
    console.print(
        _grid(
            [
                (f" {name}", text if verbose else fitted(text, _TEXT))
                for name, text in (rows if verbose else rows[:_ROWS])
            ]
        )
    )
    console.print(Text(f"\n Next     latdoctor timeline --incident {one.id} --format markdown", style="bold"))
    if not verbose:
        console.print(Text(" -v how the times were measured, the whole impact", style="dim"))


def _titles(one: PastIncident, timeline: Timeline) -> tuple[str, ...]:
    """Titles of the named causes."""
    titles = {cause.id: cause.title for diagnosis in timeline.looks for cause in diagnosis.causes}
    return tuple(titles.get(name, name) for name in one.named)


def _others(one: PastIncident) -> Iterable[Any]:
    return (run for run in one.remedies if run.outcome not in ("verified", "rolled-back"))


def _time_to(measure: ResponseTime) -> str:
    if measure.seconds is None:
        return f"unknown: {measure.why}"
    return f"{format_value(measure.seconds, 'time')} {measure.title} ({measure.begins} → {measure.ends})"


def _grid(rows: Iterable[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, message in rows:
        grid.add_row(Text(name), Text(message))
    return grid


def print_similar(found: Sequence[SimilarIncident], console: Console, *, as_json: bool) -> None:
    """Similar incidents, most similar first; at most 24 lines."""
    if as_json:
        listed = [
            {**_summary(one.past), "likeness": round(one.likeness, 3), "same_causes": one.same_causes} for one in found
        ]
        print_json({"similar": listed}, console)
        return
    if not found:
        console.print("no similar incident is in the journal. Next: latdoctor incidents list")
        return
    rows = [
        Line(line, continued=number > 0)
        for one in found[:_LISTED]
        for number, line in enumerate(sentence_lines(_like(one), " ", "   "))
    ]
    if len(found) > _LISTED:
        rows.append(Line(f" and {len(found) - _LISTED} less similar: -o json"))
    print_lines(fit([rows, [Line(f" Next  latdoctor incidents show {found[0].past.id}", "bold")]]), console)


def _like(one: SimilarIncident, *, names: bool = True) -> str:
    listed = f" ({', '.join(one.same_causes)})" if names else ""
    same = f"same cause{listed}" if one.same_causes else "another cause"
    return f"{one.likeness * 100:3.0f} % alike: {one.past.opened_at[:10]} {one.past.id}, {same}; {_tried(one.past)}"


def _tried(one: PastIncident) -> str:
    return _helped(one) if one.remedies else "no playbook was run"


def similar_incident_line(found: Sequence[SimilarIncident]) -> str:
    """One line for a new diagnosis; empty where nothing is similar."""
    if not found:
        return ""
    best = next((one for one in found if one.past.worked), found[0])
    how = "same cause" if best.same_causes else f"{best.likeness * 100:.0f} % alike"
    more = f" ({len(found) - 1} more: latdoctor incidents similar)" if len(found) > 1 else ""
    return f"similar incident: {best.past.opened_at[:10]} {best.past.id} {how}; {_tried(best.past)}{more}"


def _summary(one: PastIncident) -> dict[str, Any]:
    return {
        "id": one.id,
        "title": one.title,
        "opened_at": one.opened_at,
        "closed_at": one.closed_at,
        "outcome": one.outcome,
        "level": one.level,
        "causes": one.named,
        "findings": sorted(one.features.findings),
        "remedies": one.remedies,
    }
