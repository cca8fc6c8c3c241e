"""A real Redis for tests: absent locally it skips, absent in CI it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from latdoctor.errors import UsageError
from latdoctor.lab.redis_server import RedisServer, redis_server_path
from latdoctor.lab.server.config import ServerConfig, SessionsConfig
from latdoctor.lab.server.sessions.redis_store import PASSWORD_VARIABLE


def need_redis() -> None:
    try:
        import redis

        assert redis
        redis_server_path()
    except (UsageError, ImportError) as error:
        reason = f"no Redis here: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def running_redis(patched: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server whose password the clients of this process have."""
    need_redis()
    with RedisServer() as server:
        patched.setenv(PASSWORD_VARIABLE, server.password)
        yield server


def in_redis(server: RedisServer, **settings: object) -> SessionsConfig:
    """Sessions in Redis alone, with a timeout that a loaded machine keeps."""
    known: dict[str, object] = {"max_sessions": 0, "store_timeout_ms": 5000, **settings}
    return SessionsConfig(store="redis", redis_address=server.address, **known)  # type: ignore[arg-type]


def config_in_redis(server: RedisServer, **settings: object) -> ServerConfig:
    return ServerConfig(sessions=in_redis(server, **settings))
