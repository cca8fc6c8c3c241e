"""Where a log comes from: a file, a packed file or a stream, in bounded memory.

A long file is read where it is. What must be unpacked, or can be read only once, is copied to a temporary file of this
process if it is long. Of a log longer than MAX_READ only the end is read.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from latdoctor.collectors import piped_input
from latdoctor.collectors.logs import formats, log_blocks
from latdoctor.decompression import unpacked_limit
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode

MAX_READ = 4 << 30  # only the end of a longer log is read
MAX_END = 64 << 20  # of it
MAX_UNPACKED = 2 << 30  # limit of a .gz file or a stream; less for a .gz file that is compressed more than any log
IN_MEMORY = 4 << 20  # what is longer stays in a file

# Suffixes of incomplete artifacts, so that a replay recognises them.
PART = ".part"  # its end
TAIL = ".tail"  # its beginning
_GZIP = b"\x1f\x8b"
CHECK_PATH = "check the path of --log"


@dataclass(frozen=True, slots=True)
class LogSource:
    """The content of a log. `lacks` is PART or TAIL if it is incomplete, and `missing` says what is missing."""

    content: bytes | Path
    lacks: str = ""
    missing: str = ""
    code: GapCode = GapCode.UNSPECIFIED

    def sample(self) -> bytes:
        """What recognises its kind: all of a short log, else parts of it. Raises OSError."""
        return self.content if isinstance(self.content, bytes) else log_blocks.sample(self.content)


def read(path: Path, timeout: float) -> LogSource:
    """Open the log at `path`, unpacked. Raises OSError, and SourceError for anything but a log."""
    if piped_input.is_stream(path):
        return _read_stream(path, timeout)
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "does not exist"
        raise SourceError(reason, where=str(path), next_step=CHECK_PATH)
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if packed:
            return _read_packed(file, path)
        size = path.stat().st_size
        if IN_MEMORY < size <= MAX_READ:
            return LogSource(path)
        return _end_of(file, size, MAX_READ)


def _read_stream(path: Path, timeout: float) -> LogSource:
    with _Spool(path, "stream") as spool:
        found = piped_input.copy_stream(path, timeout, spool.write, MAX_UNPACKED)
        if spool.head.startswith(_GZIP):
            with spool.reopened() as file:
                return _read_packed(file, path)
        raw = spool.finished()
    if not found.unfinished:
        return raw
    lost = f"; {raw.missing}" if raw.missing else ""
    return LogSource(raw.content, PART, f"incomplete: {found.unfinished}{lost}", GapCode.TIMEOUT)


def _read_packed(file: IO[bytes], path: Path) -> LogSource:
    broken = ""
    limit = unpacked_limit(file.seek(0, io.SEEK_END), MAX_UNPACKED)
    file.seek(0)
    with _Spool(path, "unpacked") as spool:
        for chunk in log_blocks.unpacked(file):
            if isinstance(chunk, str):
                broken = chunk
                break
            spool.write(chunk)
            if spool.size > limit:
                raise SourceError(
                    f"unpacks to more than {limit >> 20} MiB: unpack it and pass its end", code=GapCode.TOO_LARGE
                )
        raw = spool.finished()
    return LogSource(raw.content, PART, broken, GapCode.UNREADABLE) if broken else raw


class _Spool:
    """Bytes that arrive in pieces: in memory if they are few, else in a file that lives as long as this process."""

    def __init__(self, origin: Path, kind: str) -> None:
        self._origin = origin
        self._kind = kind
        self._held = bytearray()
        self._file: IO[bytes] | None = None
        self._stack = ExitStack()
        self._path: Path | None = None
        self.size = 0

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._file is not None:
            self._file.write(piece)
            return
        self._held += piece
        if len(self._held) > IN_MEMORY:
            # A log that is read again, as by --watch, replaces its copy.
            name = hashlib.sha256(f"{self._kind}{self._origin}".encode("utf-8", "replace")).hexdigest()
            self._path = _scratch() / name
            self._file = self._stack.enter_context(self._path.open("wb"))
            self._file.write(self._held)
            del self._held[2:]

    @property
    def head(self) -> bytes:
        """The first two bytes."""
        return bytes(self._held[:2])

    def reopened(self) -> IO[bytes]:
        """What was written, to be read."""
        if self._path is None or self._file is None:
            return io.BytesIO(bytes(self._held))
        self._file.flush()
        return self._path.open("rb")

    def finished(self) -> LogSource:
        """The log that was written."""
        if self._path is not None and self.size <= MAX_READ:
            self._stack.close()
            return LogSource(self._path)
        with self.reopened() as file:
            return _end_of(file, self.size, MAX_READ)


@cache
def _scratch() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="latdoctor-logs-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _end_of(file: IO[bytes], size: int, most: int) -> LogSource:
    """The last `most` bytes of a log, from its first complete line on. Raises SourceError if it is no log."""
    file.seek(0)
    if size <= most:
        return LogSource(file.read(most + 1))
    formats.form_of(formats.decoded(file.read(formats.HEAD)), "")  # the end alone no longer identifies its type
    kept = min(most, MAX_END)
    file.seek(size - kept)
    content = file.read(kept)
    return LogSource(content[content.find(b"\n") + 1 :], TAIL, _only_the_end(len(content), size), GapCode.TOO_LARGE)


def _only_the_end(kept: int, size: int) -> str:
    return (
        f"only the last {kept >> 20} MiB of {size >> 20} MiB were read, so events may be in the rest; line numbers "
        "count from there"
    )
