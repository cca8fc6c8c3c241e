"""`process.signal` ends a process or tells it to read its configuration again; `process.stopped.set` holds it.

A signal goes through a file descriptor of the process (pidfd_open(2)), so that it never reaches another one that has
got the number. Only what is listed here can be sent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import value_parsing
from latdoctor.remediation.actions.process import Process
from latdoctor.remediation.change import Deadline, Refused, State, Unreachable, Values
from latdoctor.remediation.target import Access, Target

RUNNING, HUNG_UP, STOPPED = "running", "hung-up", "stopped"
_SIGNALS = {"SIGTERM": RUNNING, "SIGHUP": HUNG_UP}
_HELD = ("SIGSTOP", "SIGCONT")
_LOOK = 0.02  # seconds between two looks at whether it has followed


@dataclass(frozen=True, slots=True)
class SignalAction:
    """`signal: SIGTERM` or `signal: SIGHUP`. There is no way back from either."""

    name: str = "process.signal"
    kinds: frozenset[str] = frozenset({"process"})
    undos: frozenset[str] = frozenset({"irreversible"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        if set(given) != {"signal"}:
            yield "it takes one argument, `signal: SIGTERM` or `signal: SIGHUP`"
        elif given["signal"] in _HELD:
            yield f"{given['signal']} has a way back: it is process.stopped.set, with `stopped: true` or `false`"
        elif given["signal"] not in _SIGNALS and "$" not in given["signal"]:
            yield f"the signals are {' and '.join(_SIGNALS)}"

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return str(Process.of(target))

    def resource(self, access: Access, where: str) -> Signalled:
        return Signalled(Process.of(access.target))

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        name = given.get("signal", "")
        if name not in _SIGNALS:
            raise UsageError(f"{name!r} is no signal that can be sent", next_step=f"one of {', '.join(_SIGNALS)}")
        if not state.values[RUNNING] and name == "SIGHUP":
            raise UsageError("the process has ended")
        return {RUNNING: False} if name == "SIGTERM" else {HUNG_UP: True}


@dataclass(frozen=True, slots=True)
class StoppedAction:
    """`stopped: true` holds the process where it is, `false` lets it go on."""

    name: str = "process.stopped.set"
    kinds: frozenset[str] = frozenset({"process"})
    undos: frozenset[str] = frozenset({"restore"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        if set(given) != {STOPPED}:
            yield "it takes one argument, `stopped: true` or `stopped: false`"
        elif given[STOPPED].strip().lower() not in ("true", "false") and "$" not in given[STOPPED]:
            yield "stopped is true or false"

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return str(Process.of(target))

    def resource(self, access: Access, where: str) -> Signalled:
        return Signalled(Process.of(access.target))

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        if not state.values[RUNNING]:
            raise UsageError("the process has ended")
        return {STOPPED: value_parsing.typed(STOPPED, given.get(STOPPED, ""), state.values[STOPPED])}


@dataclass(slots=True)
class Signalled:
    """Whether a process runs, is held, and, as nothing shows that, whether we have sent it SIGHUP."""

    process: Process
    hung_up: bool = field(default=False, init=False)

    def read(self, deadline: Deadline) -> State:
        state = self.process.state()
        found = {RUNNING: state is not None, STOPPED: state == "T", HUNG_UP: self.hung_up}
        return State(dict(found), " ".join(name for name in (RUNNING, STOPPED) if found[name]) or "ended")

    def write(self, values: Values, version: str, deadline: Deadline) -> None:
        """Returns once it is so. Raises Unreachable where the process does not follow in time."""
        for name, value in values.items():
            if name == HUNG_UP and value:
                self._send(signal.SIGHUP)
                self.hung_up = True
            elif name == RUNNING and not value:
                self._send(signal.SIGTERM)
                self._until(name, False, deadline)
            elif name == STOPPED:
                self._send(signal.SIGSTOP if value else signal.SIGCONT)
                self._until(name, bool(value), deadline)
            else:
                raise Refused("there is no way back from that signal", where=str(self.process))

    def by_hand(self, values: Values) -> str:
        sent = {
            (HUNG_UP, True): "HUP",
            (RUNNING, False): "TERM",
            (STOPPED, True): "STOP",
            (STOPPED, False): "CONT",
        }
        kills = [
            f"kill -{sent[name, bool(value)]} {self.process.pid}"
            for name, value in values.items()
            if (name, bool(value)) in sent
        ]
        if not kills:
            return f"ps -p {self.process.pid}  # it has no way back by a signal: look at it"
        return " && ".join([self.process.test, *kills])

    def _send(self, number: signal.Signals) -> None:
        with self._held() as handle:
            self.process.permitted(lambda: signal.pidfd_send_signal(handle, number))

    @contextmanager
    def _held(self) -> Iterator[int]:
        """A descriptor of the process: once it is open, the number cannot come to mean another one unseen."""
        handle = self.process.permitted(lambda: os.pidfd_open(self.process.pid))
        try:
            self.process.must_be()
            if handle is None:
                raise Refused("the process has ended", where=str(self.process))
            yield handle
        finally:
            if handle is not None:
                os.close(handle)

    def _until(self, name: str, value: bool, deadline: Deadline) -> None:
        while self.read(deadline).values[name] is not value:
            if not deadline.pause(_LOOK):
                raise Unreachable("the process does not follow the signal", where=str(self.process))


SIGNAL = SignalAction()
STOP = StoppedAction()
