"""What the commands of `lab bench` share: where runs are, how scores are printed, and how what is missing is played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

if TYPE_CHECKING:
    from latdoctor.trials.store import Due, Go, Keeping

MORE_IS_LEFT = 3


class Playing(Protocol):
    """A run of a bench: the scenario it plays."""

    @property
    def scenario(self) -> str: ...


Of = TypeVar("Of", bound=Playing)


class Output(StrEnum):
    """How the scores are printed."""

    TEXT = "text"
    JSON = "json"


Only = Annotated[str | None, typer.Option("--only", metavar="SCENARIO", help="The runs of one scenario only.")]
Folder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", readable=False, help="Where the recordings are; none of them is repeated."),
]


def of_scenario(cells: Sequence[Of], only: str | None) -> tuple[Of, ...]:
    """Those of `cells` that play the scenario `only`; None: all. Raises UsageError where none does."""
    from latdoctor.errors import UsageError

    if only is None:
        return tuple(cells)
    known = sorted({cell.scenario for cell in cells})
    if only not in known:
        raise UsageError(f"no run plays {only!r}", where="--only", next_step=f"one of {', '.join(known)}")
    return tuple(cell for cell in cells if cell.scenario == only)


def play_missing(
    store: Keeping[Go], cells: Sequence[Due], attempt: Callable[[Due, Callable[[str], None]], Go], *, once: bool
) -> None:
    """Plays what is missing; with `once` one run of it, and then leaves."""
    from latdoctor.cli.interrupting import ended_by_sigterm
    from latdoctor.trials.store import record

    with ended_by_sigterm():
        left = record(store, cells, attempt, say(), most=1 if once else None)
    if once:
        raise typer.Exit(MORE_IS_LEFT if left else 0)


def say() -> Callable[[str], None]:
    from latdoctor.cli.screen import notice_console

    notices = notice_console()
    return lambda text: notices.print(text, soft_wrap=True)
