"""`latdoctor runs`: what was done, from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption

if TYPE_CHECKING:
    from latdoctor.journal.store import Journal

app = typer.Typer(help="What was done to which target, and how it ended.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(output: OutputOption = OutputFormat.TEXT) -> None:
    """Every run, the newest first.

    Exit codes: 0 listed · 1 the journal cannot be read.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.remediation import run_history
    from latdoctor.report import remediation

    remediation.runs(run_history.runs(_journal().entries()), result_console(), as_json=output is OutputFormat.JSON)


@app.command("show")
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run: latdoctor runs list.")],
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """One run from its first entry to its last.

    Exit codes: 0 shown · 1 the journal cannot be read · 2 there is no such run.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.errors import UsageError
    from latdoctor.remediation import run_history
    from latdoctor.remediation.run_history import line_of
    from latdoctor.report import remediation

    entries = _journal().entries(run)
    found = next(iter(run_history.runs(entries)), None)
    if found is None:
        refused = [entry for entry in entries if entry.kind == "run.refused"]
        if refused:
            typer.echo(f"run {run}: {line_of(refused[0])}")
            return
        raise UsageError(f"there is no run {run!r}", next_step="latdoctor runs list")
    remediation.run(found, entries, result_console(), as_json=output is OutputFormat.JSON)


@app.command("verify")
def verify() -> None:
    """Prove that nobody has changed the journal.

    Each entry carries the digest of the one before it.

    Exit codes: 0 whole · 1 it is not, or cannot be read.
    """
    head = _journal().verify()
    if head is None:
        typer.echo("the journal is empty")
    else:
        typer.echo(f"{head.seq} entries, each with the digest of the one before. The last:\n{head.digest}")
        typer.echo("Keep it elsewhere: it also proves that no entry was cut off at the end.")


@app.command("reset")
def reset() -> None:
    """Close the circuit breaker.

    Runs that were taken back one after the other no longer refuse the next.

    Exit codes: 0 done · 1 the journal cannot be written.
    """
    from latdoctor.cli.remediation_session import own_folder
    from latdoctor.journal import state_dir
    from latdoctor.journal.store import Journal

    Journal.opened(own_folder() / state_dir.JOURNAL).append("", "breaker.reset", {})
    typer.echo("The circuit breaker is closed. Next: latdoctor runs list")


def _journal() -> Journal:
    """For reading alone."""
    from latdoctor.journal import state_dir
    from latdoctor.journal.store import Journal

    return Journal.reading(state_dir.folder() / state_dir.JOURNAL)
