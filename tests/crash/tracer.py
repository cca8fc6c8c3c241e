"""python tracer.py REPORT K SYSCALLS COMMAND…: runs COMMAND, and kills it instead of its K-th call of SYSCALLS.

SYSCALLS are names with commas between them. Their calls are counted from 1, over all threads and processes of COMMAND
together; with K = 0 nothing is killed. REPORT gets a line for each that it came to. What ends is the process that makes
the call, by SIGKILL and before the call is done. Only these calls stop anybody (seccomp), so that it takes hardly more
time than without. strace cannot do that: it counts for each thread and each call apart, and where it filters by seccomp
the kernel does not deliver its signals.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Numbers of the system calls: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.
NUMBERS = {
    "x86_64": {
        **{"write": 1, "pwrite64": 18, "writev": 20, "connect": 42, "sendto": 44, "sendmsg": 46, "fsync": 74},
        **{"fdatasync": 75, "ftruncate": 77, "rename": 82, "mkdir": 83, "unlink": 87, "mkdirat": 258},
        **{"unlinkat": 263, "renameat": 264, "renameat2": 316},
    },
    "aarch64": {
        **{"mkdirat": 34, "unlinkat": 35, "renameat": 38, "ftruncate": 46, "write": 64, "writev": 66},
        **{"pwrite64": 68, "fsync": 82, "fdatasync": 83, "connect": 203, "sendto": 206, "sendmsg": 211},
        **{"renameat2": 276},
    },
}

# ptrace(2), prctl(2), seccomp(2), bpf of linux/filter.h
_GETREGS, _SETREGS, _RAX, _ORIG_RAX = 12, 13, 10, 15
_CONT, _GETEVENTMSG, _SEIZE, _LISTEN = 7, 0x4201, 0x4206, 0x4208
_FORKS, _SECCOMP_STOPS, _END_WITH_US = 0x2 | 0x4 | 0x8, 0x80, 0x100000
_AT_SECCOMP, _AT_STOP = 7, 128
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000
_ALL_THREADS = 0x40000000  # __WALL
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)


@dataclass(frozen=True)
class _Strike:
    k: int
    errors: Mapping[str, int]
    onwards: bool


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main(report: str, k: int, names: Sequence[str], command: Sequence[str]) -> int:
    """The code of the command, or minus the signal that ended it."""
    code, met = forked(k, names, lambda: os.execvp(command[0], command))  # noqa: S606
    Path(report).write_text("".join(f"{name}\n" for name in met))
    return code


def forked(
    k: int,
    names: Sequence[str],
    work: Callable[[], object],
    errors: Mapping[str, int] | None = None,
    *,
    onwards: bool = False,
) -> tuple[int, list[str]]:
    """What a child that does `work` ends with, and the calls that it came to. This process has no other child.

    With `errors` (of x86-64 only) the k-th call, and with `onwards` every later one, is not killed: it does nothing and
    gives the error number of its name.
    """
    strike = _Strike(k, errors or {}, onwards)
    known = NUMBERS[platform.machine()]
    traced = [name for name in names if name in known]
    waiting, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(work, [known[name] for name in traced], waiting, go)
    os.close(waiting)
    _asked(_SEIZE, pid, _FORKS | _SECCOMP_STOPS | _END_WITH_US)
    os.close(go)
    met: list[str] = []
    code = 1
    while True:
        try:
            thread, status = os.waitpid(-1, _ALL_THREADS)
        except ChildProcessError:
            break
        if os.WIFSTOPPED(status):
            _goes_on(thread, status, met, traced, strike)
        elif thread == pid:
            code = os.waitstatus_to_exitcode(status)
    return code, met


def _goes_on(thread: int, status: int, met: list[str], traced: Sequence[str], strike: _Strike) -> None:
    event, signum = status >> 16, os.WSTOPSIG(status)
    try:
        if event == _AT_SECCOMP:
            which = ctypes.c_ulong()
            _asked(_GETEVENTMSG, thread, ctypes.addressof(which))
            met.append(traced[which.value])
            if len(met) == strike.k or (strike.onwards and len(met) > strike.k > 0):
                if not strike.errors:
                    os.kill(thread, signal.SIGKILL)
                    return
                _fails(thread, strike.errors[met[-1]])
        if event == _AT_STOP and signum in _STOPPING:
            _asked(_LISTEN, thread, 0)
        else:
            _asked(_CONT, thread, 0 if event else signum)
    except ProcessLookupError:
        return  # it has been killed meanwhile; the next wait tells


def _fails(thread: int, error: int) -> None:
    """Takes the call back that `thread` is about to make (seccomp(2), SECCOMP_RET_TRACE), and has it give `error`."""
    registers = (ctypes.c_ulonglong * 27)()  # user_regs_struct of x86-64
    _asked(_GETREGS, thread, ctypes.addressof(registers))
    registers[_ORIG_RAX] = (1 << 64) - 1
    registers[_RAX] = (1 << 64) - error
    _asked(_SETREGS, thread, ctypes.addressof(registers))


def _become(work: Callable[[], object], numbers: Sequence[int], waiting: int, go: int) -> None:
    """Does `work` in this process, once it is traced."""
    os.close(go)
    os.read(waiting, 1)
    os.close(waiting)
    # Loads the call's number; each comparison jumps to its own return, which tells the tracer its place in the list.
    code = [struct.pack("=HBBI", 0x20, 0, 0, 0)]
    for index, number in enumerate(numbers):
        code += [struct.pack("=HBBI", 0x15, 0, 1, number), struct.pack("=HBBI", 0x06, 0, 0, _TRACE | index)]
    code.append(struct.pack("=HBBI", 0x06, 0, 0, _ALLOW))
    program = _Program(len(code), b"".join(code))
    try:
        _libc.prctl(_NO_NEW_PRIVILEGES, 1, None, 0, 0)
        if _libc.prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(program), 0, 0) == 0:
            work()
    finally:
        os._exit(127)


def _asked(request: int, thread: int, data: int) -> None:
    if _libc.ptrace(request, thread, None, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    ended = main(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:])
    sys.exit(ended if ended >= 0 else 128 - ended)
