"""Faults of real servers: signals to their processes, restarts with other settings, and requests that change them.

Each fault is a value; `injected` applies it to a server and removes it when its context ends.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Annotated

from msgspec import Meta, Struct

from latdoctor.errors import OperationError
from latdoctor.http.client import HttpRequest, HttpResponse, send_request
from latdoctor.lab.real.server_process import RealServer

_ADMIN_SECONDS = 30.0


class HangProcess(Struct, frozen=True, forbid_unknown_fields=True, tag="hang", tag_field="kind"):
    """Stop processes (SIGSTOP): they keep their connections and answer nothing. `replica`: which one of a router's.

    `restart`: the server gives such a process up for good, so the end of the fault is a restart.
    """

    engine: bool = True
    replica: int | None = None
    restart: bool = False


class KillProcess(Struct, frozen=True, forbid_unknown_fields=True, tag="kill", tag_field="kind"):
    """Kill processes (SIGKILL); the server is started again at the end."""

    engine: bool = False
    replica: int | None = None


class ThrottleProcess(Struct, frozen=True, forbid_unknown_fields=True, tag="throttle", tag_field="kind"):
    """Stop processes again and again: a slow machine under one of them. Times in seconds."""

    engine: bool = True
    replica: int | None = None
    stopped: Annotated[float, Meta(gt=0, le=10)] = 0.4
    running: Annotated[float, Meta(gt=0, le=10)] = 0.1


class RestartChanged(Struct, frozen=True, forbid_unknown_fields=True, tag="restart", tag_field="kind"):
    """Restart with other settings; restart as before at the end."""

    environment: dict[str, str] = {}
    arguments: tuple[str, ...] | None = None


class FileEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """A text to replace in a file of the server's own folder."""

    file: str
    old: str
    new: str


class AdminRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to the server's administration; braces in `url` as in its definition."""

    url: str
    method: str = "POST"
    body: str = ""


class AdminChange(Struct, frozen=True, forbid_unknown_fields=True, tag="change", tag_field="kind"):
    """Edit files, then send `requests`. At the end the edits are reverted and `undo`, or `requests`, is sent."""

    edits: tuple[FileEdit, ...] = ()
    requests: tuple[AdminRequest, ...] = ()
    undo: tuple[AdminRequest, ...] | None = None


RealFault = HangProcess | KillProcess | ThrottleProcess | RestartChanged | AdminChange


def injected(fault: RealFault, server: RealServer) -> AbstractContextManager[None]:
    """The fault for as long as the context lasts. Raises OperationError where it cannot be applied."""
    match fault:
        case HangProcess():
            return _hang(_target(server, fault.replica), _pids(server, fault), restart=fault.restart)
        case KillProcess():
            return _kill(_target(server, fault.replica), _pids(server, fault))
        case ThrottleProcess():
            return _throttle(fault, _pids(server, fault))
        case RestartChanged():
            return _restart(fault, server)
        case AdminChange():
            return _change(fault, server)


def _target(server: RealServer, replica: int | None) -> RealServer:
    if replica is None:
        return server
    if replica >= len(server.replicas):
        raise OperationError(f"{server.definition.name} has {len(server.replicas)} replicas; there is no {replica}")
    return server.replicas[replica]


def _pids(server: RealServer, fault: HangProcess | KillProcess | ThrottleProcess) -> tuple[int, ...]:
    return _target(server, fault.replica).processes(fault.engine)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def _hang(target: RealServer, pids: Sequence[int], *, restart: bool) -> Iterator[None]:
    try:
        _signal(pids, signal.SIGSTOP)
        yield
    finally:
        _signal(pids, signal.SIGCONT)
    if restart:
        target.restart()


@contextmanager
def _kill(target: RealServer, pids: Sequence[int]) -> Iterator[None]:
    _signal(pids, signal.SIGKILL)
    yield
    target.restart()


@contextmanager
def _throttle(fault: ThrottleProcess, pids: Sequence[int]) -> Iterator[None]:
    ended = threading.Event()

    def pulses() -> None:
        while not ended.is_set():
            _signal(pids, signal.SIGSTOP)
            ended.wait(fault.stopped)
            _signal(pids, signal.SIGCONT)
            ended.wait(fault.running)

    pulse = threading.Thread(target=pulses, name="throttle", daemon=True)
    pulse.start()
    try:
        yield
    finally:
        ended.set()
        pulse.join()
        _signal(pids, signal.SIGCONT)


@contextmanager
def _restart(fault: RestartChanged, server: RealServer) -> Iterator[None]:
    server.restart(fault.environment, fault.arguments)
    yield
    server.restart()


@contextmanager
def _change(fault: AdminChange, server: RealServer) -> Iterator[None]:
    for edit in fault.edits:
        _edit(server, edit.file, edit.old, edit.new)
    _sent(server, fault.requests)
    yield
    for edit in reversed(fault.edits):
        _edit(server, edit.file, edit.new, edit.old)
    _sent(server, fault.requests if fault.undo is None else fault.undo)


def _edit(server: RealServer, file: str, old: str, new: str) -> None:
    path = server.folder / file
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise OperationError(f"{old!r} occurs {text.count(old)} times instead of once", where=file)
    path.write_text(text.replace(old, new), encoding="utf-8")


def _sent(server: RealServer, requests: Sequence[AdminRequest]) -> None:
    """Sends `requests` in their order. Raises OperationError for an answer other than 2xx."""
    for one in requests:
        request = HttpRequest(one.method, server.text(one.url), {"Content-Type": "application/json"}, one.body.encode())
        begun = time.monotonic()
        response = send_request(request, _ADMIN_SECONDS)
        if not isinstance(response, HttpResponse) or not 200 <= response.status < 300:
            took = time.monotonic() - begun
            what = f"status {response.status}" if isinstance(response, HttpResponse) else str(response)
            raise OperationError(f"a change was refused after {took:.1f} s: {what}", where=request.url)
