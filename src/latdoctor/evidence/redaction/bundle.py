"""A whole bundle redacted on its way in: its artifacts, and the texts of its manifest."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from msgspec import structs

from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.bundle import Artifact, Bundle, Redaction
from latdoctor.evidence.model import Gap, Origin
from latdoctor.evidence.redaction.redactor import Redactor, pieces
from latdoctor.evidence.redaction.sqlite import is_database

# Numbers of the machine and its GPUs, gathered by ourselves file by file: they hold no text of anybody.
_OWN_NUMBERS = ("nvml", "host")
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20
_LONGEST = 1 << 22  # a line longer than this is cut behind a comma
_HEAD = 8192
_CONTROL = bytes([*range(1, 9), *range(14, 27), 28, 29, 31])


def redacted(bundle: Bundle, redactor: Redactor) -> Bundle:
    """`bundle` with everything redacted that is in memory; files are redacted where they are copied (`copied`, and
    `redact_database` for databases).

    What cannot be looked into (a pickle, a damaged database) stays as it is, and `Bundle.redaction` names it.
    """
    unread: list[str] = []
    artifacts = []
    for artifact in bundle.artifacts:
        content = artifact.content
        name = redactor.addresses(artifact.name)
        if artifact.collector not in _OWN_NUMBERS:
            if not _can_be_read(content):
                unread.append(name)
            elif isinstance(content, bytes):
                content = b"".join(_through(io.BytesIO(content), redactor))
        group, source = redactor.addresses(artifact.group), redactor.text(artifact.source)
        artifacts.append(replace(artifact, name=name, group=group, source=source, content=content))
    remembered = bundle.baseline and _baseline(bundle.baseline, redactor)
    return replace(
        bundle,
        context=replace(bundle.context, target=redactor.text(bundle.context.target)),
        artifacts=tuple(artifacts),
        gaps=tuple(_gap(gap, redactor) for gap in bundle.gaps),
        baseline=remembered,
        redaction=Redaction(dict(redactor.counts), tuple(unread)),
    )


def copied(artifact: Artifact, source: IO[bytes], redactor: Redactor) -> Iterator[bytes]:
    """The blocks of a file as they are kept. One that cannot be looked into stays as it is."""
    head = source.read(_HEAD)
    source.seek(0)
    if artifact.collector in _OWN_NUMBERS or _is_binary(head):
        return iter(lambda: source.read(_BLOCK), b"")
    return _through(source, redactor)


def _can_be_read(content: bytes | Path) -> bool:
    if isinstance(content, bytes):
        return not _is_binary(content[:_HEAD])
    if is_database(content):  # whether it can be copied without its texts is known once that is done
        return True
    with content.open("rb") as file:
        return not _is_binary(file.read(_HEAD))


def _is_binary(head: bytes) -> bool:
    """Neither text nor gzip: zeros in it, or over 5 % control characters (a pickle, a database)."""
    if head.startswith(_GZIP):
        return False
    return b"\0" in head or len(head) - len(head.translate(None, delete=_CONTROL)) > 0.05 * len(head)


def _through(source: IO[bytes], redactor: Redactor) -> Iterator[bytes]:
    head = source.read(len(_GZIP))
    source.seek(0)
    blocks = iter(lambda: source.read(_BLOCK), b"")
    if head != _GZIP:
        for piece in pieces(blocks, _LONGEST):
            yield redactor.content(piece)
        return
    packer = zlib.compressobj(level=3, wbits=31)
    for piece in pieces(_unpacked(blocks), _LONGEST):
        yield packer.compress(redactor.content(piece))
    yield packer.flush()


def _unpacked(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The content of gzip data, block by block. Damaged data end it: what comes behind could not be redacted."""
    unpacker = zlib.decompressobj(wbits=31)
    for block in blocks:
        pending = block
        while pending:
            try:
                piece = unpacker.decompress(pending, _BLOCK)
            except zlib.error:
                return
            if piece:
                yield piece
            pending = unpacker.unconsumed_tail
            if unpacker.eof:
                pending = unpacker.unused_data.lstrip(b"\0")
                unpacker = zlib.decompressobj(wbits=31)


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
