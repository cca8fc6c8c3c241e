"""Status of an incident: the short answer, the live view, and JSON."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latdoctor.incident.sop.clock import StageState, StageStatus
from latdoctor.incident.status import AttemptedRun, IncidentStatus
from latdoctor.report.remediation_details import clock as clock_of
from latdoctor.report.text_utils import WIDTH, command_lines
from latdoctor.sanitize import clean, counted, fitted
from latdoctor.units import elapsed, percent

_STYLE = {
    StageStatus.MET: "green",
    StageStatus.LATE: "bold red",
    StageStatus.UNMET: "",
    StageStatus.UNKNOWN: "bold magenta",
}
_LABEL = 8  # columns of the labels of the short answer
_COLUMNS = WIDTH - _LABEL - 1
_MOST, _STAGES = 4, 5  # lines of each kind, and open stages; the documents have all
_WIDE = 200  # characters of an external text
_LONG = 500  # of a message with a path in it
_BAR = 40  # columns


def print_status(status: IncidentStatus, console: Console, *, as_json: bool) -> None:
    """The answer of `sop status`."""
    if as_json:
        console.file.write(msgspec.json.format(document(status), indent=2).decode() + "\n")
        return
    console.print(page(status))


def document(status: IncidentStatus) -> bytes:
    """JSON document with every key."""
    return msgspec.json.encode({**msgspec.to_builtins(status), "exit_code": status.exit_code})


def page(status: IncidentStatus) -> RenderableType:
    """The short answer: at most 24 lines of 80 columns, for up to five stages."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_LABEL, no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in _rows(status):
        grid.add_row(f" {label}", text)
    more = "evidence, runs, notes and permissions"
    return Group(*_headline(status), Text(), grid, Text(), *_next(status), Text(), Text(f" -v {more}", style="dim"))


def _headline(status: IncidentStatus) -> Iterator[RenderableType]:
    """State, duration and next deadline; title; incident and start."""
    lasted = "" if status.lasted is None else f" {elapsed(status.lasted)}"
    if status.open:
        yield Text(f"OPEN{lasted}  ", style="bold").append_text(deadline(status))
    else:
        yield Text(f"CLOSED as {clean(status.outcome, 40)} after{lasted or ' an unknown time'}", style="bold green")
    yield Text(fitted(status.title, WIDTH))
    began = (
        f"began {moment(status.began)} UTC{_clock(status)}" if status.clock else f"opened {moment(status.began)} UTC"
    )
    yield Text(fitted(f"{status.incident}  {began}", WIDTH), style="dim")
    if status.clock_note:
        yield Text(fitted(f"opening time used: {clean(status.clock_note, _WIDE)}", WIDTH), style="dim")


def _clock(status: IncidentStatus) -> str:
    return f" ({clean(status.clock, 20)})"


def deadline(status: IncidentStatus) -> Text:
    """The stage that is due next, or overdue."""
    if status.unread:
        return Text("stages unknown", style=_STYLE[StageStatus.UNKNOWN])
    state = status.current
    if state is None or not status.open:
        return Text("every stage is met" if state is None else "the incident is closed", style="bold green")
    if state.margin is None:
        return Text(f"{state.title}: due time unknown", style=_STYLE[StageStatus.UNKNOWN])
    if state.margin < 0:
        return Text(f"{state.title} is overdue by {elapsed(-state.margin)}", style=_STYLE[StageStatus.LATE])
    return Text(f"{state.title} is due in {elapsed(state.margin)}", style="bold")


def _rows(status: IncidentStatus) -> Iterator[tuple[str, Text]]:
    if status.unread:
        yield "Stages", Text(fitted(clean(status.unread, _LONG), 3 * _COLUMNS))
    done = [f"{state.title}{_how_met(state)}" for state in status.stages if state.done]
    if done:
        yield "Met", Text(fitted(", ".join(done), 3 * _COLUMNS))
    undone = [state for state in status.stages if not state.done]
    for number, state in enumerate(undone[:_STAGES] if status.open else ()):
        yield "" if number else "Due", Text(fitted(f"{state.title}{_left(state)}", _COLUMNS), _STYLE[state.status])
    if status.alerts:
        yield "Alerts", Text(", ".join(f"{count} {state}" for state, count in status.alerts.items()))
    yield from _cause(status)
    yield from _changes(status)
    for note in status.notes[-1:]:
        yield "Note", Text(fitted(f"{clock_of(note.at)} {clean(note.by, 80) or 'unnamed'}: {note.text}", _COLUMNS))


