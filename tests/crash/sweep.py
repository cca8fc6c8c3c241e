"""Kills or fails a command at each of the system calls by which it changes anything, by strace and one call at a time.

    for point in points(command):
        ended = killed_at(command, point)

A call is killed before it is done; what is there after the last one is what a command leaves that was not killed.
strace counts for each thread and each call apart, so a point is the n-th call of one name by the first thread that gets
so far.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

# What changes files, and what speaks to others. A name that a machine does not know is left out.
CHANGES = (
    *("write", "writev", "pwrite64", "ftruncate", "fsync", "fdatasync", "mkdir", "unlink", "unlinkat"),
    *("rename", "renameat", "renameat2", "connect", "sendto", "sendmsg"),
)
PATIENCE = 60.0  # seconds for one command, after which something hangs

_SECCOMP = "--seccomp-bpf"  # only the calls that are asked for stop the command
_CALL = re.compile(r"^(\d+ +)?(\w+)\(")

Ended = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Point:
    """The `nth` call of `syscall`, counted from 1."""

    syscall: str
    nth: int

    def __str__(self) -> str:
        return f"{self.syscall} {self.nth}"


def strace() -> str:
    """A strace that may trace here; absent locally it skips, absent in CI it fails."""
    found = _usable()
    if found:
        return found
    reason = "no strace here that may trace: install it, and allow ptrace"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def points(
    command: Sequence[str], syscalls: Sequence[str] = CHANGES, environment: Mapping[str, str] | None = None
) -> tuple[Point, ...]:
    """Where `command` can be killed, in the order in which it got there when it was run once, now."""
    told = trace(command, syscalls, environment)
    counted: Counter[tuple[str, str]] = Counter()
    found: dict[Point, None] = {}
    for line in told.splitlines():
        call = _CALL.match(line)
        if call:
            thread, name = call[1] or "", call[2]
            counted[thread, name] += 1
            found[Point(name, counted[thread, name])] = None
    return tuple(found)


def trace(
    command: Sequence[str], syscalls: Sequence[str], environment: Mapping[str, str] | None = None, *more: str
) -> str:
    """strace's lines about `syscalls` of one run of `command`, which has to be the run that is meant: its code is 0."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "trace"
        wanted = "trace=" + ",".join(f"?{name}" for name in syscalls)
        ended = _run([_SECCOMP, "-o", str(lines), "-e", wanted, *more], command, environment)
        assert ended.returncode == 0, ended.stderr
        return lines.read_text(errors="replace")


def killed_at(command: Sequence[str], point: Point, environment: Mapping[str, str] | None = None) -> Ended:
    """`command` when it gets SIGKILL instead of that call; it ends by itself if it never gets there."""
    # Every call stops the command here: at a stop by seccomp the kernel takes no signal from its tracer.
    return _injected(command, f"{point.syscall}:signal=KILL:when={point.nth}", point, environment)


def failed_at(
    command: Sequence[str],
    point: Point,
    error: str,
    environment: Mapping[str, str] | None = None,
    *,
    onwards: bool = False,
) -> Ended:
    """`command` when that call, and with `onwards` every later one of its name, does nothing and gives `error`."""
    when = f"{point.nth}{'+' if onwards else ''}"
    return _injected(command, f"{point.syscall}:error={error}:when={when}", point, environment, _SECCOMP)


def _injected(
    command: Sequence[str], inject: str, point: Point, environment: Mapping[str, str] | None, *more: str
) -> Ended:
    options = [*more, "-o", os.devnull, "-e", f"trace={point.syscall}", "-e", f"inject={inject}"]
    return _run(options, command, environment)


def _run(options: Sequence[str], command: Sequence[str], environment: Mapping[str, str] | None) -> Ended:
    return subprocess.run(
        [strace(), "-f", "-qq", "-e", "signal=none", *options, *command],
        env=dict(os.environ if environment is None else environment) | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@cache
def _usable() -> str:
    found = shutil.which("strace")
    if not found:
        return ""
    command = [found, "-f", _SECCOMP, "-qq", "-e", "trace=fsync", "true"]
    tried = subprocess.run(command, capture_output=True, check=False)
    return found if tried.returncode == 0 else ""
