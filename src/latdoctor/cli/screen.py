"""Where things are printed: results on stdout, progress and notices on stderr."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TextIO, cast

from rich.console import Console

from latdoctor.text import fitted

PLAIN_WIDTH = 80
# Blanks before the end of a line; the colour codes among them stay.
_TRAILING = re.compile(r"[ \t](?:[ \t]|\x1b\[[0-9;]*m)*(?=\n|$)")


class _Trimmed(io.TextIOBase):
    """A stream without blanks at the ends of its lines: rich fills up what it wraps."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase has a writable attribute of this name
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        self._stream.write(_TRAILING.sub(lambda match: match[0].replace(" ", "").replace("\t", ""), text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def result_console() -> Console:
    """stdout; without a terminal it is 80 columns wide and without colour (NO_COLOR is honoured by rich)."""
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    stream = cast("IO[str]", _Trimmed(sys.stdout))
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


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


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """A line on stderr, written again and again, of how far something has come; nothing where that is no terminal.

    It needs no thread of its own, so that what takes long may still start processes.
    """
    console = notice_console()
    if not console.is_terminal:
        yield lambda what: None
        return
    told: list[str] = []

    def tell(what: str) -> None:
        told.append(what)
        console.file.write(f"\r{fitted(what, console.width - 1)}\x1b[K")
        console.file.flush()

    try:
        yield tell
    finally:
        if told:
            console.file.write("\r\x1b[K")
            console.file.flush()
