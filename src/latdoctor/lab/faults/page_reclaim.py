"""Makes the kernel reclaim another process's file pages repeatedly: process_madvise(2) with MADV_PAGEOUT.

It has the effect of a memory limit without the danger: pages without a file are spared, so nothing runs out of memory.
A page that is used again soon after it was reclaimed causes a major fault and counts as memory pressure (PSI).
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Self

from latdoctor.errors import OperationError

ROUND_SECONDS = 0.05
MADV_PAGEOUT = 21  # linux/mman.h
PROCESS_MADVISE = 440  # the same number on every architecture (asm-generic/unistd.h)
PAGE = os.sysconf("SC_PAGE_SIZE")

_NEEDED = "Linux 5.10, and root (CAP_SYS_NICE, CAP_SYS_PTRACE)"

Range = tuple[int, int]  # address and bytes


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Reclaim:
    """Reclaims all mapped file pages of a process but `share` of them, another part in each round."""

    def __init__(self, pid: int, share: float) -> None:
        """Raises OperationError where the process cannot be reached."""
        self._pid, self._share = pid, share
        self._begin = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long
        try:
            self._process = os.pidfd_open(pid)
        except OSError as error:
            raise OperationError(f"process {pid} cannot be reached: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._process)

    def check(self) -> None:
        """Raises OperationError where most of the pages cannot be had, because other processes have mapped them too."""
        try:
            private, shared = file_pages(Path(f"/proc/{self._pid}/smaps").read_text())
        except OSError as error:
            what = f"the memory of process {self._pid} cannot be read: {error.strerror}"
            raise OperationError(what, next_step=_NEEDED) from error
        if private < shared:
            size = f"{shared >> 20} of {(shared + private) >> 20} MiB"
            raise OperationError(
                f"of the files that process {self._pid} has mapped, {size} are mapped by other processes too, and the "
                "kernel spares those",
                next_step="end the other processes that have loaded the same libraries (a second replica, tests)",
            )

    def round(self) -> bool:
        """Reclaims once; False where the process has ended. Raises OperationError where it may not be done."""
        try:
            found = file_ranges(Path(f"/proc/{self._pid}/maps").read_text())
        except ProcessLookupError:
            return False
        except OSError as error:
            what = f"the memory of process {self._pid} cannot be read: {error.strerror}"
            raise OperationError(what, next_step=_NEEDED) from error
        total = sum(length for _, length in found)
        for one in part(found, self._begin, int(total * (1 - self._share))):
            self._page_out(one)
        # The golden ratio of the whole: no page is spared for long, whatever the share.
        self._begin = (self._begin + int(total * 0.618) // PAGE * PAGE) % max(1, total)
        return bool(found)

    def _page_out(self, one: Range) -> None:
        vector = _IoVec(*one)
        done = self._libc.syscall(PROCESS_MADVISE, self._process, ctypes.byref(vector), 1, MADV_PAGEOUT, 0)
        # Other errors concern one mapping (locked, already unmapped), and the next is tried.
        if done < 0 and (number := ctypes.get_errno()) in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            what = f"reclaiming the pages of process {self._pid} is not possible: {os.strerror(number)}"
            raise OperationError(what, next_step=_NEEDED)


def file_ranges(maps: str) -> list[Range]:
    """The mappings of files in `/proc/PID/maps`; a file that the process alone holds has its pages on the disk."""
    found = []
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/") and not fields[5].startswith(("/dev/", "/memfd:")):
            begin, _, end = fields[0].partition("-")
            found.append((int(begin, 16), int(end, 16) - int(begin, 16)))
    return found


def file_pages(smaps: str) -> tuple[int, int]:
    """Bytes of mapped files in memory, by `/proc/PID/smaps`: those of this process alone, and those it shares."""
    private = shared = 0
    of_file = False
    for line in smaps.splitlines():
        name, colon, rest = line.partition(":")
        if " " in name or not colon:
            of_file = bool(file_ranges(line))
        elif of_file and name in ("Private_Clean", "Private_Dirty"):
            private += int(rest.split()[0]) << 10
        elif of_file and name in ("Shared_Clean", "Shared_Dirty"):
            shared += int(rest.split()[0]) << 10
    return private, shared


def part(ranges: list[Range], begin: int, length: int) -> list[Range]:
    """`length` bytes of the ranges as if they were one ring, from `begin` on, in whole pages."""
    total = sum(size for _, size in ranges)
    length = min(total, -(-length // PAGE) * PAGE)
    found: list[Range] = []
    for turn in (0, total):
        offset = turn
        for address, size in ranges:
            low, high = max(begin, offset), min(begin + length, offset + size)
            if low < high:
                found.append((address + low - offset, high - low))
            offset += size
    return found
