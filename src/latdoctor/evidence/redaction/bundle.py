"""A whole bundle redacted on its way in: its artifacts, and the texts of its manifest."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO

from msgspec import structs

from latdoctor.decompression import unpacked_limit
from latdoctor.errors import BundleError
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.bundle import Artifact, Bundle, Redaction
from latdoctor.evidence.model import Gap, Origin
from latdoctor.evidence.redaction.encodings import GZIP, HEAD, decoded, encoded, encoding, is_binary
from latdoctor.evidence.redaction.redactor import Redactor, Stream, pieces
from latdoctor.evidence.redaction.sqlite import is_database
from latdoctor.gap_code import GapCode

# Numbers of the machine and its GPUs, gathered by ourselves file by file: they hold no text of anybody.
_OWN_NUMBERS = ("nvml", "host")
_BLOCK = 1 << 20
_UNPACKED = 4 << 30  # of a compressed file; less for one that is compressed more than any log or trace
_LONGEST = 1 << 22  # a line longer than this is cut behind a comma


class _UnpacksTooLargeError(BundleError):
    """Compressed data that unpack to more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        what = f"it unpacks to more than {limit >> 20} MiB"
        super().__init__(what, next_step="unpack it, and pass the part that covers the incident")


def redacted(bundle: Bundle, redactor: Redactor) -> Bundle:
    """`bundle` with everything redacted that is in memory; files are redacted where they are copied (`copied`, and
    `redact_database` for databases).

    What cannot be looked into (a pickle, a damaged database) stays as it is, and `Bundle.redaction` names it. What
    unpacks to too much is left out, with a gap.
    """
    unread: list[str] = []
    gaps = list(bundle.gaps)
    artifacts = []
    for artifact in bundle.artifacts:
        content = artifact.content
        name = redactor.addresses(artifact.name)
        if artifact.collector not in _OWN_NUMBERS:
            if not _can_be_read(content):
                unread.append(name)
            elif isinstance(content, bytes):
                try:
                    content = b"".join(_through(io.BytesIO(content), redactor))
                except _UnpacksTooLargeError as error:
                    gaps.append(_left_out(artifact, error))
                    continue
        group, source = redactor.addresses(artifact.group), redactor.text(artifact.source)
        artifacts.append(replace(artifact, name=name, group=group, source=source, content=content))
    remembered = bundle.baseline and _baseline(bundle.baseline, redactor)
    return replace(
        bundle,
        context=replace(bundle.context, target=redactor.text(bundle.context.target)),
        artifacts=tuple(artifacts),
        gaps=tuple(_gap(gap, redactor) for gap in gaps),
        baseline=remembered,
        redaction=Redaction(dict(redactor.counts), tuple(unread)),
    )


def copied(artifact: Artifact, source: IO[bytes], redactor: Redactor) -> Iterator[bytes]:
    """The blocks of a file as they are kept. One that cannot be looked into stays as it is.

    Raises BundleError, while they are read, where the file unpacks to too much.
    """
    head = source.read(HEAD)
    source.seek(0)
    if artifact.collector in _OWN_NUMBERS or is_binary(head):
        return iter(lambda: source.read(_BLOCK), b"")
    return _through(source, redactor)


def _can_be_read(content: bytes | Path) -> bool:
    if isinstance(content, bytes):
        return not is_binary(content[:HEAD])
    if is_database(content):  # whether it can be copied without its texts is known once that is done
        return True
    with content.open("rb") as file:
        return not is_binary(file.read(HEAD))


def _through(source: IO[bytes], redactor: Redactor) -> Iterator[bytes]:
    head = source.read(len(GZIP))
    limit = unpacked_limit(source.seek(0, io.SEEK_END), _UNPACKED)
    source.seek(0)
    blocks = iter(lambda: source.read(_BLOCK), b"")
    if head != GZIP:
        yield from _redacted(blocks, redactor)
        return
    packer = zlib.compressobj(level=3, wbits=31)
    for piece in _redacted(_unpacked(blocks, limit), redactor):
        yield packer.compress(piece)
    yield packer.flush()


def _redacted(blocks: Iterator[bytes], redactor: Redactor) -> Iterator[bytes]:
    """The text of `blocks`, which may be of UTF-16, redacted in the encoding that it has."""
    first = next(blocks, b"")
    wide = encoding(first[:HEAD])
    stream = Stream(redactor)
    whole = chain((first,), blocks)
    for piece in pieces(decoded(whole, wide) if wide else whole, _LONGEST):
        made = stream.content(piece)
        yield encoded(made, wide) if wide else made


def _unpacked(blocks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """The content of gzip data, block by block. Damaged data end it: what comes behind could not be redacted.

    Raises _UnpacksTooLargeError where it is more than `limit` bytes.
    """
    unpacker, left = zlib.decompressobj(wbits=31), limit
    for block in blocks:
        pending = block
        while pending:
            try:
                piece = unpacker.decompress(pending, _BLOCK)
            except zlib.error:
                return
            left -= len(piece)
            if left < 0:
                raise _UnpacksTooLargeError(limit)
            if piece:
                yield piece
            pending = unpacker.unconsumed_tail
            if unpacker.eof:
                pending = unpacker.unused_data.lstrip(b"\0")
                unpacker = zlib.decompressobj(wbits=31)


def _left_out(artifact: Artifact, error: _UnpacksTooLargeError) -> Gap:
    reason = f"{artifact.source}: {error.what}"
    return Gap(artifact.collector, reason, next_step=error.next_step, code=GapCode.TOO_LARGE)


def _gap(gap: Gap, redactor: Redactor) -> Gap:
    origin = gap.origin and Origin(redactor.addresses(gap.origin.artifact), redactor.text(gap.origin.place))
    subject = None if gap.subject is None else redactor.addresses(gap.subject)
    return structs.replace(
        gap, reason=redactor.text(gap.reason), subject=subject, next_step=redactor.text(gap.next_step), origin=origin
    )


def _baseline(remembered: Baseline, redactor: Redactor) -> Baseline:
    """Its subjects are named as those of the artifacts, so that they still meet."""
    values = tuple(structs.replace(row, subject=redactor.addresses(row.subject)) for row in remembered.values)
    return structs.replace(remembered, target=redactor.text(remembered.target), values=values)
