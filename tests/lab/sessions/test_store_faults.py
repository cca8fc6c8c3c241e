"""Faults of a real Redis: each takes effect, and what ends it restores the store."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from latdoctor.errors import UsageError
from latdoctor.lab.faults.injection import InjectionTargets, SessionStoreFault, inject
from latdoctor.lab.faults.session_store import StoreFaultKind, store_fault
from latdoctor.lab.redis_server import RedisControl, RedisServer
from tests.waiting import comes_about


def writes(server: RedisServer, name: str = "x") -> str:
    """How a write of one key ends: ok, or the kind of error."""
    import redis

    try:
        with server.client() as client:
            client.set(name, "1")
    except redis.RedisError as error:
        return type(error).__name__
    return "ok"


@pytest.mark.parametrize(
    ("kind", "during"),
    [
        (StoreFaultKind.KILL, "ConnectionError"),
        (StoreFaultKind.FULL, "OutOfMemoryError"),
        (StoreFaultKind.DEMOTE, "ReadOnlyError"),
    ],
)
def test_writes_fail_during_the_fault_and_not_after(
    redis_server: RedisServer, kind: StoreFaultKind, during: str
) -> None:
    with store_fault(kind, redis_server, 60):
        assert writes(redis_server) == during
    assert writes(redis_server) == "ok"


def test_a_fault_ends_by_itself_after_its_lifetime(redis_server: RedisServer) -> None:
    with store_fault(StoreFaultKind.FULL, redis_server, 0.05):
        assert comes_about(lambda: writes(redis_server) == "ok", 10)


def test_an_evicting_store_drops_what_it_holds(redis_server: RedisServer) -> None:
    writes(redis_server)
    with store_fault(StoreFaultKind.EVICT, redis_server, 60), redis_server.client() as client:
        assert comes_about(lambda: not client.exists("x"), 30)
        assert client.info("stats")["evicted_keys"] > 0
        assert writes(redis_server) == "ok"
    assert redis_server.limit() == (0, "noeviction")
    with redis_server.client() as client:
        assert client.dbsize() <= 1


def test_a_store_is_emptied_again_and_again(redis_server: RedisServer) -> None:
    with store_fault(StoreFaultKind.EMPTY, redis_server, 60), redis_server.client() as client:
        for _ in range(2):
            assert writes(redis_server) == "ok"
            assert comes_about(lambda: client.dbsize() == 0, 10)


def test_a_limit_that_an_operator_has_set_meanwhile_is_kept(redis_server: RedisServer) -> None:
    with store_fault(StoreFaultKind.FULL, redis_server, 60):
        redis_server.set_limit(64 << 20, "noeviction")
    assert redis_server.limit() == (64 << 20, "noeviction")


def test_a_foreign_store_cannot_be_killed(redis_server: RedisServer) -> None:
    foreign = RedisControl(redis_server.host, redis_server.port, redis_server.password)
    with pytest.raises(UsageError, match="killed"), store_fault(StoreFaultKind.KILL, foreign, 60):
        pass


def test_without_a_store_the_fault_says_what_it_needs() -> None:
    with ExitStack() as undo, pytest.raises(UsageError, match="session store"):
        inject(SessionStoreFault(StoreFaultKind.FULL), InjectionTargets(), undo)
