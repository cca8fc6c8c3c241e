"""Plans as people read them before anything is done, and as JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from latdoctor.conditions.ast import in_words
from latdoctor.conditions.evaluator import show
from latdoctor.evidence.catalogue import catalogue
from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation.change import Change, Value
from latdoctor.remediation.guards import MAX_AGE, SURE
from latdoctor.remediation.planner import Because, Plan
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_loader import Library
from latdoctor.remediation.run_history import RunState, line_of
from latdoctor.remediation.run_result import Measure, Outcome, Result
from latdoctor.remediation.target import Pages
from latdoctor.report.text_utils import print_json, print_whole
from latdoctor.sanitize import clean
from latdoctor.units import format_value, percent

_UNDO = {
    "restore": "the old values are put back, within 30 s",
    "none-needed": "it leaves nothing behind that had to be taken back",
    "irreversible": "there is NO way back",
}
_LONGEST = 60  # characters of a value
_GUESS = "nobody named a server: these pages were found on this machine, and what is changed was chosen from them"
_UNWATCHED = "nothing: before it is applied, give the server's metrics page: --server URL"


def plans(
    made: Sequence[Plan],
    books: Library,
    console: Console,
    *,
    as_json: bool,
    pages: Sequence[Pages] = (),
    unfinished: Sequence[str] = (),
    asking: bool = False,
) -> None:
    """What would be done. Nothing has been; `asking`: somebody is asked right after.

    `pages`: for each plan what will show whether it helps; `unfinished`: the run that is not finished on its target.
    """
    seen = pages or [Pages(())] * len(made)
    runs = unfinished or [""] * len(made)
    if as_json:
        found = [_as_json(plan, one, run) for plan, one, run in zip(made, seen, runs, strict=True)]
        print_json({"outcome": "planned", "plans": found}, console)
        return
    for plan, one, run in zip(made, seen, runs, strict=True):
        if run:
            console.print(
                Text(f"run {run} on this target is not finished: until it is, this is refused", style="yellow")
            )
        console.print(_plan(plan, books.find(plan.playbook), one))
        console.print()
    if not asking:
        following = _plan_next_steps(made, seen, runs)
        console.print(Text(f"Planned only: nothing was changed. Next: {following}", style="bold"))


def _plan_next_steps(made: Sequence[Plan], pages: Sequence[Pages], unfinished: Sequence[str]) -> str:
    """What would be refused is not advised."""
    if any(unfinished):
        return "latdoctor recover"
    if not any(plan.changes for plan in made):
        return "look for another cause (latdoctor diagnose), for all of this is so already"
    if not all(plan.changes for plan in made):
        return "the same with --apply and --admin for those alone that would be changed"
    named = "--server URL or --target NAME, and " if any(one.guessed for one in pages) else ""
    return f"the same with {named}--apply"


def stages(plan: Plan) -> RenderableType:
    """What each stage changes, under its name where there are several."""
    rows: list[RenderableType] = []
    for stage in plan.stages:
        rows += [Text(), Text(stage.playbook, style="bold")] if len(plan.stages) > 1 else [Text()]
        rows.append(_changes(stage.changes))
    return Group(*rows)


def _as_json(plan: Plan, pages: Pages, unfinished: str) -> dict[str, Any]:
    watched = {"watched": pages.watched, "not_watched": pages.siblings, "guessed": pages.guessed}
    return {**msgspec.to_builtins(plan), "digest": plan.digest, **watched, "unfinished": unfinished}


def _plan(plan: Plan, book: Playbook, pages: Pages) -> RenderableType:
    rows: list[RenderableType] = [
        Text(f"{plan.title}", style="bold"),
        Text(f"{plan.playbook} on {clean(plan.target.name)} ({plan.target.kind})", style="dim"),
        Text(f"risk {plan.risk} · disruption {plan.disruption} · plan {plan.digest[:12]}", style="dim"),
    ]
    if plan.because:
        rows += _reasons(plan.because, plan)
    return Group(*rows, stages(plan), Text(), _terms(plan, book, pages))


def _reasons(because: Because, plan: Plan) -> list[RenderableType]:
    """The diagnosis that it answers to, and what keeps a run from trusting it."""
    where = f" on {clean(', '.join(because.subjects), 200)}" if because.subjects else ""
    whose = f" of {clean(because.target, 100)}" if because.target else ""
    age = max(0.0, plan.made_at - because.seen)
    rows: list[RenderableType] = [
        Text(f"because of {because.cause} ({percent(because.probability)}){where}", style="dim"),
        Text(f"diagnosis {because.run_id}{whose}: what it saw ended {format_value(age, 'time')} before", style="dim"),
    ]
    if plan.target.admin and not because.saw(plan.target.admin):
        said = f"{plan.target.admin} is none of the servers that it saw: somebody said that it is to be changed"
        rows.append(Text(said, style="yellow"))
    if age > MAX_AGE:
        limit = format_value(MAX_AGE, "time")
        rows.append(Text(f"too old to be applied, for that is more than {limit}: diagnose again", style="yellow"))
    if because.probability < SURE:
        rows.append(Text(f"not sure enough to be applied: less than {SURE:.0%}", style="yellow"))
    return rows


def _terms(plan: Plan, book: Playbook, pages: Pages) -> Table:
    """What must hold, how it proves itself, how it goes back."""
    verify = book.verify
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for condition in book.preconditions:
        grid.add_row("first", f"{in_words(condition)}, or it is refused")
    grid.add_row("then", f"watched for {book.before:g} s (longer where few are answered), evidence kept, changed")
    wanted = [*map(in_words, verify.succeed), *(f"{finding} clear" for finding in verify.mechanism)]
    if verify.load is not None:
        wanted.append(in_words(verify.load))
    grid.add_row("proof", "\n".join(wanted))
    grid.add_row("", f"for {verify.hold:g} s on end, within {verify.within:g} s; else it is taken back")
    grid.add_row("seen by", "\n".join(clean(url, 200) for url in pages.watched) or _UNWATCHED)
    for url in pages.siblings:
        grid.add_row("", f"not by {clean(url, 200)}: another server of its kind, which is not changed")
    if pages.guessed:
        grid.add_row("guess", _GUESS)
    for condition in verify.abort:
        grid.add_row("stop", f"{in_words(condition)}: taken back at once")
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


def told(console: Console, plan: Plan | None = None) -> Callable[[JournalEntry], None]:
    """Prints a line for each entry as it comes."""

    def tell(entry: JournalEntry) -> None:
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


def run(
    state: RunState, entries: Sequence[JournalEntry], console: Console, *, as_json: bool, next_step: bool = True
) -> None:
    """One run from its first entry to its last; `next_step`: with the command to continue with."""
    if as_json:
        listed = [{"seq": e.seq, "at": e.at, "kind": e.kind, "body": e.body, "digest": e.digest} for e in entries]
        print_json({**_summary(state), "plan": state.plan, "entries": listed}, console)
        return
    message, style = (_SAYS[state.outcome], _STYLE[state.outcome]) if state.outcome else ("UNFINISHED", "bold red")
    console.print(Text(f"run {state.id}: {message}", style=style))
    console.print(Text(f"{state.plan.title} ({state.plan.playbook})\non {clean(state.plan.target.name)}", style="dim"))
    if state.reason:
        console.print(Text(clean(state.reason, 2000)))
    console.print(stages(state.plan))
    console.print()
    tell = told(console, state.plan)
    for entry in entries:
        tell(entry)
    if not next_step:
        return
    console.print()
    following = f"latdoctor rollback {state.id}" if state.outcome in _STAYS else "latdoctor runs list"
    print_whole(f"Next: {'latdoctor recover' if state.open else following}", console)


def _print_result(result: Result, console: Console, message: str = "") -> None:
    headline = message or _SAYS.get(result.outcome, result.outcome)
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
    print_whole(f"{name}Next: {_run_next_steps(result)}", console, "dim")


def _run_next_steps(result: Result) -> str:
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
        table.add_row(catalogue()[one.signal].description, clean(one.subject, 30), show(one.signal, one.before), after)
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
