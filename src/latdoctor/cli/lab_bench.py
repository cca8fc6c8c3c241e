"""`latdoctor lab bench diagnosis`: records incidents, diagnoses each, and scores the answers."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure latdoctor itself on incidents that are really played.", no_args_is_help=True)

MORE_IS_LEFT = 3


class Output(StrEnum):
    """How the score is printed."""

    TEXT = "text"
    JSON = "json"


Folder = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="Where the recordings are; one that is there is not repeated.")
]


@app.command()
def diagnosis(
    folder: Folder = Path("bench-recordings"),
    matrix: Annotated[str, typer.Option("--matrix", metavar="quick|hour|full", help="Which runs.")] = "hour",
    quick: Annotated[bool, typer.Option("--quick", help="The same as --matrix quick: a few minutes.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Record the next run that is missing, and stop.")] = False,
) -> None:
    """Record incidents, diagnose each, and score the answers.

    Every fault at several seeds and severities, faults together, nothing wrong, and telemetry that is made. A run that is
    recorded is not repeated, so that the whole can be done in several goes.

    Exit codes: 0 done · 1 nothing can be recorded · 2 usage · 3 --once, and more is left to record.
    """
    from latdoctor.cli.interrupting import ended_by_sigterm
    from latdoctor.trials import matrix as matrices
    from latdoctor.trials.recording import attempt
    from latdoctor.trials.store import Store, record

    cells = matrices.cells("quick" if quick else matrix)
    store = Store(folder)
    with ended_by_sigterm():
        left = record(store, cells, attempt, _say(), most=1 if once else None)
    if once and left:
        raise typer.Exit(MORE_IS_LEFT)


def _say() -> Callable[[str], None]:
    from latdoctor.cli.screen import notice_console

    notices = notice_console()
    return lambda text: notices.print(text, soft_wrap=True)
