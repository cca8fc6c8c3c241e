"""Connections to Redis, by its address or by Sentinel, which names the primary; and when another primary took over."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latdoctor.lab.server.config import SessionsConfig

if TYPE_CHECKING:
    import redis

_CONNECTIONS = 100


def connected(
    settings: SessionsConfig, password: str | None, seconds: float, max_connections: int = _CONNECTIONS
) -> redis.Redis:
    """A client of the primary; each connection and reply takes `seconds` at most. Raises ImportError without redis-py.

    By Sentinel, each new connection asks for the primary first; Sentinels have the password of Redis.
    """
    import redis
    from redis import sentinel
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    shared: dict[str, Any] = {
        **{"password": password, "protocol": 2, "retry": Retry(NoBackoff(), 0), "driver_info": None},
        **{"socket_timeout": seconds, "socket_connect_timeout": seconds},
    }
    if settings.sentinel_primary:
        untyped: Any = sentinel  # as redis-py is here
        sentinels = untyped.Sentinel(settings.redis_addresses, sentinel_kwargs=shared)
        client: redis.Redis = sentinels.master_for(settings.sentinel_primary, max_connections=max_connections, **shared)
        return client
    ((host, port),) = settings.redis_addresses
    return redis.Redis(host=host, port=port, max_connections=max_connections, **shared)


class FailoverCount:
    """How often another server took over the data, by what INFO says. Safe from every thread.

    A promoted replica continues the history of writes of its old primary (`master_replid2`), in another process
    (`run_id`); a server that was restarted begins a history of its own.
    """

    def __init__(self) -> None:
        self._count = 0
        self._run = self._history = ""
        self._lock = threading.Lock()

    def after(self, info: Mapping[str, Any]) -> int:
        """The count with this reply of INFO."""
        run, history = str(info.get("run_id", "")), str(info.get("master_replid", ""))
        with self._lock:
            if self._history and run != self._run and info.get("master_replid2") == self._history:
                self._count += 1
            self._run, self._history = run, history
            return self._count
