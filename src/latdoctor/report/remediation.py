"""Plans, results and runs of a remediation: on one screen, in full (`-v`), or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Outcome, Result, Verdict, verdict_of
from latdoctor.report.fit_to_screen import print_lines
from latdoctor.report.remediation_details import entry_printer, print_plan, print_result, print_run
from latdoctor.report.remediation_plan import Planned, next_command, plan_answer
from latdoctor.report.remediation_run import next_command as next_of_run
from latdoctor.report.remediation_run import run_answer, runs_answer
from latdoctor.report.remediation_steps import RunSummary, of_result, of_run
from latdoctor.report.text_utils import print_json, print_whole
from latdoctor.sanitize import clean


def plans(
    planned: Sequence[Planned],
    console: Console,
    *,
    as_json: bool = False,
    verbose: bool = False,
    confirming: bool = False,
) -> None:
    """Print what would be changed. `confirming`: the question whether to apply it follows."""
    if as_json:
        print_json({"outcome": "planned", "plans": [_plan_document(one) for one in planned]}, console)
    elif not verbose:
        print_lines(plan_answer(planned, confirming=confirming), console)
    else:
        for one in planned:
            print_plan(one, console)
        if not confirming:
            console.print(Text(f"Planned only: nothing was changed. Next: {next_command(planned)}", style="bold"))


def _plan_document(planned: Planned) -> dict[str, Any]:
    pages = planned.pages
    watched = {"watched": pages.watched, "not_watched": pages.siblings, "guessed": pages.guessed}
    return {
        **msgspec.to_builtins(planned.plan),
        "digest": planned.plan.digest,
        **watched,
        "unfinished": planned.unfinished,
    }


def results(
    ended: Sequence[RunSummary],
    console: Console,
    *,
    as_json: bool = False,
    verbose: bool = False,
    untried: Sequence[str] = (),
    nothing: str = "",
) -> None:
    """Print how runs ended; `nothing` where there were none. `untried`: targets that were not reached."""
    if as_json:
        documents = [
            {**msgspec.to_builtins(one.result), "verdict": verdict_of(one.result.outcome, one.result.code)}
            for one in ended
        ]
        print_json({"results": documents, "not_tried": untried}, console)
    elif not ended:
        console.print(nothing)
    elif not verbose:
        print_lines(runs_answer(ended, untried), console)
    else:
        for one in ended:
            print_result(one, console)
            print_whole(f"Next: {next_of_run(one)}", console, "dim")
        if untried:
            console.print(Text(f"not tried: {clean(', '.join(untried), 400)}", style="yellow"))


def runs(found: Sequence[RunState], console: Console, *, as_json: bool) -> None:
    """Print all runs, the newest first."""
    ordered = sorted(found, key=lambda run: run.opened_at, reverse=True)
    if as_json:
        print_json({"runs": [_run_document(run) for run in ordered]}, console)
        return
    if not ordered:
        console.print("no run yet. Next: latdoctor remediate --playbook ID --server URL")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("RUN", "PLAYBOOK", "TARGET", "OUTCOME"):
        # A run is named in the next command: never on two lines.
        table.add_column(heading, overflow="fold", no_wrap=heading == "RUN")
    for run in ordered:
        table.add_row(run.id, run.plan.playbook, clean(run.plan.target.name, 40), _verdict(run) or "unfinished")
    console.print(table)
    counted = Counter(_verdict(run) or "unfinished" for run in ordered)
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common())
    # The guarantee of every run: what is not verified does not stay.
    left = sum(not run.verified and bool(run.in_effect) and not run.proof_open for run in ordered)
    console.print(Text(f"\n{listed}; changes in effect without a proof: {left}"))
    unfinished = any(run.open for run in ordered)
    console.print()
    print_whole("Next: latdoctor recover" if unfinished else f"Next: latdoctor runs show {ordered[0].id}", console)


def run(
    state: RunState,
    entries: Sequence[JournalEntry],
    console: Console,
    *,
    as_json: bool = False,
    verbose: bool = False,
    next_step: bool = True,
) -> None:
    """Print one run; `verbose` from its first entry to its last, `next_step` with the command to continue with."""
    if as_json:
        print_json({**_run_document(state), "plan": state.plan, "entries": entry_documents(entries)}, console)
        return
    summary = of_run(state, entries)
    if not verbose:
        print_lines(run_answer(summary), console)
        return
    print_run(state, entries, console)
    if next_step:
        console.print()
        print_whole(f"Next: {next_of_run(summary)}", console)


def refused_run(
    name: str, entries: Sequence[JournalEntry], console: Console, *, as_json: bool = False, verbose: bool = False
) -> None:
    """Print a run that a guard refused before it began: it has no plan in the journal."""
    body: dict[str, Any] = next(msgspec.json.decode(entry.body) for entry in entries if entry.kind == "run.refused")
    if as_json:
        outcome = {"run": name, "outcome": Outcome.REFUSED, "guard": body["guard"], "reason": body["reason"]}
        print_json({**outcome, "entries": entry_documents(entries)}, console)
        return
    summary = of_result(Result(name, Outcome.REFUSED, body["reason"], "latdoctor runs list"))
    print_lines(run_answer(summary), console)
    if verbose:
        print_entry = entry_printer(console)
        for entry in entries:
            print_entry(entry)


def entry_documents(entries: Sequence[JournalEntry]) -> list[dict[str, Any]]:
    """The journal entries of a run as JSON values."""
    return [{"seq": e.seq, "at": e.at, "kind": e.kind, "body": e.body, "digest": e.digest} for e in entries]


def _verdict(state: RunState) -> Verdict | None:
    """None for a run that has not ended."""
    if state.proof_open:
        return Verdict.PROOF_PENDING
    return verdict_of(state.outcome, state.code) if state.outcome else None


def _run_document(state: RunState) -> dict[str, Any]:
    return {
        "run": state.id,
        "playbook": state.plan.playbook,
        "target": state.plan.target,
        "opened_at": state.opened_at,
        "ended_at": state.ended_at,
        "outcome": state.outcome,
        "verdict": _verdict(state),
        "reason": state.reason,
        "standing": len(state.in_effect),
    }
