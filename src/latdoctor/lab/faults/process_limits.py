"""CPU and memory limits on a running process, applied by a helper process and lifted when it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.faults.cgroup_cpu_quota import clear
from latdoctor.sanitize import clean

IN_FORCE = "in force"


LimitKind = Literal["cpu", "memory"]


@contextmanager
def cpu_quota(pid: int, share: float, lifetime: float) -> Iterator[None]:
    """The process may use `share` processors (0.5 is half of one), in a control group of its own.

    Children that it starts meanwhile share the quota. Ends after `lifetime` seconds at the latest. Needs a control
    group file system that may be written (root), of version 1 or 2. Raises UsageError for bad numbers, OperationError
    that says what is missing.
    """
    with _kept("cpu", pid, share, lifetime):
        yield


@contextmanager
def memory_squeeze(pid: int, share: float, lifetime: float) -> Iterator[None]:
    """The process may keep `share` (0..1) of the file pages that it has mapped: libraries, the model.

    The rest is reclaimed again and again, as under a memory limit below the working set, and comes back from the disk
    through major faults. Nothing can run out of memory by it: only pages that the disk has are given up. Pages that
    other processes have mapped too are spared by the kernel: two replicas shield each other, and where most pages are
    such ones it is refused. Ends after `lifetime` seconds at the latest.

    Needs Linux 5.10 and the right to CAP_SYS_NICE and to trace the process (root).
    Raises UsageError for bad numbers, OperationError that says what is missing.
    """
    if not 0 <= share < 1:
        raise UsageError(f"a share of {share:g} keeps everything", next_step="a share from 0 to below 1")
    with _kept("memory", pid, share, lifetime):
        yield


@contextmanager
def _kept(kind: LimitKind, pid: int, share: float, lifetime: float) -> Iterator[None]:
    if pid <= 1 or not 0 <= share <= 1024 or not 0 < lifetime <= 3600:
        raise UsageError(f"a limit of {share:g} for process {pid} over {lifetime:g} s makes no sense")
    command = [sys.executable, "-m", "latdoctor.lab.faults.limit_holder", kind, str(pid), repr(share), repr(lifetime)]
    with subprocess.Popen(  # noqa: S603 — our own interpreter and module
        command,
        stdin=subprocess.PIPE,  # held open by this process alone: its end is the end of the limit
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us, who then close the pipe
    ) as keeper:
        try:
            if keeper.stdout is None or keeper.stdout.readline().strip() != IN_FORCE:
                raise OperationError(_last_words(keeper))
            yield
        finally:
            _end(keeper, kind, pid)


def _end(keeper: subprocess.Popen[str], kind: LimitKind, pid: int) -> None:
    with suppress(BrokenPipeError):
        if keeper.stdin is not None:
            keeper.stdin.close()
    keeper.wait()
    if keeper.returncode < 0 and kind == "cpu":
        clear(pid)  # the helper process was killed
    if keeper.returncode > 0 and sys.exc_info()[1] is None:
        raise OperationError(_last_words(keeper))


def _last_words(keeper: subprocess.Popen[str]) -> str:
    lines = (keeper.stderr.read() if keeper.stderr else "").strip().splitlines()
    return clean(lines[-1], 300) if lines else "the helper process ended without a message"
