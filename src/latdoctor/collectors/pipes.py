"""Pipes and standard input: read to their end, within bounds of time and size."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from latdoctor.errors import SourceError

STDIN = Path("-")  # what is given for standard input
_CHUNK = 1 << 16
# A writer that never ends (journalctl -f) is read for this many answer times; `look` gives a collector up after more.
_PATIENCE = 3


@dataclass(frozen=True, slots=True)
class StreamContent:
    """The last bytes of a stream, how many there were in all, and why its end was not seen (empty where it was)."""

    content: bytes
    size: int
    unfinished: str = ""


def is_stream(path: Path) -> bool:
    """Is `path` standard input or a pipe (`mkfifo`, or `<(command)` of a shell)?"""
    try:
        return path == STDIN or stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


def shown_name(path: Path) -> str:
    """What a stream is called where a file has its name."""
    return "stdin" if path == STDIN else f"pipe-{path.name}"


def read_stream(path: Path, timeout: float, keep: int, most: int) -> StreamContent:
    """The last `keep` bytes of a stream. Raises SourceError for more than `most` bytes, and where nothing comes.

    Ends where the writer does, or after `timeout` seconds in which nothing came, or a few times that in all.
    """
    with _opened(path) as source:
        return _read(source, timeout, keep, most, shown_name(path))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    if path == STDIN:
        yield _stdin()
        return
    # Without O_NONBLOCK it would wait here for a writer that may never come.
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=shown_name(path)) from error
    try:
        yield source
    finally:
        os.close(source)


def _stdin() -> int:
    """Raises SourceError where there is none, or nobody writes to it."""
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
                    f"nothing came within {timeout:g} s", where=where, next_step="look at the command that writes it"
                )
            return StreamContent(bytes(kept[-keep:]), size, f"nothing more came within {timeout:g} s")
        if not chunk:
            return StreamContent(bytes(kept[-keep:]), size)
        size += len(chunk)
        if size > most:
            raise SourceError(f"brings more than {most >> 20} MiB", where=where, next_step="give the end of it")
        kept += chunk
        if len(kept) > 2 * keep:
            del kept[:-keep]
        if time.monotonic() >= deadline:
            return StreamContent(bytes(kept[-keep:]), size, f"it went on for more than {_PATIENCE * timeout:g} s")


def _next(source: int, patience: float, *, begun: bool) -> bytes | None:
    """The next bytes, empty at the end; None where nothing came within `patience` seconds. Raises OSError."""
    # Of a pipe whose writer had left before it was opened here, select never tells the end, but a read does. Before
    # the first byte, a read would take a writer that is still to come for one that has left.
    if begun and not os.get_blocking(source):
        with suppress(BlockingIOError):
            return os.read(source, _CHUNK)
    ready, _, _ = select.select([source], [], [], patience)
    return os.read(source, _CHUNK) if ready else None
