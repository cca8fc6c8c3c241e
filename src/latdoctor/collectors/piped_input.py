"""Pipes and standard input, read to their end within limits of time and size."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from latdoctor.errors import SourceError

STDIN = Path("-")  # stands for standard input on the command line
MAX_SPOOLED = 2 << 30  # bytes of a stream that is copied to a file
_CHUNK = 1 << 16
# A writer that never ends (journalctl -f) is read for this many timeouts; the runner abandons a collector after more.
_PATIENCE = 3


@dataclass(frozen=True, slots=True)
class StreamContent:
    """The last bytes of a stream, its total size, and why its end was not reached (empty if it was)."""

    content: bytes
    size: int
    unfinished: str = ""


def is_stream(path: Path) -> bool:
    """Whether `path` is standard input or a pipe (`mkfifo`, or `<(command)` of a shell)."""
    try:
        return path == STDIN or stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


def shown_name(path: Path) -> str:
    """Display name of a stream."""
    return "stdin" if path == STDIN else f"pipe-{path.name}"


_SPOOLED: dict[Path, str] = {}


def spool(path: Path, folder: Path, timeout: float) -> Path:
    """Copy a stream to a file in `folder`, so that its kind can be recognised before it is read.

    Raises SourceError as read_stream does.
    """
    name = shown_name(path)
    copy = folder / name
    with copy.open("wb") as file:
        copy_stream(path, timeout, file.write, MAX_SPOOLED)
    _SPOOLED[copy] = name
    return copy


def display(path: Path) -> str:
    """How a file or stream is called in evidence and messages: its path, or `stdin` for what was piped in."""
    return shown_name(path) if is_stream(path) else _SPOOLED.get(path, str(path))


def read_stream(path: Path, timeout: float, keep: int, most: int) -> StreamContent:
    """Read the last `keep` bytes of a stream. Raises SourceError for more than `most` bytes or no data at all.

    Stops at the end of the stream, after `timeout` seconds without data, or after _PATIENCE times that in total.
    """
    with _opened(path) as source:
        return _read(source, timeout, keep, most, shown_name(path))


def copy_stream(path: Path, timeout: float, write: Callable[[bytes], object], most: int) -> StreamContent:
    """Pass all of a stream to `write`, piece by piece; the result has no content. Raises SourceError as read_stream."""
    with _opened(path) as source:
        size, unfinished = _pass_on(source, timeout, write, most, shown_name(path))
    return StreamContent(b"", size, unfinished)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    if path == STDIN:
        yield _stdin()
        return
    # Without O_NONBLOCK, opening would block until a writer connects.
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=shown_name(path)) from error
    try:
        yield source
    finally:
        os.close(source)


def _stdin() -> int:
    """Return the descriptor of standard input. Raises SourceError if it is closed or a terminal."""
    piped = "pipe something into it: dmesg | latdoctor diagnose --log -"
    try:
        source = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError) as error:
        raise SourceError("standard input is closed", where="stdin", next_step=piped) from error
    if os.isatty(source):
        raise SourceError("standard input is the keyboard", where="stdin", next_step=piped)
    return source


def _read(source: int, timeout: float, keep: int, most: int, where: str) -> StreamContent:
    kept = bytearray()

    def hold(chunk: bytes) -> None:
        nonlocal kept
        kept += chunk
        if len(kept) > 2 * keep:
            del kept[:-keep]

    size, unfinished = _pass_on(source, timeout, hold, most, where)
    return StreamContent(bytes(kept[-keep:]), size, unfinished)


def _pass_on(source: int, timeout: float, write: Callable[[bytes], object], most: int, where: str) -> tuple[int, str]:
    """Pass on what can be read; the number of bytes, and why the end was not reached (empty if it was)."""
    size = 0
    deadline = time.monotonic() + _PATIENCE * timeout
    while True:
        patience = min(timeout, deadline - time.monotonic())
        try:
            chunk = _next(source, max(0.0, patience), begun=size > 0)
        except BlockingIOError:  # another reader of the pipe was quicker
            continue
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}", where=where) from error
        if chunk is None:
            if not size:
                raise SourceError(
                    f"no data within {timeout:g} s", where=where, next_step="check the command that writes to it"
                )
            return size, f"no more data within {timeout:g} s"
        if not chunk:
            return size, ""
        size += len(chunk)
        if size > most:
            raise SourceError(f"is longer than {most >> 20} MiB", where=where, next_step="pass only its end")
        write(chunk)
        if time.monotonic() >= deadline:
            return size, f"it did not end within {_PATIENCE * timeout:g} s"


def _next(source: int, patience: float, *, begun: bool) -> bytes | None:
    """Return the next bytes, empty at the end; None if there are none within `patience` seconds. Raises OSError."""
    # If the writer closed the pipe before it was opened here, select never signals the end, but a read does. Before
    # the first byte, a read could not distinguish a writer that is still to connect from one that has closed.
    if begun and not os.get_blocking(source):
        with suppress(BlockingIOError):
            return os.read(source, _CHUNK)
    ready, _, _ = select.select([source], [], [], patience)
    return os.read(source, _CHUNK) if ready else None
