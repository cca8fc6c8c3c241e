"""Rows of a trace in bounded memory: what is over goes to a temporary file and comes back in order of time.

A trace need not be in order of time (all launches may stand before all kernels), so nothing can be concluded while it
is read. Rows are gathered in blocks, each sorted by its first column and written out; every 512th value of that column
stays in memory, so that the rows of any window of time are found in each block without reading the rest of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

import msgspec
import numpy as np

from latdoctor.errors import SourceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from latdoctor.collectors.torch_trace.intervals import Floats

    Numbers = NDArray[np.int32]
    Rows = NDArray[np.void]

# `start` orders the rows; what `key`, `label` and `place` number is up to the caller that adds them. 32 bytes.
ROW = np.dtype([("start", "f8"), ("dur", "f8"), ("key", "f8"), ("label", "i4"), ("place", "i4")])
NO_KEY = -1.0
BLOCK = 1 << 16  # rows: 2 MiB
STRIDE = 512
# Rows of one window, about: what is concluded at once. It bounds memory; larger windows are not faster.
SLICE = 1 << 16
# More rows than this that start together come in several pieces.
CROWD = 4 * SLICE


class Written(msgspec.Struct, frozen=True):
    """A block in a file that one process sends to another: its first row, its rows, its marks (float64, packed)."""

    first: int
    rows: int
    marks: bytes


class _Block(msgspec.Struct, frozen=True):
    """Sorted rows, held or in `file`. `labels` and `places` renumber those of another process."""

    marks: Floats
    rows: int
    held: Rows | None = None
    file: IO[bytes] | None = None
    first: int = 0
    labels: Numbers | None = None
    places: Numbers | None = None

    def between(self, low: float, high: float) -> Rows:
        """The rows with low ≤ start < high, sorted."""
        begin = max(0, int(np.searchsorted(self.marks, low)) - 1) * STRIDE
        end = min(self.rows, int(np.searchsorted(self.marks, high)) * STRIDE)
        if begin >= end:
            return np.empty(0, ROW)
        rows = self._read(begin, end)
        return rows[slice(*np.searchsorted(rows["start"], (low, high)))]

    def _read(self, begin: int, end: int) -> Rows:
        if self.held is not None:
            return self.held[begin:end]
        assert self.file is not None
        place, size = (self.first + begin) * ROW.itemsize, (end - begin) * ROW.itemsize
        rows = np.frombuffer(bytearray(os.pread(self.file.fileno(), size, place)), ROW)
        if self.labels is not None and self.places is not None:
            rows["label"] = self.labels[rows["label"]]
            rows["place"] = self.places[rows["place"]]
        return rows


class Spool:
    """Rows in any order, given back window by window. With `file`, every row goes there; else only what is over."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._given, self._file = file, file
        self._open: Rows = np.empty(BLOCK, ROW)
        self._filled, self._written, self._count = 0, 0, 0
        self._blocks: list[_Block] = []
        self._sealed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and self._given is None:
            self._file.close()

    def __len__(self) -> int:
        return self._count

    def add(
        self, start: Floats, dur: Floats, label: Numbers | int, place: Numbers | int, key: Floats | float = NO_KEY
    ) -> None:
        """Takes rows in. Raises SourceError where no temporary file can be written."""
        given = {"start": start, "dur": dur, "key": key, "label": label, "place": place}
        self._count += len(start)
        taken = 0
        while taken < len(start):
            count = min(BLOCK - self._filled, len(start) - taken)
            rows = self._open[self._filled : self._filled + count]
            for column, known in given.items():
                rows[column] = known[taken : taken + count] if isinstance(known, np.ndarray) else known
            self._filled, taken = self._filled + count, taken + count
            if self._filled == BLOCK:
                self._write()

    def adopt(self, blocks: Sequence[Written], file: IO[bytes], labels: Numbers, places: Numbers) -> None:
        """Takes over what another process wrote to `file`, which must stay open."""
        for block in blocks:
            marks = np.frombuffer(block.marks, np.float64)
            self._blocks.append(_Block(marks, block.rows, file=file, first=block.first, labels=labels, places=places))
            self._count += block.rows

    def finished(self) -> list[Written]:
        """Everything in the file that was given, for `adopt`."""
        if self._filled:
            self._write()
        return [Written(block.first, block.rows, block.marks.tobytes()) for block in self._blocks]

    def between(self, low: float, high: float) -> Rows:
        """The rows with low ≤ start < high, sorted by start; rows that start together stay in the order they came."""
        parts = [part for block in self._sorted_blocks() if len(part := block.between(low, high))]
        if len(parts) < 2:
            return parts[0] if parts else np.empty(0, ROW)
        # Blocks of a trace that is in order of time follow one another, and need no sorting here.
        return _sorted(np.concatenate(parts))

    def together(self, start: float) -> Iterator[Rows]:
        """The rows that begin at `start`, a block's worth at a time."""
        for block in self._sorted_blocks():
            if len(rows := block.between(start, float(np.nextafter(start, np.inf)))):
                yield rows

    @property
    def marks(self) -> Floats:
        """Every 512th start or so, unsorted."""
        return np.concatenate([np.empty(0), *(block.marks for block in self._sorted_blocks())])

    def _sorted_blocks(self) -> list[_Block]:
        if self._filled:
            rows = _sorted(self._open[: self._filled])
            self._blocks.append(_Block(rows["start"][::STRIDE].copy(), len(rows), held=rows))
            self._open, self._filled = np.empty(BLOCK, ROW), 0
        return self._blocks

    def _write(self) -> None:
        rows = _sorted(self._open[: self._filled])
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="latdoctor-")  # noqa: SIM115 — closed by __exit__
            self._file.write(rows.view(np.uint8).data)
            self._file.flush()
        except OSError as error:
            raise SourceError(
                f"the trace needs a temporary file of some megabytes, which cannot be written: {error.strerror}",
                where=tempfile.gettempdir(),
                next_step="make room there, or name another folder by TMPDIR",
            ) from error
        marks = rows["start"][::STRIDE].copy()
        self._blocks.append(_Block(marks, len(rows), file=self._file, first=self._written))
        self._written += len(rows)
        self._filled = 0


def windows(spools: Sequence[Spool], rows: int = SLICE) -> Iterator[tuple[float, float]]:
    """Windows [low, high) from -inf to inf that hold about `rows` rows of all `spools` together."""
    marks = np.sort(np.concatenate([spool.marks for spool in spools]))
    take = max(1, rows // STRIDE)
    edges = [-np.inf, *np.unique(marks[take::take]).tolist(), np.inf]
    return pairwise(edges)


def swept(spools: Sequence[Spool]) -> Iterator[tuple[float, float, list[Rows]]]:
    """All windows in order, with the rows of each spool. Where very many rows start together (that is, where ids are
    missing, or in a crafted file), they come in windows of no length, so that memory stays bounded.
    """
    values, counts = np.unique(np.concatenate([spool.marks for spool in spools]), return_counts=True)
    crowded = set(values[counts > CROWD // STRIDE].tolist())
    for low, high in windows(spools):
        after = low
        if low in crowded:
            after = float(np.nextafter(low, np.inf))
            for index, spool in enumerate(spools):
                for rows in spool.together(low):
                    yield low, low, [rows if other == index else rows[:0] for other in range(len(spools))]
        yield low, high, [spool.between(after, high) for spool in spools]


def _sorted(rows: Rows) -> Rows:
    start = rows["start"]
    return rows if _in_order(start) else rows[np.argsort(start, kind="stable")]


def _in_order(start: Floats) -> bool:
    return bool((start[1:] >= start[:-1]).all())
