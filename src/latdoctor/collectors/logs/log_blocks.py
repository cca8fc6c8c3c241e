"""The text of a log as blocks of whole lines, in bounded memory: files and bytes, packed or not, in any encoding."""

from __future__ import annotations

import codecs
import io
import itertools
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from latdoctor.collectors.logs.formats import encoding_of

BLOCK = 1 << 20  # bytes
LONGEST_LINE = (1 << 20) + 1  # bytes that are kept of a line
_SAMPLE = 2 << 20
_PACKED = 1 << 14  # packed bytes per read: at most this much is lost before damaged data
_GZIP = b"\x1f\x8b"


def blocks(content: bytes | Path) -> Iterator[bytes]:
    """The log in UTF-8, without byte order marks and zeros, in blocks that end behind a line. Raises OSError."""
    with ExitStack() as stack:
        file: IO[bytes] = io.BytesIO(content) if isinstance(content, bytes) else stack.enter_context(content.open("rb"))
        yield from _whole_lines(_decoded(iter(lambda: file.read(BLOCK), b"")))


def head(content: bytes | Path) -> bytes:
    """The first block. Raises OSError."""
    return next(blocks(content), b"")


def sample(path: Path) -> bytes:
    """The beginning, the middle and the end of a file, cut at lines. Raises OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= 3 * _SAMPLE:
            return file.read()
        parts = [file.read(_SAMPLE).rpartition(b"\n")[0]]
        for start in (size // 2, size - _SAMPLE):
            file.seek(start)
            part = file.read(_SAMPLE).partition(b"\n")[2]
            parts.append(part if start > size // 2 else part.rpartition(b"\n")[0])
    return b"\n".join(parts)


def unpacked(file: IO[bytes], most: int = BLOCK) -> Iterator[bytes | str]:
    """Yield the content of a gzip file in pieces; a string at the end means that it is truncated or damaged."""
    unpacker = zlib.decompressobj(wbits=31)
    pending = file.read(_PACKED)
    while pending:
        try:
            piece = unpacker.decompress(pending, most)
        except zlib.error:
            yield "its end could not be read: the gzip data is damaged"
            return
        yield piece
        pending = unpacker.unconsumed_tail
        if unpacker.eof:  # a gzip file may have several members, followed by zero padding
            pending = (unpacker.unused_data or file.read(_PACKED)).lstrip(b"\0")
            if pending:
                unpacker = zlib.decompressobj(wbits=31)
        elif not pending:
            pending = file.read(_PACKED)
    if not unpacker.eof:
        yield "its end could not be read: the gzip file is truncated"


def _decoded(raw: Iterator[bytes]) -> Iterator[bytes]:
    first = next(raw, b"")
    encoding = encoding_of(first)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    for block in itertools.chain([first], raw):
        text = decoder.decode(block).encode("utf-8", "replace") if decoder else block
        yield text.replace(b"\0", b"") if b"\0" in text else text


def _whole_lines(raw: Iterator[bytes]) -> Iterator[bytes]:
    """Cut behind lines; of a line longer than LONGEST_LINE the rest is left out."""
    rest = b""
    for block in raw:
        found = rest + block if rest else block
        end = found.rfind(b"\n") + 1
        if end:
            yield _shortened(found[:end])
            rest = found[end:]
        else:
            rest = found
        if len(rest) > LONGEST_LINE:
            rest = rest[:LONGEST_LINE]
    if rest:
        yield rest


def _shortened(lines: bytes) -> bytes:
    """Only the first line can be too long: it may have begun in an earlier block."""
    first = lines.find(b"\n")
    return lines if first <= LONGEST_LINE else lines[:LONGEST_LINE] + lines[first:]
