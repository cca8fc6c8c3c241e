"""Starts a program that ends with its parent: `python parent_watch.py PARENT_PID PROGRAM [ARGUMENT …]`.

The kernel sends SIGTERM to the program when its parent dies, however it dies, so that a killed router leaves no
replicas behind. Run as a file by an isolated interpreter, it imports nothing that takes time. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_FOUND = 127  # the exit code of a shell for it


def watched(*command: str) -> tuple[str, ...]:
    """The command that starts `command` so that it ends with the thread of this process that starts it."""
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), *command)


def main(arguments: list[str]) -> int:
    """Does not return where the program can be started."""
    parent, program = int(arguments[0]), arguments[1:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 1  # it ended before prctl took effect
    try:
        os.execvp(program[0], program)  # noqa: S606 (no shell is the point)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
    return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
