"""Supervisor of the replica processes: starts them, probes readiness, replaces lost ones."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server import parent_watch
from latdoctor.lab.server.replica_pool import ReplicaPool, ReplicaState


class ReplicaCommand(Struct, frozen=True):
    """The command of one replica, and its address."""

    name: str
    argv: tuple[str, ...]
    url: str  # http://host:port, the same as in the pool
    ready_path: str = "/readyz"  # 200: ready; anything else: not
    environment: dict[str, str] = {}  # added to the supervisor's own
    log: str = ""  # a file for its output; empty: stderr is inherited, stdout discarded


class SupervisorTimeouts(Struct, frozen=True):
    """Intervals and timeouts of the supervisor, in seconds."""

    probe_every: float = 0.25
    probe_timeout: float = 2.0
    failed_probes: int = 3  # so many in a row make a replica unready; an answer other than 200 does at once
    start: float = 120.0  # a process that is not ready by then is replaced
    first_pause: float = 0.1  # before a replacement; doubles while none of them becomes ready
    longest_pause: float = 5.0
    drain: float = 30.0  # between SIGTERM and SIGKILL


class _Readiness(Struct):
    """What a ready URL reports of the model."""

    model_version: str = ""


_READINESS = msgspec.json.Decoder(_Readiness)
_MOST_BYTES = 4096
_MOST_VERSION = 40
# The command of a further replica with this name, on a free port.
CommandOf = Callable[[str], ReplicaCommand]


class Supervisor:
    """One process for each command. Updates the replica states in the pool."""

    def __init__(
        self,
        pool: ReplicaPool,
        commands: Sequence[ReplicaCommand],
        timeouts: SupervisorTimeouts | None = None,
        command_of: CommandOf | None = None,
        most: int = 0,
    ) -> None:
        """`command_of`: makes the commands of further replicas, up to `most`; without it their number is fixed.

        Raises UsageError where the commands are not those of the pool.
        """
        if sorted(command.name for command in commands) != sorted(one.name for one in pool.statuses()):
            raise UsageError("the supervisor needs exactly one command for each replica of the pool")
        self._pool = pool
        self._commands = {command.name: command for command in commands}  # but for those that are being removed
        self._timeouts = timeouts or SupervisorTimeouts()
        self._command_of, self._most = command_of, max(most, len(commands))
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by replica: it is supervised, or removed
        self._session: aiohttp.ClientSession | None = None

    @property
    def replicas(self) -> int:
        """How many there should be: those that are being removed do not count."""
        return len(self._commands)

    async def start(self) -> None:
        """Starts every process; wait for readiness with `ReplicaPool.until`."""
        timeout = aiohttp.ClientTimeout(total=self._timeouts.probe_timeout)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True))
        for command in self._commands.values():
            self._tasks[command.name] = asyncio.create_task(self._supervise(command, self._session))

    async def stop(self) -> None:
        """SIGTERM to all, SIGKILL to those that have not ended in time. Returns when all have ended."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        await asyncio.gather(*(self._end(process) for process in self._processes.values()))
        if self._session is not None:
            await self._session.close()

    def scale(self, replicas: int) -> None:
        """So many replicas from now on: new ones start, or the newest take no more requests and end.

        Raises UsageError beyond what is permitted, OperationError where the number is fixed.
        """
        if self._command_of is None or self._session is None:
            raise OperationError("the number of replicas of this router is fixed")
        if not 1 <= replicas <= self._most:
            raise UsageError(f"replicas must be from 1 to {self._most} (got {replicas})")
        for name in list(self._commands)[replicas:]:
            self._retire(name)
        while len(self._commands) < replicas:
            known = {one.name for one in self._pool.statuses()}
            command = self._command_of(next(str(n) for n in itertools.count() if str(n) not in known))
            self._pool.add(command.name, command.url)
            self._commands[command.name] = command
            self._tasks[command.name] = asyncio.create_task(self._supervise(command, self._session))

    def _retire(self, name: str) -> None:
        del self._commands[name]
        supervised = self._tasks[name]
        self._pool.drain(name)
        self._tasks[name] = asyncio.create_task(self._remove(name, supervised))

    async def _remove(self, name: str, supervised: asyncio.Task[None]) -> None:
        """End the process, which completes its requests first, and forget the replica."""
        supervised.cancel()
        await asyncio.wait({supervised})
        if process := self._processes.get(name):
            await self._end(process)
            del self._processes[name]
        self._pool.remove(name)
        del self._tasks[name]

    async def replace(self, name: str) -> None:
        """Drains the replica and ends its process; a new one takes its place.

        Raises UsageError for an unknown name, OperationError where it has no process now or is being replaced already:
        a second SIGTERM makes a process drop its requests.
        """
        process = self._running(name)
        if self._pool.known(name).state is ReplicaState.DRAINING:
            raise OperationError(f"replica {name} is being replaced already", next_step="wait until it is ready")
        self._pool.drain(name)
        await self._end(process)

    def kill(self, name: str) -> None:
        """SIGKILL for the replica's process, as when its machine is lost; a new one takes its place.

        Raises UsageError for an unknown name, OperationError where it has no process now.
        """
        self._running(name).kill()

    def _running(self, name: str) -> asyncio.subprocess.Process:
        process = self._processes.get(self._pool.known(name).name)
        if process is None or process.returncode is not None:
            raise OperationError(f"replica {name} has no process now", next_step="it is being replaced already")
        return process

    async def _supervise(self, command: ReplicaCommand, session: aiohttp.ClientSession) -> None:
        pause = self._timeouts.first_pause
        while True:
            process = await self._spawn(command)
            watch = asyncio.create_task(self._watch(command, process, session))
            try:
                await process.wait()
            finally:
                watch.cancel()
                await asyncio.wait({watch})
            was_ready = self._pool.known(command.name).state is not ReplicaState.STARTING
            self._pool.lost(command.name)
            pause = self._timeouts.first_pause if was_ready else min(pause * 2, self._timeouts.longest_pause)
            await asyncio.sleep(pause)

    async def _spawn(self, command: ReplicaCommand) -> asyncio.subprocess.Process:
        with ExitStack() as opened:
            log = opened.enter_context(Path(command.log).open("ab")) if command.log else None
            process = await asyncio.create_subprocess_exec(
                *parent_watch.watched(*command.argv),
                stdin=subprocess.DEVNULL,
                stdout=log or subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **command.environment},
                start_new_session=True,  # Ctrl-C is for the router, which then drains the replicas
            )
        self._processes[command.name] = process
        self._pool.started(command.name, process.pid)
        return process

    async def _watch(
        self, command: ReplicaCommand, process: asyncio.subprocess.Process, session: aiohttp.ClientSession
    ) -> None:
        """Probes while the process runs; ends the process where it does not become ready."""
        deadline, failed = time.monotonic() + self._timeouts.start, 0
        while True:
            switches = self._pool.known(command.name).switches
            status, version = await _probe(session, command)
            self._pool.serves(command.name, version, switches)
            failed = 0 if status is not None else failed + 1
            if status == 200:
                self._pool.ready(command.name)
            elif status is not None or failed >= self._timeouts.failed_probes:
                self._pool.unready(command.name)
            if self._pool.known(command.name).state is ReplicaState.STARTING and time.monotonic() > deadline:
                await self._end(process)
            await asyncio.sleep(self._timeouts.probe_every)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._timeouts.drain):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _probe(session: aiohttp.ClientSession, command: ReplicaCommand) -> tuple[int | None, str]:
    """The status of the ready URL (None: no answer), and the version of the model that it reports."""
    try:
        async with session.get(command.url + command.ready_path) as answer:
            return answer.status, _version(await answer.content.read(_MOST_BYTES))
    except (aiohttp.ClientError, TimeoutError):
        return None, ""


def _version(body: bytes) -> str:
    try:
        return _READINESS.decode(body).model_version[:_MOST_VERSION]
    except UNDECODABLE:  # another server's page
        return ""


def free_ports(count: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """`count` ports that are free now; another process may take one before it is used."""
    with ExitStack() as opened:
        held = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind((host, 0))
        return tuple(int(one.getsockname()[1]) for one in held)
