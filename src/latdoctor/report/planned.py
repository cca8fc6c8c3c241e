"""Plans as people read them before anything is done, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from latdoctor.evidence.condition_words import in_words
from latdoctor.remedy.change import Change, Value
from latdoctor.remedy.guards import MAX_AGE, SURE
from latdoctor.remedy.plan import Because, Plan
from latdoctor.remedy.playbook import Playbook
from latdoctor.remedy.playbook_files import Library
from latdoctor.remedy.target import Pages
from latdoctor.report.printing import print_json
from latdoctor.text import clean
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
        console.print(Text(f"Planned only: nothing was changed. Next: {_next(made, seen, runs)}", style="bold"))


def _next(made: Sequence[Plan], pages: Sequence[Pages], unfinished: Sequence[str]) -> str:
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
