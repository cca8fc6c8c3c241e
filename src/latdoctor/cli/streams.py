"""What is printed may find nobody: `| head`, a full disk, a closed descriptor. None of that is a traceback.

A reader who has gone has seen enough: the rest is dropped and the command keeps its exit code. Any other failure to
write the answer is an error of ours, told on stderr.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from latdoctor.errors import OperationError


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
