"""`latdoctor runs`: remediation runs from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption, VerboseOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from latdoctor.journal.entry import JournalEntry
    from latdoctor.journal.store import Journal
    from latdoctor.remediation.run_history import RunState

app = typer.Typer(help="Remediation runs: target, changes and outcome.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(output: OutputOption = OutputFormat.TEXT) -> None:
    """List all runs, the newest first.

    Exit codes: 0 listed · 1 the journal cannot be read.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.report import remediation

    remediation.runs(_runs(_journal().entries()), result_console(), as_json=output is OutputFormat.JSON)


@app.command("show")
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run: latdoctor runs list.")],
    verbose: VerboseOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show one run: outcome, steps and undo; -v every entry.

    Exit codes: 0 shown · 1 the journal cannot be read · 2 there is no such run.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.errors import UsageError
    from latdoctor.report import remediation

    entries = _journal().entries(run)
    found = next(iter(_runs(entries)), None)
    as_json = output is OutputFormat.JSON
    if found is not None:
        remediation.run(found, entries, result_console(), as_json=as_json, verbose=verbose)
    elif any(entry.kind == "run.refused" for entry in entries):
        remediation.refused_run(run, entries, result_console(), as_json=as_json, verbose=verbose)
    else:
        raise UsageError(f"there is no run {run!r}", next_step="latdoctor runs list")


@app.command("prove")
def prove(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run whose proof is pending.")],
    lock: Annotated[int, typer.Option("--lock", metavar="N", help="The inherited descriptor of its lock.")],
) -> None:
    """Go on with a pending proof (remediate starts this).

    After a crash, `latdoctor recover` does it.

    Exit codes: 0 verified · 2 no proof of that run is pending · 3 rolled back · 6 NOT rolled back.
    """
    from latdoctor.cli.proof_process import prove

    raise typer.Exit(prove(run, lock))


@app.command("verify")
def verify() -> None:
    """Verify that the journal is unchanged.

    Each entry carries the digest of the one before it.

    Exit codes: 0 unchanged · 1 changed, or unreadable.
    """
    head = _journal().verify()
    if head is None:
        typer.echo("the journal is empty")
    else:
        typer.echo(f"{head.seq} entries, each with the digest of the one before. The last digest:\n{head.digest}")
        typer.echo("Store it elsewhere: it also reveals entries that were removed at the end.")


@app.command("reset")
def reset() -> None:
    """Close the circuit breaker.

    Consecutive rollbacks no longer refuse the next run.

    Exit codes: 0 done · 1 the journal cannot be written.
    """
    from latdoctor.journal import state_dir
    from latdoctor.journal.store import Journal

    Journal.opened(state_dir.private_folder() / state_dir.JOURNAL).append("", "breaker.reset", {})
    typer.echo("The circuit breaker is closed. Next: latdoctor runs list")


def _runs(entries: Sequence[JournalEntry]) -> tuple[RunState, ...]:
    """The runs of the journal as they stand now."""
    import time

    from latdoctor.journal import state_dir
    from latdoctor.remediation.live_proofs import with_live_proofs
    from latdoctor.remediation.run_history import runs

    return with_live_proofs(runs(entries), state_dir.folder() / state_dir.LOCKS, time.time())


def _journal() -> Journal:
    """The journal, for reading only."""
    from latdoctor.journal import state_dir
    from latdoctor.journal.store import Journal

    return Journal.reading(state_dir.folder() / state_dir.JOURNAL)
