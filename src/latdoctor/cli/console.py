"""Output streams and consoles: results on stdout, notices and progress on stderr.

A closed pipe (`| head`) ends the output silently and keeps the exit code. Any other failure to write the answer, such
as a full disk, is an OperationError rather than a traceback.
"""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, TextIO, cast

import typer

from latdoctor.errors import OperationError
from latdoctor.sanitize import fitted

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 80
# Blanks before the end of a line; the colour codes among them stay.
_TRAILING = re.compile(r"[ \t](?:[ \t]|\x1b\[[0-9;]*m)*(?=\n|$)")


class _Trimmed(io.TextIOBase):
    """A stream that drops blanks at the ends of lines: rich pads the lines it wraps."""

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
    """stdout; without a terminal, 80 columns wide and without colour (rich honours NO_COLOR)."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    stream = cast("IO[str]", _Trimmed(sys.stdout))
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def notice_console() -> Console:
    """stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


@contextmanager
def progress(what: str, *, takes_time: bool = True) -> Iterator[Callable[[Sequence[str]], None]]:
    """Shows on stderr which sources are pending: a live line on a terminal, else one plain line if it takes time."""
    console = notice_console()
    if not console.is_terminal:
        if takes_time:
            console.print(what)
        yield lambda names: None
        return
    with console.status(what) as status:
        yield lambda names: status.update(f"{what} ({', '.join(names)})")


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A line on stderr that is rewritten with each step; nothing without a terminal.

    It needs no thread of its own, so that the work may still start processes.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    console, written = notice_console(), False

    def rewrite(text: str) -> None:
        nonlocal written
        written = True
        console.file.write(f"\r{fitted(text, console.width - 1)}\x1b[K")
        console.file.flush()

    try:
        yield rewrite
    finally:
        if written:
            console.file.write("\r\x1b[K")
            console.file.flush()


_NARROWEST = 20  # columns


def notice(text: str, *, hang: int = 2) -> None:
    """Prints `text`, one line of clean text, on stderr; on a terminal it is wrapped with an indent of `hang` columns.

    A long word, such as a path, is not broken, so that it can be copied whole.
    """
    if sys.stderr.isatty():
        width = max(_NARROWEST, notice_console().width)
        text = "\n".join(
            textwrap.wrap(text, width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
        )
    typer.echo(text, err=True)


_noticed: set[str] = set()


def notice_once(text: str) -> None:
    """As `notice`, but a repetition within one command is not printed."""
    if text not in _noticed:
        _noticed.add(text)
        notice(text)


class TolerantStream(io.TextIOBase):
    """A stream that survives a closed pipe. `patient`: other failures to write are ignored as well."""

    def __init__(self, stream: TextIO, *, patient: bool = False) -> None:
        self._stream = stream
        self._patient = patient
        self._gone = False

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase has a writable attribute of this name
        return self._stream.encoding or "utf-8"

    @property
    def gone(self) -> bool:
        """Whether the reader has closed the pipe: an endless command ends then."""
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
        """Raises OperationError unless the stream is patient or the reader closed the pipe."""
        self._gone = True
        _into_nothing(self._stream)
        if not (self._patient or isinstance(error, BrokenPipeError)):
            raise OperationError(
                f"the output could not be written: {error.strerror}", next_step="write it to another place"
            ) from error


def _into_nothing(stream: TextIO) -> None:
    """Redirects the stream to /dev/null, so that Python's own last flush cannot fail."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return  # a stream without a descriptor, as in tests
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def install_streams() -> bool:
    """Makes both streams tolerant; False if stdout was closed before the command began.

    A closed descriptor is opened to /dev/null: otherwise the first file that is opened would get its number.
    """
    _noticed.clear()
    out, err = sys.stdout, sys.stderr
    # Characters that the encoding lacks are replaced: a partly readable answer is better than none.
    for stream in (out, err):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.stdout = TolerantStream(out if out is not None else _nowhere())
    sys.stderr = TolerantStream(err if err is not None else _nowhere(), patient=True)
    return out is not None


def _nowhere() -> TextIO:
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # the closed descriptor is taken first
    return os.fdopen(descriptor, "w", encoding="utf-8")
