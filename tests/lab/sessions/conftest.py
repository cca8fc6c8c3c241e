"""One real Redis for each module of this folder, empty for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latdoctor.lab.redis_server import RedisServer
from tests.lab.sessions.redis_servers import running_redis


@pytest.fixture(scope="module")
def one_redis() -> Iterator[RedisServer]:
    with pytest.MonkeyPatch.context() as patched, running_redis(patched) as server:
        yield server


@pytest.fixture
def redis_server(one_redis: RedisServer) -> RedisServer:
    if not one_redis.running:
        one_redis.start()
    one_redis.promote()
    one_redis.set_limit(0, "noeviction")
    one_redis.flush()
    return one_redis
