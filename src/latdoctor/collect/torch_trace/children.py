"""Work in processes of its own: forked, so that nothing is loaded twice, and waited for without threads."""

from __future__ import annotations

import os
import select
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Self

_FAILED = 70
MOST = 8  # children at once: each needs up to 100 MB


def processors() -> int:
    """How many processes can run at once; 1 where none may be forked, since other threads hold locks."""
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, allowed)


class Child:
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


def first_done(children: Sequence[Child], patience: float) -> Sequence[Child]:
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