def _how_met(state: StageState) -> str:
    after = "" if state.seconds is None else f" after {elapsed(state.seconds)}"
    late = " (late)" if state.status is StageStatus.LATE else ""
    return f"{after}{late}{', by hand' if state.by_hand else ''}"


def _cause(status: IncidentStatus) -> Iterator[tuple[str, Text]]:
    """The cause of the last diagnosis that names one, with its first finding."""
    if not status.seen:
        yield "Cause", Text("not diagnosed yet")
        return
    last = status.seen[-1]
    naming = next((one for one in reversed(status.seen) if any(cause.named for cause in one.causes)), None)
    if naming is None:
        yield "Cause", Text(fitted(f"none named: {last.level}: {clean(last.message, _WIDE)}", 2 * _COLUMNS))
    else:
        earlier = "" if naming is last else f" (diagnosis of {clock_of(naming.at)}; the last one names none)"
        for number, cause in enumerate([cause for cause in naming.causes if cause.named][:2]):
            title = f"{fitted(cause.title, _COLUMNS - 8)}, {percent(cause.probability)}"
            yield "and" if number else "Cause", Text(f"{title}{earlier}")
            if cause.because:
                yield "", Text(fitted(clean(cause.because[0], _WIDE), _COLUMNS), "dim")
    if last.unseen and status.open:
        yield "Missing", Text(f"{counted(len(last.unseen), 'kind')} of evidence, see -v", "dim")


def _changes(status: IncidentStatus) -> Iterator[tuple[str, Text]]:
    """The last runs, and what they left changed."""
    for run in status.tried[-2:]:
        yield "Run", Text(fitted(f"{clean(run.title, 80)} on {clean(run.target, 40)}: {ending(run)}", 2 * _COLUMNS))
    remaining = [run for run in (*status.inherited, *status.tried) if run.standing or run.whose]
    for run in remaining[-2:]:
        count = f"{counted(len(run.standing), 'value')} still changed" if run.standing else "changes unknown"
        whose = f" {run.whose}" if run.whose else ""
        yield "Changed", Text(fitted(f"{count}{whose}; undo: {run.undo}", 2 * _COLUMNS))


def ending(run: AttemptedRun) -> str:
    reason = f" ({clean(run.reason, _WIDE)})" if run.reason and run.reason != run.outcome else ""
    return f"{run.outcome}{reason}"


def _next(status: IncidentStatus) -> Iterator[RenderableType]:
    """The next command, broken before an option where it is longer than a line, and the reason."""
    first, *rest = command_lines(clean(status.next.command, 600), WIDTH - _LABEL - 2)
    yield Text(f" Next    {first}", style="bold")
    yield from (Text(f"           {line}", style="bold", overflow="ignore", no_wrap=True) for line in rest)
    yield Padding(Text(clean(status.next.why, _WIDE), style="dim"), (0, 0, 0, _LABEL + 1))


def screen(status: IncidentStatus) -> RenderableType:
    """The live view: a progress bar to the next deadline, and the short answer."""
    return Group(*progress(status), page(status), Text(" Ctrl-C ends the view", style="dim"))


def progress(status: IncidentStatus) -> Iterator[Text]:
    """Bar of the time until the next stage is due; nothing where that is unknown or over."""
    state = status.current
    if state is None or not status.open or state.margin is None or state.margin < 0:
        return
    filled = round(_BAR * min(1.0, 1 - state.margin / state.due))
    urgent = state.margin < state.due / 5
    yield Text(" " + "#" * filled, style="bold yellow" if urgent else "green") + Text(
        "-" * (_BAR - filled), style="dim"
    )


def line(status: IncidentStatus) -> str:
    """One line for a pipe: the stages, and the closing."""
    text = ", ".join(f"{state.id} {state.status}{'' if state.done else _left(state)}" for state in status.stages)
    return clean(f"{status.incident}: {text}{'' if status.open else f'; closed: {status.outcome}'}", 400)


def changed(before: IncidentStatus | None, status: IncidentStatus) -> bool:
    """Whether that line differs in more than the time."""
    if before is None:
        return True
    return [(one.id, one.status, one.done) for one in before.stages] != [
        (one.id, one.status, one.done) for one in status.stages
    ] or before.open != status.open


def moment(at: float) -> str:
    """`2026-09-21 14:12:50`, in UTC."""
    from latdoctor.report import console as console_report

    try:
        return console_report.moment(at).removesuffix(" UTC")
    except (OverflowError, ValueError, OSError):  # an external clock may have any value
        return "an impossible time"


def _left(state: StageState) -> str:
    if state.margin is None:
        return ""
    return f" ({elapsed(state.margin)} left)" if state.margin >= 0 else f" ({elapsed(-state.margin)} overdue)"
