"""Runs and their outcomes, for a screen and as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latdoctor.evidence.judging import show
from latdoctor.evidence.signals import catalogue
from latdoctor.journal.entry import Entry
from latdoctor.remedy.history import RunState
from latdoctor.remedy.plan import Plan
from latdoctor.remedy.result import Measure, Outcome, Result
from latdoctor.remedy.telling import line_of
from latdoctor.report.planned import stages
from latdoctor.report.printing import print_json, print_whole
from latdoctor.text import clean

_STYLE = {
    Outcome.VERIFIED: "bold green",
    Outcome.ROLLED_BACK: "bold yellow",
    Outcome.PARTLY: "bold yellow",
    Outcome.REFUSED: "bold yellow",
    Outcome.HELD: "bold magenta",
    Outcome.FAILED: "bold red",
    Outcome.INCOMPLETE: "bold red",
}
_SAYS = {
    Outcome.VERIFIED: "VERIFIED: the change has proved itself and stays",
    Outcome.ROLLED_BACK: "ROLLED BACK: every value is as before",
    Outcome.PARTLY: "PARTLY ROLLED BACK: what was verified before stays",
    Outcome.REFUSED: "REFUSED: nothing of it was changed",
    Outcome.HELD: "HELD: a human must decide",
    Outcome.FAILED: "NOT DONE: nothing was changed",
    Outcome.INCOMPLETE: "ROLLBACK INCOMPLETE: what was changed may still stand",
}
_STAYS = (Outcome.VERIFIED, Outcome.PARTLY)  # something of it can be taken back
_AT_WORK = "AT WORK: wait until it has ended"


def results(
    ended: Sequence[Result],
    console: Console,
    *,
    as_json: bool,
    untried: Sequence[str] = (),
    nothing: str = "",
    at_work: bool = False,
) -> None:
    """How runs ended; `nothing` is what to say where there were none.

    `untried`: targets that were not come to. `at_work`: what is held is a run that only has to be waited for.
    """
    if as_json:
        print_json({"results": ended, "not_tried": untried}, console)
        return
    if not ended:
        console.print(nothing)
    for result in ended:
        _print_result(result, console, _AT_WORK if at_work and result.outcome is Outcome.HELD else "")
    if untried:
        console.print(Text(f"not tried: {clean(', '.join(untried), 400)}", style="yellow"))


def told(console: Console, plan: Plan | None = None) -> Callable[[Entry], None]:
    """Prints a line for each entry as it comes."""

    def tell(entry: Entry) -> None:
        console.print(Text(f"{clock(entry.at)}  {clean(line_of(entry, plan), 400)}"))

    return tell


def clock(at: str) -> str:
    """`07:12:03`, UTC."""
    return datetime.datetime.fromisoformat(at).astimezone(datetime.UTC).strftime("%H:%M:%S")


def runs(found: Sequence[RunState], console: Console, *, as_json: bool) -> None:
    """All runs, the newest first."""
    ordered = sorted(found, key=lambda run: run.opened_at, reverse=True)
    if as_json:
        print_json({"runs": [_summary(run) for run in ordered]}, console)
        return
    if not ordered:
        console.print("no run yet. Next: latdoctor remediate --playbook ID --server URL")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("RUN", "PLAYBOOK", "TARGET", "ENDED"):
        table.add_column(heading, overflow="fold")
    for run in ordered:
        ended = run.outcome.value if run.outcome else "unfinished"
        table.add_row(run.id, run.plan.playbook, clean(run.plan.target.name, 40), ended)
    console.print(table)
    unfinished = any(run.open for run in ordered)
    console.print()
    print_whole("Next: latdoctor recover" if unfinished else f"Next: latdoctor runs show {ordered[0].id}", console)


def run(state: RunState, entries: Sequence[Entry], console: Console, *, as_json: bool) -> None:
    """One run from its first entry to its last."""
    if as_json:
        listed = [{"seq": e.seq, "at": e.at, "kind": e.kind, "body": e.body, "digest": e.digest} for e in entries]
        print_json({**_summary(state), "plan": state.plan, "entries": listed}, console)
        return
    says, style = (_SAYS[state.outcome], _STYLE[state.outcome]) if state.outcome else ("UNFINISHED", "bold red")
    console.print(Text(f"run {state.id}: {says}", style=style))
    console.print(Text(f"{state.plan.title} ({state.plan.playbook})\non {clean(state.plan.target.name)}", style="dim"))
    if state.reason:
        console.print(Text(clean(state.reason, 2000)))
    console.print(stages(state.plan))
    console.print()
    tell = told(console, state.plan)
    for entry in entries:
        tell(entry)
    console.print()
    following = f"latdoctor rollback {state.id}" if state.outcome in _STAYS else "latdoctor runs list"
    print_whole(f"Next: {'latdoctor recover' if state.open else following}", console)


def _print_result(result: Result, console: Console, says: str = "") -> None:
    headline = says or _SAYS.get(result.outcome, result.outcome)
    console.print(Text(headline, style=_STYLE.get(result.outcome, "")))
    if result.playbook or result.target:
        whose = " on ".join(clean(part, 100) for part in (result.playbook, result.target) if part)
        console.print(Text(whose, style="dim"))
    if result.reason and result.outcome is not Outcome.VERIFIED:
        console.print(Text(clean(result.reason, 2000)))
    for line in result.unmet:
        console.print(Text(f"but {clean(line, 400)}", style="yellow"))
    if result.manual:
        console.print(Text("Do this by hand:", style="bold red"))
    for command in result.manual:
        print_whole(f"  {command}", console)
    if result.theirs:
        console.print(Text("It is somebody else's now. To overwrite it:"))
    for command in result.theirs:
        print_whole(f"  {command}", console)
    if any(measure.after is not None for measure in result.measures):
        console.print()
        console.print(_figures(result.measures))
    if result.note:
        console.print(Text(f"note: {clean(result.note)}", style="yellow"))
    name = f"run {result.run}, {result.seconds:.0f} s. " if result.run else ""
    console.print()
    print_whole(f"{name}Next: {_next(result)}", console, "dim")


def _next(result: Result) -> str:
    if result.next_step:
        return clean(result.next_step, 400)
    if result.outcome is Outcome.INCOMPLETE:
        return "latdoctor recover, or the commands above" if result.manual else "latdoctor recover"
    return f"latdoctor runs show {result.run}" if result.run else "latdoctor runs list"


def _figures(found: Sequence[Measure]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "of", "before", "after"):
        table.add_column(heading, justify="left" if heading in ("", "of") else "right")
    for one in found:
        after = "not seen" if one.after is None else show(one.signal, one.after)
        table.add_row(catalogue()[one.signal].says, clean(one.subject, 30), show(one.signal, one.before), after)
    return table


def _summary(state: RunState) -> dict[str, Any]:
    return {
        "run": state.id,
        "playbook": state.plan.playbook,
        "target": state.plan.target,
        "opened_at": state.opened_at,
        "ended_at": state.ended_at,
        "outcome": state.outcome,
        "reason": state.reason,
        "standing": len(state.standing),
    }
