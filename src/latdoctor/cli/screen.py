"""Where things are printed: results on stdout, progress and notices on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

PLAIN_WIDTH = 80


def result_console() -> Console:
    """stdout; without a terminal it is 80 columns wide and without colour (NO_COLOR is honoured by rich)."""
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def notice_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


@contextmanager
def progress(what: str, *, takes_time: bool = True) -> Iterator[Callable[[Sequence[str]], None]]:
    """Says on stderr who is being waited for: a live line on a terminal, one plain line where it takes time."""
    console = notice_console()
    if not console.is_terminal:
        if takes_time:
            console.print(what)
        yield lambda names: None
        return
    with console.status(what) as status:
        yield lambda names: status.update(f"{what} ({', '.join(names)})")
