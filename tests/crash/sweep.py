"""Kills or fails a command at each of the system calls by which it changes anything, one call at a time.

    for k in range(1, points(command) + 1):
        ended = killed_at(command, k)

A call is killed before it is done; what is there after the last one is what a command leaves that was not killed.
`tracer` kills, and counts over all threads and processes of the command. Errors are put in by strace, which counts for
each thread and each call apart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

# What changes files, and what speaks to others. A name that a machine does not know is left out.
CHANGES = (
    *("write", "writev", "pwrite64", "ftruncate", "fsync", "fdatasync", "mkdir", "mkdirat", "unlink", "unlinkat"),
    *("rename", "renameat", "renameat2", "connect", "sendto", "sendmsg"),
)
PATIENCE = 60.0  # seconds for one command, after which something hangs
KILLED = 128 + 9  # the code of a command that was killed

_TRACER = Path(__file__).with_name("tracer.py")

Ended = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Call:
    """The `nth` call of `syscall`, counted from 1."""

    syscall: str
    nth: int


def calls(
    command: Sequence[str], syscalls: Sequence[str] = CHANGES, environment: Mapping[str, str] | None = None
) -> tuple[Call, ...]:
    """The calls that `command` makes when it is run once, now; the k-th of them is where `killed_at` kills."""
    must_trace()
    ended, met = _traced(command, 0, syscalls, environment)
    assert ended.returncode != KILLED, ended.stderr
    counted: Counter[str] = Counter()
    found = []
    for name in met:
        counted[name] += 1
        found.append(Call(name, counted[name]))
    return tuple(found)


def points(
    command: Sequence[str], syscalls: Sequence[str] = CHANGES, environment: Mapping[str, str] | None = None
) -> int:
    """How many there are."""
    return len(calls(command, syscalls, environment))


def killed_at(
    command: Sequence[str], k: int, syscalls: Sequence[str] = CHANGES, environment: Mapping[str, str] | None = None
) -> Ended:
    """`command`, with the code KILLED, when it gets SIGKILL instead of its `k`-th call. With fewer calls it ends."""
    must_trace()
    return _traced(command, k, syscalls, environment)[0]


def failed_at(
    command: Sequence[str],
    call: Call,
    error: str,
    environment: Mapping[str, str] | None = None,
    *,
    onwards: bool = False,
) -> Ended:
    """`command` when that call, and with `onwards` every later one of its name, does nothing and gives `error`."""
    when = f"{call.nth}{'+' if onwards else ''}"
    inject = f"inject={call.syscall}:error={error}:when={when}"
    return _stopped_by_strace(["-o", os.devnull, "-e", f"trace={call.syscall}", "-e", inject], command, environment)


def told(command: Sequence[str], syscalls: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """What strace tells of `syscalls` in a run of `command`, with paths behind descriptors. Its code has to be 0."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "told"
        wanted = "trace=" + ",".join(f"?{name}" for name in syscalls)
        ended = _stopped_by_strace(["-y", "-o", str(lines), "-e", wanted], command, environment)
        assert ended.returncode == 0, ended.stderr
        return lines.read_text(errors="replace").splitlines()


def _traced(
    command: Sequence[str], k: int, syscalls: Sequence[str], environment: Mapping[str, str] | None
) -> tuple[Ended, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "met"
        tracer = [sys.executable, "-I", "-S", str(_TRACER), str(report), str(k), ",".join(syscalls)]
        ended = _run([*tracer, *command], environment)
        return ended, report.read_text().split()


def _stopped_by_strace(options: Sequence[str], command: Sequence[str], environment: Mapping[str, str] | None) -> Ended:
    found = shutil.which("strace")
    if not found:
        _absent("no strace here: install it")
    return _run([str(found), "-f", "--seccomp-bpf", "-qq", "-e", "signal=none", *options, *command], environment)


def _run(command: Sequence[str], environment: Mapping[str, str] | None) -> Ended:
    return subprocess.run(
        command,
        env=dict(os.environ if environment is None else environment) | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def must_trace() -> None:
    """Skips the test where no process may be traced; in CI it fails."""
    reason = _why_not()
    if reason:
        _absent(reason)


@cache
def _why_not() -> str:
    try:
        ended, met = _traced(["mkdir", "-p", "/"], 0, ("write",), None)
    except FileNotFoundError:  # it has written no report
        return "no process may be traced here: allow ptrace, on Linux on x86-64 or arm64"
    return "" if (ended.returncode, met) == (0, []) else f"tracing fails here: {ended.stderr}"


def _absent(reason: str) -> None:
    """Absent locally it skips, absent in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
