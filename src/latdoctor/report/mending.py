"""Plans, runs and their outcomes, for a screen and as JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from latdoctor.evidence.judging import HOLDS, show
from latdoctor.evidence.signals import catalogue
from latdoctor.journal.entry import Entry
from latdoctor.remedy.change import Change, Value
from latdoctor.remedy.history import RunState
from latdoctor.remedy.observation import Judged, text_of
from latdoctor.remedy.plan import Plan
from latdoctor.remedy.playbook import Playbook
from latdoctor.remedy.playbook_files import Library
from latdoctor.remedy.result import Measure, Outcome, Result
from latdoctor.remedy.verifying import ABORT
from latdoctor.text import clean

SCHEMA_VERSION = "1"
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
_UNDO = {
    "restore": "the old values are put back, within 30 s",
    "none-needed": "it leaves nothing behind that had to be taken back",
    "irreversible": "there is NO way back",
}
_LINES = {
    "run.opened": "run {run}: watching before anything is changed",
    "evidence.kept": "evidence kept: {path}",
    "stage.skipped": "stage {playbook} skipped: what it mends is not to be seen",
    "stage.verified": "stage {playbook} verified",
    "verify.passed": "verified",
    "verify.failed": "not verified: {reason}",
    "rollback.begun": "taking back: {reason}",
    "undo.failed": "NOT taken back: {step}: {why}",
    "undo.left": "left as it is: {step}: {why}",
    "run.refused": "refused by {guard}: {reason}",
    "run.closed": "ended: {outcome}",
}
_TOUCHED = {
    "change.intended": "changing",
    "change.made": "changed",
    "undo.intended": "putting back",
    "undo.made": "put back",
}
_LONGEST = 60  # characters of a value


def plans(made: Sequence[Plan], books: Library, console: Console, *, as_json: bool) -> None:
    """What would be done. Nothing has been."""
    if as_json:
        _print_json({"outcome": Outcome.PLANNED, "plans": [_with_digest(plan) for plan in made]}, console)
        return
    for plan in made:
        console.print(_plan(plan, books.find(plan.playbook)))
        console.print()
    console.print(Text("Planned only: nothing was changed. Next: the same with --apply", style="bold"))


def results(ended: Sequence[Result], console: Console, *, as_json: bool, nothing: str = "") -> None:
    """How runs ended; `nothing` is what to say where there were none."""
    if as_json:
        _print_json({"results": ended}, console)
        return
    if not ended:
        console.print(nothing)
    for result in ended:
        console.print(_result(result))


def line_of(entry: Entry, plan: Plan | None = None) -> str:
    """What an entry of the journal says, in a line."""
    body: dict[str, Any] = msgspec.json.decode(entry.body)
    if entry.kind in _TOUCHED:
        return _touched(entry.kind, body, plan)
    if entry.kind == "before.measured":
        return "before: " + ", ".join(_measured(msgspec.convert(one, Measure)) for one in body["measures"][:4])
    if entry.kind == "settled":
        return "settled" if body["settled"] else "not settled in time; judging it as it is"
    if entry.kind == "verify.window":
        return f"window: {body['status']}" + (f" ({_why(body)})" if _why(body) else "")
    return _LINES.get(entry.kind, entry.kind).format(run=entry.run, **body)


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
        _print_json({"runs": [_summary(run) for run in ordered]}, console)
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
    console.print("\nNext: latdoctor recover" if unfinished else f"\nNext: latdoctor runs show {ordered[0].id}")


def run(state: RunState, entries: Sequence[Entry], console: Console, *, as_json: bool) -> None:
    """One run from its first entry to its last."""
    if as_json:
        listed = [{"seq": e.seq, "at": e.at, "kind": e.kind, "body": e.body, "digest": e.digest} for e in entries]
        _print_json({**_summary(state), "plan": state.plan, "entries": listed}, console)
        return
    says, style = (_SAYS[state.outcome], _STYLE[state.outcome]) if state.outcome else ("UNFINISHED", "bold red")
    console.print(Text(f"run {state.id}: {says}", style=style))
    console.print(Text(f"{state.plan.title} ({state.plan.playbook})\non {clean(state.plan.target.name)}", style="dim"))
    if state.reason:
        console.print(Text(clean(state.reason, 2000)))
    console.print(_stages(state.plan))
    console.print()
    tell = told(console, state.plan)
    for entry in entries:
        tell(entry)
    console.print()
    following = f"latdoctor rollback {state.id}" if state.outcome in _STAYS else "latdoctor runs list"
    console.print(Text(f"Next: {'latdoctor recover' if state.open else following}"))


def _plan(plan: Plan, book: Playbook) -> RenderableType:
    rows: list[RenderableType] = [
        Text(f"{plan.title}", style="bold"),
        Text(f"{plan.playbook} on {clean(plan.target.name)} ({plan.target.kind})", style="dim"),
        Text(f"risk {plan.risk} · disruption {plan.disruption} · plan {plan.digest[:12]}", style="dim"),
    ]
    if plan.because:
        sure = f"{plan.because.probability:.0%}"
        rows.append(Text(f"because of {plan.because.cause} ({sure}, diagnosis {plan.because.run_id})", style="dim"))
    return Group(*rows, _stages(plan), Text(), _terms(plan, book))


def _stages(plan: Plan) -> RenderableType:
    """What each stage changes, under its name where there are several."""
    rows: list[RenderableType] = []
    for stage in plan.stages:
        rows += [Text(), Text(stage.playbook, style="bold")] if len(plan.stages) > 1 else [Text()]
        rows.append(_changes(stage.changes))
    return Group(*rows)


def _terms(plan: Plan, book: Playbook) -> Table:
    """What must hold, how it proves itself, how it goes back."""
    verify = book.verify
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for condition in book.preconditions:
        grid.add_row("first", f"{text_of(condition)}, or it is refused")
    grid.add_row("then", f"watched for {book.before:g} s, evidence kept, changed")
    wanted = [text_of(condition) for condition in verify.succeed] + [f"{finding} clear" for finding in verify.mechanism]
    if verify.load is not None:
        wanted.append(text_of(verify.load))
    grid.add_row("proof", "\n".join(wanted))
    grid.add_row("", f"for {verify.hold:g} s on end, within {verify.within:g} s; else it is taken back")
    for condition in verify.abort:
        grid.add_row("stop", f"{text_of(condition)}: taken back at once")
    for undo in dict.fromkeys(change.undo for change in plan.changes):
        grid.add_row("back", _UNDO.get(undo, undo))
    for caution in dict.fromkeys(change.caution for change in plan.changes if change.caution):
        grid.add_row("caution", caution)
    if plan.effect:
        grid.add_row("effect", plan.effect)
    if book.treats == "symptom":
        grid.add_row("note", "it buys time; the cause stays")
    return grid


def _changes(changes: Sequence[Change]) -> RenderableType:
    if not changes:
        return Text("all of it is so already", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what", overflow="fold")
    table.add_column("now", overflow="fold")
    table.add_column("then", overflow="fold")
    for change in changes:
        for field in change.fields:
            table.add_row(field.name, _value(field.before), _value(field.after))
    return table


def _value(value: Value) -> str:
    return "not set" if value is None else clean(value if isinstance(value, str) else json.dumps(value), _LONGEST)


def _result(result: Result) -> RenderableType:
    rows: list[RenderableType] = [Text(_SAYS.get(result.outcome, result.outcome), style=_STYLE.get(result.outcome, ""))]
    if result.reason and result.outcome is not Outcome.VERIFIED:
        rows.append(Text(clean(result.reason, 2000)))
    if result.manual:
        rows += [Text("Do this by hand:", style="bold red"), *(Text(f"  {command}") for command in result.manual)]
    if result.theirs:
        rows += [
            Text("It is somebody else's now. To overwrite it:"),
            *(Text(f"  {command}") for command in result.theirs),
        ]
    if any(measure.after is not None for measure in result.measures):
        rows += [Text(), _figures(result.measures)]
    if result.note:
        rows.append(Text(f"note: {clean(result.note)}", style="yellow"))
    name = f"run {result.run}, {result.seconds:.0f} s. " if result.run else ""
    rows += [Text(), Text(f"{name}Next: {_next(result)}", style="dim")]
    return Group(*rows)


def _next(result: Result) -> str:
    if result.next_step:
        return result.next_step
    if result.outcome is Outcome.INCOMPLETE:
        return "latdoctor recover, or the commands above"
    return f"latdoctor runs show {result.run}"


def _figures(found: Sequence[Measure]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "of", "before", "after"):
        table.add_column(heading, justify="left" if heading in ("", "of") else "right")
    for one in found:
        after = "not seen" if one.after is None else show(one.signal, one.after)
        table.add_row(catalogue()[one.signal].says, clean(one.subject, 30), show(one.signal, one.before), after)
    return table


def _measured(one: Measure) -> str:
    return f"{one.signal} {show(one.signal, one.before)}"


def _touched(kind: str, body: dict[str, Any], plan: Plan | None) -> str:
    step = f"change {body['index'] + 1}"
    if plan is not None:
        step = plan.stages[body["stage"]].changes[body["index"]].step
    return f"{_TOUCHED[kind]} {step}"


def _why(body: dict[str, Any]) -> str:
    if "why" in body:
        return str(body["why"])
    conditions = msgspec.convert(body.get("conditions", ()), tuple[Judged, ...])
    return "; ".join(one.told for one in conditions if (one.status == HOLDS) is (body["status"] == ABORT))


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


def _with_digest(plan: Plan) -> dict[str, Any]:
    return {**msgspec.to_builtins(plan), "digest": plan.digest}


def _print_json(value: dict[str, Any], console: Console) -> None:
    raw = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **value})
    console.file.write(msgspec.json.format(raw, indent=2).decode() + "\n")
