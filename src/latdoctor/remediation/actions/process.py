"""A process of this machine, and the actions that signal it: `process.signal` and `process.stopped.set`.

A signal is sent through a file descriptor of the process (pidfd_open(2)), so it never reaches another process that has
the same PID. Only the signals listed here can be sent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.change import Deadline, ProcessEnded, Receipt, Refused, State, Undo, Unreachable, Values
from latdoctor.remediation.target import Access, Target, TargetKind

T = TypeVar("T")
PROC = Path("/proc")
_ENDED = "ZX"  # states of a process that has ended and was not reaped
_START_FIELD = 19  # of the fields after the command's name in /proc/PID/stat: field 22 of proc_pid_stat(5)


@dataclass(frozen=True, slots=True)
class Process:
    """A process. `started` is its start in clock ticks after boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, target: Target) -> Process:
        """Raises UsageError for a target without a process."""
        if target.pid <= 1 or target.started <= 0:
            raise UsageError("the target names no process: its PID or start time is missing", where=target.name)
        return cls(target.pid, round(target.started))

    def __str__(self) -> str:
        return f"process {self.pid} of {self.started}"

    @property
    def shell_test(self) -> str:
        """A shell test that this process still has the PID, for commands that a person runs."""
        return f"""[ "$(sed 's/.*) //' /proc/{self.pid}/stat | cut -d' ' -f20)" = {self.started} ]"""

    def state(self) -> str | None:
        """The letter of its state (`S`, `R`, `T`, …); None once it has ended, even if the PID was reused."""
        try:
            fields = _stat_fields(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return None
        if len(fields) <= _START_FIELD or fields[_START_FIELD] != str(self.started) or fields[0] in _ENDED:
            return None
        return fields[0]

    def require_running(self) -> None:
        """Raises ProcessEnded once it has ended."""
        if self.state() is None:
            raise ProcessEnded("the process has ended; its PID may have been reused", where=str(self))

    def threads(self) -> tuple[int, ...]:
        """The ids of its current threads. Raises ProcessEnded once it has ended."""
        self.require_running()
        try:
            return tuple(sorted(int(task.name) for task in (PROC / str(self.pid) / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            return ()

    def system_call(self, call: Callable[[], T]) -> T | None:
        """Return the result of `call`; None if its process or thread has ended. Raises Refused for other errors."""
        try:
            return call()
        except ProcessLookupError:
            return None
        except PermissionError as error:
            raise Refused(
                "this user may not change the process",
                where=str(self),
                next_step="run latdoctor as the user of the process",
            ) from error
        except OSError as error:
            raise Refused(f"the kernel refuses: {error.strerror}", where=str(self)) from error


def _stat_fields(pid: int) -> list[str]:
    return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def start_ticks(pid: int) -> int:
    """The start of the process in clock ticks after boot. Raises UsageError if it does not exist."""
    try:
        return int(_stat_fields(pid)[_START_FIELD])
    except (OSError, IndexError, ValueError) as error:
        raise UsageError("there is no such process", where=f"--pid {pid}") from error


RUNNING, HUNG_UP, STOPPED = "running", "hung-up", "stopped"
_SIGNALS = {"SIGTERM": RUNNING, "SIGHUP": HUNG_UP}
_REVERSIBLE = ("SIGSTOP", "SIGCONT")
_POLL_INTERVAL = 0.02  # seconds between two reads of the state after a signal


class _ProcessAction:
    """The resource of both actions."""

    __slots__ = ()

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        return str(Process.of(target))

    def resource(self, access: Access, resource_id: str) -> ProcessState:
        return ProcessState(Process.of(access.target))


@dataclass(frozen=True, slots=True)
class SignalAction(_ProcessAction):
    """`signal: SIGTERM` or `signal: SIGHUP`. Neither can be undone."""

    name: str = "process.signal"
    kinds: frozenset[TargetKind] = frozenset({TargetKind.PROCESS})
    undos: frozenset[Undo] = frozenset({Undo.IRREVERSIBLE})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if set(arguments) != {"signal"}:
            yield "takes one argument, `signal: SIGTERM` or `signal: SIGHUP`"
        elif arguments["signal"] in _REVERSIBLE:
            yield f"{arguments['signal']} can be undone: use process.stopped.set with `stopped: true` or `false`"
        elif arguments["signal"] not in _SIGNALS and "$" not in arguments["signal"]:
            yield f"signal must be {' or '.join(_SIGNALS)}"

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        name = arguments.get("signal", "")
        if name not in _SIGNALS:
            raise UsageError(f"signal {name!r} cannot be sent", next_step=f"one of {', '.join(_SIGNALS)}")
        if not state.values[RUNNING] and name == "SIGHUP":
            raise UsageError("the process has ended")
        return {RUNNING: False} if name == "SIGTERM" else {HUNG_UP: True}


@dataclass(frozen=True, slots=True)
class StopAction(_ProcessAction):
    """`stopped: true` stops the process, `false` lets it continue."""

    name: str = "process.stopped.set"
    kinds: frozenset[TargetKind] = frozenset({TargetKind.PROCESS})
    undos: frozenset[Undo] = frozenset({Undo.RESTORE})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if set(arguments) != {STOPPED}:
            yield "takes one argument, `stopped: true` or `stopped: false`"
        elif arguments[STOPPED].strip().lower() not in ("true", "false") and "$" not in arguments[STOPPED]:
            yield f"stopped must be true or false (got {arguments[STOPPED]!r})"

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        if not state.values[RUNNING]:
            raise UsageError("the process has ended")
        return {STOPPED: field_values.parse(STOPPED, arguments.get(STOPPED, ""), state.values[STOPPED])}


@dataclass(slots=True)
class ProcessState:
    """Whether a process runs, is stopped, and, as nothing else shows it, whether we have sent it SIGHUP."""

    process: Process
    hung_up: bool = field(default=False, init=False)

    def read(self, deadline: Deadline) -> State:
        state = self.process.state()
        found = {RUNNING: state is not None, STOPPED: state == "T", HUNG_UP: self.hung_up}
        version = " ".join(name for name in (RUNNING, STOPPED) if found[name]) or "ended"
        return State(dict(found), version, instance=str(self.process))

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        """Return once the process is in that state. Raises Unreachable if it does not react in time."""
        for name, value in values.items():
            if name == HUNG_UP and value:
                self._send(signal.SIGHUP)
                self.hung_up = True
            elif name == RUNNING and not value:
                self._send(signal.SIGTERM)
                self._wait_for(name, False, deadline)
            elif name == STOPPED:
                self._send(signal.SIGSTOP if value else signal.SIGCONT)
                self._wait_for(name, bool(value), deadline)
            else:
                raise Refused("that signal cannot be undone", where=str(self.process))
        return Receipt(instance=str(self.process))

    def manual_command(self, values: Values) -> str:
        signals = {
            (HUNG_UP, True): "HUP",
            (RUNNING, False): "TERM",
            (STOPPED, True): "STOP",
            (STOPPED, False): "CONT",
        }
        kills = [
            f"kill -{signals[name, bool(value)]} {self.process.pid}"
            for name, value in values.items()
            if (name, bool(value)) in signals
        ]
        if not kills:
            return f"ps -p {self.process.pid}  # no signal undoes this: check the process"
        return " && ".join([self.process.shell_test, *kills])

    def _send(self, number: signal.Signals) -> None:
        with self._pidfd() as handle:
            self.process.system_call(lambda: signal.pidfd_send_signal(handle, number))

    @contextmanager
    def _pidfd(self) -> Iterator[int]:
        """A descriptor of the process. While it is open, the PID cannot refer to another process unnoticed."""
        handle = self.process.system_call(lambda: os.pidfd_open(self.process.pid))
        try:
            self.process.require_running()
            if handle is None:
                raise ProcessEnded("the process has ended", where=str(self.process))
            yield handle
        finally:
            if handle is not None:
                os.close(handle)

    def _wait_for(self, name: str, value: bool, deadline: Deadline) -> None:
        while self.read(deadline).values[name] is not value:
            if not deadline.pause(_POLL_INTERVAL):
                raise Unreachable("the process did not react to the signal in time", where=str(self.process))


SIGNAL = SignalAction()
STOP = StopAction()
