"""Plans, results and runs in full, as `-v` prints them: every field, condition, page, measurement and journal entry."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Sequence

from msgspec import UNSET
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from latdoctor.conditions.ast import in_words
from latdoctor.conditions.evaluator import show
from latdoctor.evidence.catalogue import catalogue
from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation.change import Change, Undo, Value
from latdoctor.remediation.guards import MAX_EVIDENCE_AGE, MIN_PROBABILITY
from latdoctor.remediation.planner import DiagnosisRef, Plan
from latdoctor.remediation.playbook import Playbook, Verify
from latdoctor.remediation.run_history import RunState, entry_text
from latdoctor.remediation.run_result import Measure, Outcome, Result
from latdoctor.remediation.target import Pages
from latdoctor.report.plain_conditions import plain_text
from latdoctor.report.playbook import repair_lines
from latdoctor.report.remediation_plan import Planned, forecast_text, proof_time
from latdoctor.report.remediation_steps import RunSummary
from latdoctor.report.shown_fields import shown_fields
from latdoctor.report.text_utils import print_whole
from latdoctor.sanitize import clean
from latdoctor.units import format_value, percent

_UNDO = {
    Undo.RESTORE: "the old values are restored, within 30 s",
    Undo.NONE_NEEDED: "nothing is left behind that would have to be undone",
    Undo.IRREVERSIBLE: "it CANNOT be undone",
}
_MAX_VALUE = 60  # characters
_GUESS = "no server was named: these metrics pages were found on this machine, and the target was chosen from them"
_UNWATCHED = "nothing: before applying, give the server's metrics page: --server URL"
_HEADLINE = {
    Outcome.PLANNED: "PLANNED: nothing was changed",
    Outcome.VERIFIED: "VERIFIED: the change is verified and stays",
    Outcome.ROLLED_BACK: "ROLLED BACK: every value is as before",
    Outcome.PARTLY_ROLLED_BACK: "PARTLY ROLLED BACK: the steps verified before stay",
    Outcome.REFUSED: "REFUSED: nothing was changed",
    Outcome.HELD: "HELD: an operator must decide",
    Outcome.FAILED: "FAILED: nothing was changed",
    Outcome.PENDING: "APPLIED: the change is in effect, and its proof goes on",
    Outcome.INCOMPLETE: "ROLLBACK INCOMPLETE: some changes may still be in place",
}
_AT_WORK = "RUNNING: wait until the other run ends"


def style_of(outcome: Outcome) -> str:
    """The style of rich for the headline of a run."""
    if outcome is Outcome.VERIFIED:
        return "bold green"
    return "bold red" if outcome in (Outcome.FAILED, Outcome.INCOMPLETE) else "bold yellow"


def clock(at: str) -> str:
    """`07:12:03`, UTC."""
    return datetime.datetime.fromisoformat(at).astimezone(datetime.UTC).strftime("%H:%M:%S")


def entry_printer(console: Console, plan: Plan | None = None, *, plain: bool = False) -> Callable[[JournalEntry], None]:
    """A function that prints a line for each journal entry; `plain`: with names of signals instead of their ids."""

    def print_entry(entry: JournalEntry) -> None:
        text = clean(entry_text(entry, plan), 400)
        console.print(Text(f"{clock(entry.at)}  {plain_text(text) if plain else text}"))

    return print_entry


def print_plan(planned: Planned, console: Console) -> None:
    """A plan with every field, its reasons, its terms and its warnings."""
    plan = planned.plan
    if planned.unfinished:
        text = f"run {planned.unfinished} on this target is not finished: this plan is refused until it is"
        console.print(Text(text, style="yellow"))
    rows: list[RenderableType] = [
        Text(plan.title, style="bold"),
        Text(f"{plan.playbook} on {clean(plan.target.name)} ({plan.target.kind})", style="dim"),
        Text(f"risk {plan.risk} · disruption {plan.disruption} · plan {plan.digest[:12]}", style="dim"),
    ]
    if plan.diagnosis:
        rows += _reasons(plan.diagnosis, plan)
    if plan.forecast is not UNSET:
        rows.append(Text(forecast_text(plan.forecast)))
    console.print(Group(*rows, _stages(plan), Text(), _terms(plan, planned.playbook, planned.pages)))
    console.print()


def print_result(summary: RunSummary, console: Console) -> None:
    """A result with its reason, the commands it needs and every measurement, without the next command."""
    result = summary.result
    message = _AT_WORK if summary.at_work and result.outcome is Outcome.HELD else _HEADLINE[result.outcome]
    console.print(Text(message, style=style_of(result.outcome)))
    if result.playbook or result.target:
        whose = " on ".join(clean(part, 100) for part in (result.playbook, result.target) if part)
        console.print(Text(whose, style="dim"))
    if result.reason and result.outcome is not Outcome.VERIFIED:
        console.print(Text(clean(result.reason, 2000)))
    for line in result.unmet:
        console.print(Text(f"but {clean(line, 400)}", style="yellow"))
    _print_commands(result, console)
    if any(measure.after is not None for measure in result.measures):
        console.print()
        console.print(_figures(result.measures))
    for judged in result.last:
        console.print(Text(f"last window: {clean(judged.text, 200)}: {judged.status} ({clean(judged.shown, 400)})"))
    if result.note:
        console.print(Text(f"note: {clean(result.note)}", style="yellow"))
    if result.run:
        console.print()
        console.print(Text(f"run {result.run}, {result.seconds:.0f} s", style="dim"))


def print_run(state: RunState, entries: Sequence[JournalEntry], console: Console) -> None:
    """One run from its first entry to its last, without the next command."""
    message = _HEADLINE[state.outcome] if state.outcome else "UNFINISHED"
    style = style_of(state.outcome) if state.outcome else "bold red"
    console.print(Text(f"run {state.id}: {message}", style=style))
    console.print(Text(f"{state.plan.title} ({state.plan.playbook})\non {clean(state.plan.target.name)}", style="dim"))
    if state.reason:
        console.print(Text(clean(state.reason, 2000)))
    console.print(_stages(state.plan))
    console.print()
    print_entry = entry_printer(console, state.plan)
    for entry in entries:
        print_entry(entry)


def _print_commands(result: Result, console: Console) -> None:
    if result.manual:
        console.print(Text("Do this by hand:", style="bold red"))
    for command in result.manual:
        print_whole(f"  {command}", console)
    if result.overwrite:
        console.print(Text("Left as it is, for this run did not set it. To overwrite it:"))
    for command in result.overwrite:
        print_whole(f"  {command}", console)


def _stages(plan: Plan) -> RenderableType:
    """What each stage changes, under its name where there are several."""
    rows: list[RenderableType] = []
    for stage in plan.stages:
        rows += [Text(), Text(stage.playbook, style="bold")] if len(plan.stages) > 1 else [Text()]
        rows.append(_changes(stage.changes))
    return Group(*rows)


def _reasons(because: DiagnosisRef, plan: Plan) -> list[RenderableType]:
    """The diagnosis behind the plan, and what keeps a run from relying on it."""
    where = f" on {clean(', '.join(because.subjects), 200)}" if because.subjects else ""
    whose = f" of {clean(because.target, 100)}" if because.target else ""
    age = max(0.0, plan.created_at - because.evidence_end)
    rows: list[RenderableType] = [
        Text(f"because of {because.cause} ({percent(because.probability)}){where}", style="dim"),
        Text(f"diagnosis {because.run_id}{whose}: its evidence ended {format_value(age, 'time')} before", style="dim"),
    ]
    if plan.target.admin and not because.covers(plan.target.admin):
        text = f"{plan.target.admin} is not one of the servers in the diagnosis: --admin named it all the same"
        rows.append(Text(text, style="yellow"))
    if age > MAX_EVIDENCE_AGE:
        limit = format_value(MAX_EVIDENCE_AGE, "time")
        rows.append(Text(f"too old to be applied: the limit is {limit}. Diagnose again", style="yellow"))
    if because.probability < MIN_PROBABILITY:
        rows.append(Text(f"not certain enough to be applied: less than {MIN_PROBABILITY:.0%}", style="yellow"))
    return rows


def _required(verify: Verify) -> Iterator[str]:
    """What must hold after the change."""
    yield from map(in_words, (*verify.succeed, *verify.mechanism_conditions))
    yield from (f"{finding} clear" for finding in verify.cleared_findings)
    if verify.load is not None:
        yield in_words(verify.load)
    if verify.repair is not None:
        yield from repair_lines(verify.repair)


def _terms(plan: Plan, playbook: Playbook, pages: Pages) -> Table:
    """What must hold before, how the change is verified, how it is undone."""
    verify = playbook.verify
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for condition in playbook.preconditions:
        grid.add_row("needs", f"{in_words(condition)}; otherwise refused")
    grid.add_row("before", f"measured for {playbook.before.window:g} s (longer at a low request rate), evidence stored")
    grid.add_row("verify", "\n".join(_required(verify)))
    grid.add_row("", proof_time(playbook))
    grid.add_row("pages", "\n".join(clean(url, 200) for url in pages.watched) or _UNWATCHED)
    for url in pages.siblings:
        grid.add_row("", f"not {clean(url, 200)}: another server of its kind, which is not changed")
    if pages.guessed:
        grid.add_row("guess", _GUESS)
    for condition in verify.abort:
        grid.add_row("abort", f"{in_words(condition)}: rolled back at once")
    for undo in dict.fromkeys(change.undo for change in plan.changes):
        grid.add_row("undo", _UNDO[undo])
    for caution in dict.fromkeys(change.caution for change in plan.changes if change.caution):
        grid.add_row("caution", caution)
    if plan.effect:
        grid.add_row("effect", plan.effect)
    if playbook.treats == "symptom":
        grid.add_row("note", "it eases the symptom; the cause stays")
    return grid


def _changes(changes: Sequence[Change]) -> RenderableType:
    if not changes:
        return Text("nothing: every value is already as it would be set", style="dim")
    rows: list[RenderableType] = []
    for resource in dict.fromkeys(change.resource for change in changes):
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("field", "now", "then"):
            table.add_column(heading, overflow="fold")
        for field in shown_fields(change for change in changes if change.resource == resource):
            table.add_row(field.name, _value(field.before), _value(field.after))
        rows += [Text(f"at {clean(resource, 300)}"), table]
    return Group(*rows)


def _value(value: Value) -> str:
    return "not set" if value is None else clean(value if isinstance(value, str) else json.dumps(value), _MAX_VALUE)


def _figures(found: Sequence[Measure]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "of", "before", "after"):
        table.add_column(heading, justify="left" if heading in ("", "of") else "right")
    for one in found:
        after = "not measured" if one.after is None else show(one.signal, one.after)
        table.add_row(catalogue()[one.signal].description, clean(one.subject, 30), show(one.signal, one.before), after)
    return table
