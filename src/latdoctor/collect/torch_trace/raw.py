"""The bytes of a trace, piece by piece: plain or gzip (told by the content, not by the name), bounded in size."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
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


def pieces(content: bytes | Path, where: str, *, size: int = PIECE, limit: int = MAX_BYTES) -> Iterator[bytes]:
    """The decompressed content in pieces of about `size` bytes.

    Raises SourceError where the file cannot be read, its compressed data is cut off or damaged, or more than `limit`
    bytes come out of it.
    """
    total = 0
    try:
        with ExitStack() as files:
            stream = _opened(content, files)
            while piece := stream.read(size):
                total += len(piece)
                if total > limit:
                    raise _too_large(where, limit)
                yield piece
    except EOFError as error:
        raise SourceError(
            "the compressed data is cut off: the end of the file is missing", where=where, next_step=RECORD_AGAIN
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(
            f"the compressed data is damaged after {total} bytes of content", where=where, next_step=RECORD_AGAIN
        ) from error
    except OSError as error:
        raise SourceError(
            f"cannot be read: {error.strerror}", where=where, next_step="check path and rights"
        ) from error


def _opened(content: bytes | Path, files: ExitStack) -> IO[bytes]:
    raw: IO[bytes] = files.enter_context(io.BytesIO(content) if isinstance(content, bytes) else content.open("rb"))
    magic = raw.read(len(_GZIP))
    raw.seek(0)
    if magic != _GZIP:
        return raw
    return cast(IO[bytes], files.enter_context(gzip.GzipFile(fileobj=raw, mode="rb")))


def _too_large(where: str, limit: int) -> SourceError:
    return SourceError(
        f"more than the {limit >> 20} MiB that are read at most",
        where=where,
        next_step="record a shorter trace: 3 s under load are enough",
    )
