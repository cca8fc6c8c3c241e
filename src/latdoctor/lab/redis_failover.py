"""A replicated session store: a real primary, a replica that lags behind it, and Sentinel, which fails over.

Replication is asynchronous: what the primary confirmed and the replica has not received is lost with the primary.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import msgspec

from latdoctor.errors import OperationError
from latdoctor.lab.child_process import FaultProxyProcess
from latdoctor.lab.faults.toxics import Blackhole, Latency, Toxic
from latdoctor.lab.redis_server import READY_WITHIN, RedisProcess, RedisServer, RedisSettings, ReplicaSettings

_DOWN_AFTER = 1000  # milliseconds without an answer, until Sentinel holds a server for down
_LEAVE_ALONE = 3_600_000  # milliseconds in which Sentinel does not lead the replica past the proxy to the primary
_EVERY = 0.05  # seconds
_LIFETIME = 3600.0  # of the lag, seconds


class Sentinel(RedisProcess):
    """`redis-server --sentinel`, alone, which watches one primary under `name`."""

    arguments = ("--sentinel",)

    def __init__(self, name: str, primary: RedisServer) -> None:
        super().__init__(primary.password)
        self.name = name
        self._primary = primary

    def primary_address(self) -> str:
        """HOST:PORT of the present primary. Raises OperationError."""
        with self._client() as client:
            known: Any = client.sentinel_masters()  # by name, unlike its declared type
        found = known[self.name]
        return f"{found['ip']}:{found['port']}"

    def can_fail_over(self) -> bool:
        """Whether it knows a replica in step with the primary. Raises OperationError."""
        with self._client() as client:
            return any(one.get("master-link-status") == "ok" for one in client.sentinel_slaves(self.name))

    def _config(self) -> tuple[str, ...]:
        return (
            f"sentinel monitor {self.name} {self._primary.host} {self._primary.port} 1",
            f"sentinel auth-pass {self.name} {self._primary.password}",
            f"sentinel down-after-milliseconds {self.name} {_DOWN_AFTER}",
            f"sentinel failover-timeout {self.name} {_LEAVE_ALONE}",
        )


class ReplicatedRedis:
    """Primary, replica and Sentinel; a context manager that ends them. Clients ask `sentinel` for `name`."""

    name = "sessions"

    def __init__(self, settings: RedisSettings, replica: ReplicaSettings) -> None:
        self.password = secrets.token_urlsafe(24)
        self.primary = RedisServer(settings, self.password)
        self.sentinel = Sentinel(self.name, self.primary)
        self._settings = settings
        self._lag = replica.lag_seconds
        self._link: FaultProxyProcess | None = None
        self._paused = False
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        """Returns when the replica has what the primary has, and Sentinel knows it.

        Raises OperationError, UsageError.
        """
        with self._ends:  # ends the started processes if a later one fails
            self._start()
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _start(self) -> None:
        self._ends.enter_context(self.primary)
        self._link = self._ends.enter_context(FaultProxyProcess(self.primary.address))
        self._link.wait_ready()
        replica = self._ends.enter_context(RedisServer(self._settings, self.password, self._link.address))
        _wait(replica.in_step, "the replica has what its primary has")
        if self._lag:
            self._add(Toxic("lag", Latency(self._lag), _LIFETIME))
        self._ends.enter_context(self.sentinel)
        _wait(self.sentinel.can_fail_over, "Sentinel knows the replica")

    def pause_replication(self) -> None:
        """The replica receives no further write."""
        if not self._paused:
            self._paused = True
            self._add(Toxic("pause", Blackhole(), _LIFETIME))

    def lose_primary(self) -> None:
        """SIGKILL for the primary, with what its replica has not received. Sentinel promotes the replica."""
        self.pause_replication()
        self.primary.kill()

    def restart_old_primary(self) -> None:
        """It begins empty; Sentinel makes it a replica."""
        self.primary.start()

    def wait_promoted(self) -> None:
        """Until Sentinel names another primary. Raises OperationError."""
        _wait(lambda: self.sentinel.primary_address() != self.primary.address, "Sentinel promoted the replica")

    def _add(self, toxic: Toxic) -> None:
        if self._link is None:
            raise RuntimeError("the store has not been started")
        self._link.admin.ask("POST", "/toxics", msgspec.to_builtins(toxic))


def _wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while not until():
        if time.monotonic() > deadline:
            raise OperationError(f"not within {READY_WITHIN:g} s: {what}")
        time.sleep(_EVERY)
