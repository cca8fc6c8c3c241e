"""`latdoctor lab telemetry`: makes a bundle of GPU telemetry in which a known thing is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def telemetry(
    cause: Annotated[str | None, typer.Argument(metavar="CAUSE", help="What is to be wrong; see --list.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="The folder to write, which must not exist.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same bytes.")] = 0,
    severity: Annotated[
        float, typer.Option("--severity", metavar="S", help="How bad it is: above 0, at most 1.")
    ] = 0.7,
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Where to write what is really wrong.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show what can be made, and write nothing.")] = False,
) -> None:
    """Make telemetry of a GPU machine, without one.

    NVML samples, metrics pages, logs, traces and TensorRT files with noise and healthy neighbours, marked as
    generated. DIR/bundle is for `latdoctor diagnose`, DIR/raw holds the same as files. What is wrong stands in neither:
    --truth writes it elsewhere.

    Exit codes: 0 written · 2 usage, or the place cannot be written.
    """
    if list_:
        _list()
        return
    from latdoctor.errors import UsageError
    from latdoctor.lab.telemetry.making import make
    from latdoctor.lab.telemetry.writing import must_be_apart, write, write_truth

    if cause is None or output is None:
        what = "nothing to make is named" if cause is None else "no place to write to is named"
        raise UsageError(what, next_step="latdoctor lab telemetry CAUSE --output DIR, or --list")
    if truth is not None:
        must_be_apart(truth, output)
    made = make(cause, seed, severity)
    write(made, output)
    if truth is not None:
        write_truth(made.truth, truth)
    typer.echo(f"{made.mark}\nwrote {output}. Next: latdoctor diagnose {output / 'bundle'}")


def _list() -> None:
    from rich.table import Table

    from latdoctor.cli.screen import result_console
    from latdoctor.lab.telemetry.kinds import KINDS

    table = Table("cause", "where it shows", "named today", box=None, pad_edge=False)
    for kind in KINDS:
        table.add_row(kind.id, kind.shows, "" if kind.healthy else "yes" if kind.named else "not yet")
    console = result_console()
    console.print(table)
    console.print(f"{len(KINDS)} kinds. Next: latdoctor lab telemetry CAUSE --output DIR")
