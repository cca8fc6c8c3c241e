"""One large plain trace read by two processes, each a half.

Where the second half begins is a guess: a place in the middle that looks like the border between two events. It is
proven when the strict parse of the first half ends exactly there; if it does not, what the second process read is
thrown away, and the first reads on. So the result never depends on the guess.
"""

from __future__ import annotations

import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
import numpy as np

from latdoctor.collect.torch_trace import raw as trace_bytes
from latdoctor.collect.torch_trace.children import Child, processors
from latdoctor.collect.torch_trace.columns import Columns
from latdoctor.collect.torch_trace.counts import Counts
from latdoctor.collect.torch_trace.kineto import KinetoReader
from latdoctor.collect.torch_trace.names import Names
from latdoctor.collect.torch_trace.spool import Spool, Written

if TYPE_CHECKING:
    from latdoctor.collect.torch_trace.spool import Numbers

LARGE = 64 << 20  # bytes; below, a second process costs more than it saves
_LOOKED_AT = 1 << 20  # bytes in which the border is looked for
# Measured: the child writes all its rows out before it ends, and the parent loads the analysis meanwhile.
_SHARE = 0.5
_BORDER = re.compile(rb'\}\s*,(?=\s*\{\s*"(?:ph|cat|name|pid|tid|ts|args)"\s*:)')


class _Part(msgspec.Struct):
    """What was read of a part of a trace; the rows lie in files."""

    counts: Counts
    names: tuple[list[str], ...]  # see _names
    rows: tuple[list[Written], ...]  # see _spools
    events: int
    damaged: int
    base_time: float | None
    tail_unread: bool


_DECODER = msgspec.msgpack.Decoder(_Part)


class SecondHalf:
    """The rest of a trace from `start` on, being read by a child."""

    def __init__(self, path: Path, where: str, start: int, opened: ExitStack) -> None:
        self.start = start
        self._files: list[IO[bytes]] = [
            opened.enter_context(tempfile.TemporaryFile(prefix="latdoctor-"))  # noqa: SIM115 — closed with `opened`
            for _ in range(4)
        ]
        self._child = opened.enter_context(Child(lambda: _read(path, where, start, self._files)))

    def merge_into(self, columns: Columns, reader: KinetoReader) -> bool:
        """Adds what the child read to what `reader` has read into `columns`; false, and nothing is added, where the
        child failed or found damage: then the one that knows how many events went before must read it.
        """
        answer = self._child.answer()
        if answer is None:
            return False
        part = _DECODER.decode(answer)
        if part.damaged:  # what it says of damage counts events from its own beginning
            return False
        kernels, calls, operators, devices, threads = (
            names.renumbered(listed) for names, listed in zip(_names(columns), part.names, strict=True)
        )
        nothing = np.zeros(1, np.int32)
        numbers = (
            (kernels, _places(devices, 4)),
            (calls, nothing),
            (operators, _places(threads, 2)),
            (nothing, devices),
        )
        for spool, rows, file, renumbered in zip(_spools(columns), part.rows, self._files, numbers, strict=True):
            spool.adopt(rows, file, *renumbered)
        columns.counts.merge(part.counts)
        reader.events += part.events
        reader.base_time = part.base_time if reader.base_time is None else reader.base_time
        reader.tail_unread = part.tail_unread
        return True


def second_half(content: bytes | Path, where: str, opened: ExitStack) -> SecondHalf | None:
    """Starts reading the second half; None where that is not worth while or cannot be done."""
    if isinstance(content, bytes) or processors() < 2:
        return None
    try:
        start = likely_border(content)
        return None if start is None else SecondHalf(content, where, start, opened)
    except OSError:
        return None  # the reader of the whole says what is wrong


def likely_border(path: Path, *, large: int = LARGE, share: float = _SHARE) -> int | None:
    """Where an event seems to begin, near the middle of a plain file of at least `large` bytes."""
    size = path.stat().st_size
    if not large <= size <= trace_bytes.MAX_BYTES:
        return None
    with path.open("rb") as file:
        if trace_bytes.is_packed(file.read(2)):
            return None
        begin = int(size * share)
        file.seek(begin)
        found = _BORDER.search(file.read(_LOOKED_AT))
    return begin + found.end() if found else None


def _read(path: Path, where: str, start: int, files: list[IO[bytes]]) -> bytes:
    """In the child: reads from `start` to the end."""
    reader = KinetoReader(path, where, start=start)
    columns = Columns(reader.damage, files)
    for batch in reader.batches():
        columns.add(batch)
    part = _Part(
        counts=columns.counts,
        names=tuple(names.listed for names in _names(columns)),
        rows=tuple(spool.finished() for spool in _spools(columns)),
        events=reader.events,
        damaged=reader.damage.count,
        base_time=reader.base_time,
        tail_unread=reader.tail_unread,
    )
    return msgspec.msgpack.encode(part)


def _names(columns: Columns) -> tuple[Names, ...]:
    names = (columns.kernel_names, columns.call_names, columns.operator_names)
    return (*names, columns.device_names, columns.thread_names)


def _spools(columns: Columns) -> tuple[Spool, ...]:
    return columns.work, columns.calls, columns.operators, columns.links


def _places(numbers: Numbers, kinds: int) -> Numbers:
    """The places of rows that are at kinds · number + kind."""
    return (kinds * numbers[:, None] + np.arange(kinds)).ravel().astype(np.int32)
