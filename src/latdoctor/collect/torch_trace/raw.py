"""The bytes of a trace, a window of them at a time: plain or gzip (told by the content), bounded in size."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

from latdoctor.errors import SourceError

# Measured: pieces of 2 to 4 MB are read fastest, larger ones fall out of the processor's cache.
PIECE = 2 << 20
# What is read at most after decompression: ten million events are about 2.8 GB, and a gzip bomb ends here.
MAX_BYTES = 4 << 30
_GZIP = b"\x1f\x8b"

RECORD_AGAIN = "copy the file again once the profiler has finished writing it, or record the trace again"


class Source:
    """The decompressed content from byte `start` on. Opened by the first read, to be closed after the last."""

    def __init__(self, content: bytes | Path, where: str, *, start: int = 0, limit: int = MAX_BYTES) -> None:
        self._content, self._where, self._start, self._limit = content, where, start, limit
        self._files = ExitStack()
        self._stream: IO[bytes] | None = None
        self._total = 0

    def close(self) -> None:
        self._files.close()

    def read_into(self, room: memoryview) -> int:
        """How many bytes were put into `room`; 0 at the end.

        Raises SourceError where the file cannot be read, its compressed data is cut off or damaged, or more than the
        limit comes out of it.
        """
        try:
            self._stream = self._stream or self._opened()
            count: int = self._stream.readinto(room)  # type: ignore[attr-defined]  # every binary stream has it
        except EOFError as error:
            raise self._problem("the compressed data is cut off: the end of the file is missing") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise self._problem(f"the compressed data is damaged after {self._total} bytes of content") from error
        except OSError as error:
            raise self._problem(f"cannot be read: {error.strerror}", "check path and rights") from error
        self._total += count
        if self._total > self._limit:
            raise _too_large(self._where, self._limit)
        return count

    def _opened(self) -> IO[bytes]:
        content = self._content
        opened = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb", buffering=0)
        raw = cast(IO[bytes], self._files.enter_context(opened))
        magic = raw.read(len(_GZIP))
        raw.seek(self._start)
        if not is_packed(magic):
            return raw
        return cast(IO[bytes], self._files.enter_context(gzip.GzipFile(fileobj=raw, mode="rb")))

    def _problem(self, what: str, next_step: str = RECORD_AGAIN) -> SourceError:
        return SourceError(what, where=self._where, next_step=next_step)


def is_packed(beginning: bytes) -> bool:
    return beginning.startswith(_GZIP)


class Window:
    """A stretch of the content in one buffer that is used again and again: what lies between `begin` and `end`.

    The byte before `begin` is free to be written. New memory for every piece would cost as much time as parsing it.
    """

    def __init__(self, source: Source, piece: int) -> None:
        self._source, self._piece = source, piece
        self.buffer = bytearray(1)
        self.begin = self.end = 1
        self.complete = False  # nothing follows what is here

    def __len__(self) -> int:
        return self.end - self.begin

    def __bytes__(self) -> bytes:
        return bytes(memoryview(self.buffer)[self.begin : self.end])

    def fill(self, more_than: int) -> None:
        """Reads on until more than so many bytes are here, or all."""
        while len(self) <= more_than and not self.complete:
            self._make_room(max(self._piece, more_than + 1 - len(self)))
            room = memoryview(self.buffer)[self.end :]
            count = self._source.read_into(room[: self._piece])
            self.complete = count == 0
            self.end += count

    def drop(self) -> None:
        """Forgets what is here."""
        self.begin = self.end = 1

    def _make_room(self, room: int) -> None:
        size = len(self)
        if self.end + room <= len(self.buffer):
            return
        kept = bytes(self)
        if 1 + size + room > len(self.buffer):
            self.buffer = bytearray(1 + size + room)
        self.buffer[1 : 1 + size] = kept
        self.begin, self.end = 1, 1 + size


def _too_large(where: str, limit: int) -> SourceError:
    return SourceError(
        f"more than the {limit >> 20} MiB that are read at most",
        where=where,
        next_step="record a shorter trace: 3 s under load are enough",
    )
