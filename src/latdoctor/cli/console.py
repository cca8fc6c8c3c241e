"""What is printed may find nobody: `| head`, a full disk, a closed descriptor. None of that is a traceback.

A reader who has gone has seen enough: the rest is dropped and the command keeps its exit code. Any other failure to
write the answer is an error of ours, told on stderr.
"""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TextIO, cast

import typer
from rich.console import Console

from latdoctor.errors import OperationError
from latdoctor.sanitize import fitted

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


_NARROWEST = 20  # columns


def say(text: str, *, hang: int = 2) -> None:
    """Prints `text`, one line of clean text; what does not fit into the terminal's width goes on `hang` columns in.

    A long word, such as a path, is not broken: it is copied whole.
    """
    if sys.stderr.isatty():
        text = "\n".join(
            textwrap.wrap(text, _width(), subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
        )
    typer.echo(text, err=True)


def _width() -> int:
    # Imported here: an error must be told without loading what draws tables, where it is told to a program.
    pass  # import of a merged module

    return max(_NARROWEST, notice_console().width)


class Output(io.TextIOBase):
    """A stream that outlives its reader. `patient`: failures other than a gone reader are dropped as well."""

    def __init__(self, stream: TextIO, *, patient: bool = False) -> None:
        self._stream = stream
        self._patient = patient
        self._gone = False

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase has a writable attribute of this name
        return self._stream.encoding or "utf-8"

    @property
    def gone(self) -> bool:
        """Whether nobody reads any more: what goes on for ever ends then."""
        return self._gone

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("only text is printed")  # as of any text stream: click tries it out with bytes
        if text and not self._gone:
            try:
                self._stream.write(text)
            except OSError as error:
                self._lost(error)
        return len(text)

    def flush(self) -> None:
        if not self._gone:
            try:
                self._stream.flush()
            except OSError as error:
                self._lost(error)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _lost(self, error: OSError) -> None:
        """Raises OperationError where it matters that nothing arrived."""
        self._gone = True
        _into_nothing(self._stream)
        if not (self._patient or isinstance(error, BrokenPipeError)):
            raise OperationError(
                f"the output could not be written: {error.strerror}", next_step="write it to another place"
            ) from error


def _into_nothing(stream: TextIO) -> None:
    """What the stream still holds goes nowhere, so that Python's own last flush has nothing to complain of."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return  # a stream without a descriptor, as in tests
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def prepare() -> bool:
    """Puts both streams into such Outputs; False where stdout was closed before the command began.

    A closed descriptor is opened to nowhere, or the first file that is opened would take its number.
    """
    out, err = sys.stdout, sys.stderr
    # Characters that the encoding lacks are shown as marks: an answer with a mark is better than none.
    for stream in (out, err):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.stdout = Output(out if out is not None else _nowhere())
    sys.stderr = Output(err if err is not None else _nowhere(), patient=True)
    return out is not None


def _nowhere() -> TextIO:
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # it takes the closed one's place
    return os.fdopen(descriptor, "w", encoding="utf-8")
