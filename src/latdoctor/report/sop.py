"""Where an incident stands: for a screen, for a live view, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from latdoctor.incident.elapsed import GIVEN_BY_HAND
from latdoctor.incident.sop.clock import LATE, MET, UNKNOWN_STAGE, UNMET, StageState
from latdoctor.incident.status import AttemptedRun, DiagnosisSummary, IncidentStatus
from latdoctor.report.remediation import clock as clock_of
from latdoctor.sanitize import TITLE, clean, fitted
from latdoctor.units import percent

_MARK = {MET: "+", LATE: "!", UNMET: ".", UNKNOWN_STAGE: "?"}
_STYLE = {MET: "green", LATE: "bold red", UNMET: "", UNKNOWN_STAGE: "bold magenta"}
_MOST = 4  # lines of each kind; the documents have all
_WIDE = 200  # characters of a text of somebody else's
_LONG = 500  # of a message with a path in it
_BAR = 40  # columns
_ROOMY = 64  # columns that the whole table takes
_DAYS = 48  # hours from which on they are told as days


def status(found: IncidentStatus, console: Console, *, as_json: bool) -> None:
    """All of it, for whoever asks once."""
    if as_json:
        console.file.write(msgspec.json.format(document(found), indent=2).decode() + "\n")
        return
    console.print(page(found))


def document(found: IncidentStatus) -> bytes:
    """As JSON; every key is there."""
    told = msgspec.to_builtins(found)
    return msgspec.json.encode({**told, "exit_code": found.exit_code})


def page(found: IncidentStatus) -> RenderableType:
    """The same for a screen of 80 columns."""
    return Group(*_body(found), Text(), *_next(found))


def _body(found: IncidentStatus) -> Iterator[RenderableType]:
    yield from (*_head(found), Text())
    if found.stages:
        yield from (StageTable(found.stages), Text())
    for line in (*_whys(found), *_looked(found), *_tried(found), *_inherited(found), *_notes(found)):
        yield Padding(line, (0, 0, 0, 2))


def screen(found: IncidentStatus) -> RenderableType:
    """The live view: what is due next and what to do, and under it the rest; a low terminal loses its end."""
    ends = Text("Ctrl-C ends the view", style="dim")
    return Group(countdown(found), Text(), *_next(found), ends, Text(), *_body(found))


def countdown(found: IncidentStatus) -> RenderableType:
    """What is left until the next stage is due, in figures and as a bar."""
    if found.unread:
        return Text("its stages are not known", style=_STYLE[UNKNOWN_STAGE])
    state = found.current
    if state is None or not found.open:
        message = "every stage is met" if state is None else "the incident is closed"
        return Text(message, style="bold green")
    if state.margin is None:
        return Text(f"{state.title}: {state.why}", style=_STYLE[UNKNOWN_STAGE])
    if state.margin < 0:
        return Text(f"{state.title} is overdue by {duration(-state.margin)}", style=_STYLE[LATE])
    filled = round(_BAR * min(1.0, max(0.0, 1 - state.margin / state.due)))
    urgent = state.margin < state.due / 5
    bar = Text("#" * filled, style="bold yellow" if urgent else "green") + Text("-" * (_BAR - filled), style="dim")
    return Group(Text(f"{state.title} is due in {duration(state.margin)}", style="bold"), bar)


def line(found: IncidentStatus) -> str:
    """One line, which changes with every stage and with the closing: for a pipe."""
    told = ", ".join(f"{state.id} {state.status}{'' if state.done else _left(state)}" for state in found.stages)
    return clean(f"{found.incident}: {told}{'' if found.open else f'; closed: {found.outcome}'}", 400)


def changed(before: IncidentStatus | None, found: IncidentStatus) -> bool:
    """Whether that line says another thing than which time it is."""
    if before is None:
        return True
    return [(one.id, one.status, one.done) for one in before.stages] != [
        (one.id, one.status, one.done) for one in found.stages
    ] or before.open != found.open


@dataclass(frozen=True, slots=True)
class StageTable:
    """The table of the stages. On a narrow screen it leaves out what one can do without, never the stage's name."""

    states: tuple[StageState, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._table(roomy=options.max_width >= _ROOMY)

    def _table(self, *, roomy: bool) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
        table.add_column("")
        table.add_column("stage", overflow="fold", min_width=12, max_width=30)
        for heading in ("due", "status", *(("met after", "margin") if roomy else ())):
            table.add_column(heading, justify="left" if heading == "status" else "right", no_wrap=True)
        if roomy:
            table.add_column("entry", no_wrap=True, style="dim")
        for state in self.states:
            table.add_row(*_stage(state), *(_met(state) if roomy else ()))
        return table


def _stage(state: StageState) -> tuple[Text, Text, str, Text]:
    style = _STYLE[state.status]
    status = state.status + (" (hand)" if state.by_hand else "")
    return (
        Text(_MARK[state.status], style=style),
        Text(fitted(state.title, 60)),
        duration(state.due),
        Text(status, style),
    )


def _met(state: StageState) -> tuple[str, str, str]:
    """After how long, with what margin, by which entry."""
    met = "" if not state.done else "?" if state.seconds is None else duration(state.seconds)
    margin = "" if state.margin is None else duration(state.margin)
    return met + ("~" if state.wall and met else ""), margin, state.by[:8]


def duration(seconds: float) -> str:
    """`0:42`, `12:03`, `1:02:03`, `-1:10`, `3 d 4 h`: cut off, so that nothing is due before it is."""
    whole = int(abs(seconds))
    hours, rest = divmod(whole, 3600)
    if hours >= _DAYS:
        told = f"{hours // 24} d {hours % 24} h"
        return f"-{told}" if seconds < 0 else told
    told = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"-{told}" if seconds < 0 else told


def _head(found: IncidentStatus) -> Iterator[RenderableType]:
    state = "OPEN" if found.open else f"CLOSED: {clean(found.outcome, 40)}"
    yield Text(f"{found.incident}  {state}", style="bold")
    yield Text(fitted(found.title, TITLE))
    yield Text(since(found), style="dim")
    if found.unread:
        yield Text(f"its stages are not known: {clean(found.unread, _LONG)}", style=_STYLE[UNKNOWN_STAGE])
    else:
        yield Text(f"SOP {found.sop}: {clean(found.sop_title, 100)}", style="dim")


def since(found: IncidentStatus) -> str:
    """When it began, by whose clock, and how long it has lasted."""
    began = f"began {moment(found.began)} UTC"
    if found.clock == GIVEN_BY_HAND:
        began += f" ({GIVEN_BY_HAND})"
    elif found.clock:
        began += f" (clock: {clean(found.clock, 60)}, its skew is not known)"
    elif found.clock_note:
        began += f" (when it was opened: {clean(found.clock_note, _WIDE)})"
    else:
        began += " (when it was opened; nobody told when the trouble began)"
    if found.lasted is None:
        return f"{began}, not known how long ago"
    return f"{began}, {duration(found.lasted)} ago" if found.open else f"{began}, lasted {duration(found.lasted)}"


def moment(at: float) -> str:
    """`2026-09-21 14:12:50`, in UTC."""
    from latdoctor.report import live

    try:
        return live.moment(at).removesuffix(" UTC")
    except (OverflowError, ValueError, OSError):  # another clock may tell any number
        return "at a time that makes no sense"


def _left(state: StageState) -> str:
    if state.margin is None:
        return ""
    return f" ({duration(state.margin)} left)" if state.margin >= 0 else f" ({duration(-state.margin)} overdue)"


def _whys(found: IncidentStatus) -> Iterator[Text]:
    """What is known of stages that are not met, or are not known."""
    for state in found.stages:
        if state.why and (state.status == UNKNOWN_STAGE or not state.done):
            yield Text(f"{state.title}: {clean(state.why, _WIDE)}", style=_STYLE[state.status])
    if found.alerts:
        told = ", ".join(f"{count} {status}" for status, count in found.alerts.items())
        yield Text(f"alerts: {told}")


def seen_line(one: DiagnosisSummary) -> str:
    """`07:14:10 critical: app.load.burst (94 %)`."""
    causes = ", ".join(f"{cause.id} ({percent(cause.probability)})" for cause in one.causes if cause.named)
    return f"{clock_of(one.at)} {one.level}: {causes or clean(one.message, _WIDE)}"


def _looked(found: IncidentStatus) -> Iterator[Text]:
    if not found.seen:
        yield Text("looked at: nothing yet")
        return
    for one in found.seen[-_MOST:]:
        yield Text(f"diagnosis {seen_line(one)}")
    last = found.seen[-1]
    if last.looked:
        yield Text(f"looked at: {', '.join(last.looked)}")
    for reason in last.unseen[:_MOST]:
        yield Text(f"not seen: {clean(reason, _WIDE)}", style="dim")
    if len(last.unseen) > _MOST:
        yield Text(f"not seen: {len(last.unseen) - _MOST} more (latdoctor sop export --handover)", style="dim")


def _tried(found: IncidentStatus) -> Iterator[Text]:
    for run in found.tried[-_MOST:]:
        yield Text(tried_line(run))
        if run.standing:
            yield Text(f"  {len(run.standing)} changed, and it stands; to take it back: {run.undo}", style="dim")
    if found.refused:
        yield Text(refused_line(found.refused), style="dim")


def refused_line(count: int) -> str:
    """`1 run was refused by a guard`."""
    return f"{count} {'run was' if count == 1 else 'runs were'} refused by a guard"


def _inherited(found: IncidentStatus) -> Iterator[Text]:
    """What stands on the target and is not the incident's own, the latest last."""
    if len(found.inherited) > _MOST:
        yield Text(f"{len(found.inherited) - _MOST} earlier runs stand too (latdoctor sop export --handover)")
    for run in found.inherited[-_MOST:]:
        yield Text(f"{run.whose}, {moment(run.at)} UTC: {tried_line(run)}")
        count = f"{len(run.standing)} changed, and it stands" if run.standing else "what it changed is not known"
        yield Text(f"  {count}; to take it back: {run.undo}", style="dim")


def tried_line(run: AttemptedRun) -> str:
    """`tried app.batching.token-budget: rolled-back (it has not helped)`."""
    reason = f" ({clean(run.reason, _WIDE)})" if run.reason and run.reason != run.outcome else ""
    return f"tried {run.playbook} on {clean(run.target, 80)}: {run.outcome}{reason}"


def _notes(found: IncidentStatus) -> Iterator[Text]:
    """The last ones, a line each, cut to the width."""
    if len(found.notes) > _MOST:
        yield Text("earlier notes: latdoctor sop export --handover", style="dim")
    for note in found.notes[-_MOST:]:
        by = clean(note.by, 80) or "somebody"
        yield Text(f"note {clock_of(note.at)} {by}: {clean(note.text, _LONG)}", no_wrap=True, overflow="ellipsis")


def permitted(found: IncidentStatus) -> str:
    if found.unread:
        return "not known (--approve overrides)"
    return ", ".join(found.permitted) or "nothing"


def _next(found: IncidentStatus) -> Iterator[RenderableType]:
    if found.open:
        yield Text(f"permitted: {permitted(found)}", style="dim")
    yield Text(f"Next: {clean(found.next.command, 600)}", style="bold")
    yield Padding(Text(clean(found.next.why, _WIDE), style="dim"), (0, 0, 0, 6))


def value(one: object) -> str:
    """A value that stood or stands at a target."""
    return "not set" if one is None else clean(one if isinstance(one, str) else json.dumps(one), 60)
