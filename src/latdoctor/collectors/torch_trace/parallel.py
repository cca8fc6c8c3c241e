"""One large plain trace read by two processes, each a half.

Where the second half begins is a guess: a place in the middle that looks like the border between two events. It is
proven when the strict parse of the first half ends exactly there; if it does not, what the second process read is
thrown away, and the first reads on. So the result never depends on the guess.
"""

from __future__ import annotations

import os
import re
import select
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

import msgspec
import numpy as np

from latdoctor.collectors.torch_trace import json_stream as trace_bytes
from latdoctor.collectors.torch_trace.disk_spill import Spool, Written
from latdoctor.collectors.torch_trace.event_store import TraceCounts, TraceStore
from latdoctor.collectors.torch_trace.json_stream import KinetoReader
from latdoctor.collectors.torch_trace.name_table import NameTable

if TYPE_CHECKING:
    from latdoctor.collectors.torch_trace.disk_spill import Numbers


_FAILED = 70
MOST = 8  # children at once: each needs up to 100 MB


def processors() -> int:
    """How many processes can run at once; 1 where none may be forked, since other threads hold locks."""
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, allowed)


class ChildProcess:
    """One piece of work in a process of its own. To be used as a context: what is not waited for is stopped.

    Raises OSError where there is no room for its answer or no process to be had.
    """

    def __init__(self, work: Callable[[], bytes]) -> None:
        self._answer: IO[bytes] = tempfile.TemporaryFile(prefix="latdoctor-")  # noqa: SIM115 — closed by __exit__
        self._ends, write_end = os.pipe()
        try:
            self._pid = _forked(work, self._answer, self._ends)
        except OSError:
            self._answer.close()
            os.close(self._ends)
            raise
        finally:
            os.close(write_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._wait()
        self._answer.close()
        os.close(self._ends)

    def fileno(self) -> int:
        """Becomes readable when the work is done."""
        return self._ends

    def answer(self) -> bytes | None:
        """What the work gave, waited for; None where it failed or its process was killed."""
        if self._wait() != 0:
            return None
        self._answer.seek(0)
        return self._answer.read()

    def _wait(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)


def first_done(children: Sequence[ChildProcess], patience: float) -> Sequence[ChildProcess]:
    """Those that are done; empty where none is after `patience` seconds."""
    return select.select(children, [], [], patience)[0]


def _forked(work: Callable[[], bytes], answer: IO[bytes], unused: int) -> int:
    with warnings.catch_warnings():
        # numpy's idle threads make Python 3.12 warn; nothing that they do is called by a child.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    # From here on it is the child, which must end here whatever happens: the stack above belongs to the parent.
    code = _FAILED
    try:
        os.close(unused)
        answer.write(work())
        answer.flush()
        code = 0
    except BaseException:  # noqa: BLE001 — the parent sees the exit code and does the work itself
        code = _FAILED
    finally:
        os._exit(code)


LARGE = 64 << 20  # bytes; below, a second process costs more than it saves
_LOOKED_AT = 1 << 20  # bytes in which the border is looked for
# Measured: the child writes all its rows out before it ends, and the parent loads the analysis meanwhile.
_SHARE = 0.5
_BORDER = re.compile(rb'\}\s*,(?=\s*\{\s*"(?:ph|cat|name|pid|tid|ts|args)"\s*:)')


class _Part(msgspec.Struct):
    """What was read of a part of a trace; the rows lie in files."""

    counts: TraceCounts
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
        self._child = opened.enter_context(ChildProcess(lambda: _read(path, where, start, self._files)))

    def merge_into(self, columns: TraceStore, reader: KinetoReader) -> bool:
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
    columns = TraceStore(reader.damage, files)
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


def _names(columns: TraceStore) -> tuple[NameTable, ...]:
    names = (columns.kernel_names, columns.call_names, columns.operator_names)
    return (*names, columns.device_names, columns.thread_names)


def _spools(columns: TraceStore) -> tuple[Spool, ...]:
    return columns.work, columns.calls, columns.operators, columns.links


def _places(numbers: Numbers, kinds: int) -> Numbers:
    """The places of rows that are at kinds · number + kind."""
    return (kinds * numbers[:, None] + np.arange(kinds)).ravel().astype(np.int32)
