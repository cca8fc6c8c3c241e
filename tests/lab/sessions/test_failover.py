"""A real primary with a replica that lags: Sentinel promotes the replica, and what was lost is noticed and computed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latdoctor.errors import UsageError
from latdoctor.lab.faults.session_store import StoreFaultKind, store_fault
from latdoctor.lab.redis_failover import ReplicatedRedis
from latdoctor.lab.redis_server import RedisServer, RedisSettings, ReplicaSettings
from latdoctor.lab.server.config import ServerConfig, SessionsConfig
from latdoctor.lab.server.sessions.acknowledged_writes import AcknowledgedWrites
from latdoctor.lab.server.sessions.conversation import Conversation, turn_of
from latdoctor.lab.server.sessions.redis_connection import FailoverCount
from latdoctor.lab.server.sessions.redis_store import KEY_PREFIX, PASSWORD_VARIABLE
from latdoctor.lab.server.sessions.session_levels import SessionLevel
from latdoctor.load.text_tokens import text_tokens
from tests.lab.server.running_server import Running
from tests.lab.sessions.conversing_clients import Clients
from tests.lab.sessions.redis_servers import in_redis, need_redis
from tests.lab.sessions.test_session_levels import Replica

ANSWERS = 30


@pytest.fixture
def replicated(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicatedRedis]:
    need_redis()
    with ReplicatedRedis(RedisSettings(), ReplicaSettings()) as store:
        monkeypatch.setenv(PASSWORD_VARIABLE, store.password)
        yield store


def counted(servers: list[Running], name: str) -> float:
    return sum(server.page()[name, ""] for server in servers)


def test_after_a_failover_no_request_is_lost_and_no_answer_is_wrong(replicated: ReplicatedRedis) -> None:
    sessions = SessionsConfig(
        store="redis", redis_address=replicated.sentinel.address, sentinel_primary=replicated.name,
        max_sessions=0, window_turns=3, store_timeout_ms=500, store_breaker_open_ms=50,
    )  # fmt: skip
    with Running(ServerConfig(sessions=sessions)) as one, Running(ServerConfig(sessions=sessions)) as other:
        servers = [one, other]
        with Clients([server.url for server in servers]) as clients:
            clients.until_answered(ANSWERS)
            assert counted(servers, "ref_session_store_failovers_total") == 0
            replicated.pause_replication()
            clients.until_answered(ANSWERS)
            with store_fault(StoreFaultKind.FAIL_OVER, replicated, 600):
                replicated.wait_promoted()
                clients.until_level("redis")
                assert counted(servers, "ref_session_store_failovers_total") == len(servers)
        assert counted(servers, "ref_session_store_lost_writes_total") > 0
    assert clients.wrong == []
    assert clients.levels["recomputed"] > 0


def test_a_single_redis_cannot_be_failed_over(redis_server: RedisServer) -> None:
    with pytest.raises(UsageError, match="replica"), store_fault(StoreFaultKind.FAIL_OVER, redis_server, 60):
        pass


def state(*texts: str) -> Conversation:
    return Conversation(tuple(turn_of(number, text) for number, text in enumerate(texts)))


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (state("a", "b", "c"), False),
        (state("a", "b", "c", "d"), False),  # another server has written since
        (state("a", "b"), True),
        (state("a"), True),
        (state("x"), False),  # another conversation under the name: it was made anew
    ],
)
def test_only_a_state_before_the_confirmed_one_is_a_loss(found: Conversation, lost: bool) -> None:
    writes = AcknowledgedWrites()
    writes.confirmed("s", state("a", "b"))
    writes.confirmed("s", Conversation(state("a", "b", "c").turns[1:]))  # the window has dropped the first turn
    assert not has_lost(writes, "other", found)
    assert has_lost(writes, "s", found) is lost
    assert not has_lost(writes, "s", found)  # counted once


def has_lost(writes: AcknowledgedWrites, session: str, found: Conversation) -> bool:
    return writes.has_lost(session, writes.known(session), found)


def test_what_is_confirmed_during_a_read_is_not_missed_in_it() -> None:
    writes = AcknowledgedWrites()
    writes.confirmed("s", state("a", "b"))
    known = writes.known("s")
    writes.confirmed("s", state("a", "b", "c"))
    assert not writes.has_lost("s", known, state("a", "b"))
    assert writes.has_lost("s", known, state("a"))


def test_a_late_turn_that_this_server_wrote_over_later_ones_is_no_loss() -> None:
    writes = AcknowledgedWrites()
    writes.confirmed("s", state("a", "b", "c"))
    writes.confirmed("s", state("a", "b"))
    assert not has_lost(writes, "s", state("a", "b"))
    assert has_lost(writes, "s", state("a"))


def test_the_oldest_sessions_are_forgotten() -> None:
    writes = AcknowledgedWrites(sessions=2)
    for session in "abc":
        writes.confirmed(session, state("1", "2"))
    assert [has_lost(writes, session, state("1")) for session in "abc"] == [False, True, True]


def info(run: str, history: str, before: str = "0" * 40) -> dict[str, object]:
    return {"run_id": run, "master_replid": history, "master_replid2": before}


def test_a_promoted_replica_is_counted_and_a_restart_is_not() -> None:
    count = FailoverCount()
    replies = (
        info("a", "1"),
        info("a", "1"),
        info("b", "2", "1"),
        info("b", "2", "1"),
        info("c", "3"),
        info("b", "2", "1"),
    )
    assert [count.after(reply) for reply in replies] == [0, 0, 1, 1, 1, 1]


def test_without_a_transcript_the_later_state_is_used(redis_server: RedisServer) -> None:
    """As after a failover: the store has an older state than this server wrote there."""
    replica = Replica(in_redis(redis_server, max_sessions=10))
    for text in ("a", "b"):
        replica.levels.add_turn(replica.levels.open_session("s", None), text, text_tokens(text))
    with redis_server.client() as client:
        client.rpop(KEY_PREFIX + "s")
    opened = replica.levels.open_session("s", None)
    assert (opened.level, opened.tokens) == (SessionLevel.PROCESS, tuple(text_tokens("a b")))
    assert replica.counted("ref_session_store_lost_writes_total") == 1
    replica.levels.add_turn(opened, "c", text_tokens("c"))
    again = Replica(in_redis(redis_server)).levels.open_session("s", None)
    assert (again.level, again.tokens) == (SessionLevel.REDIS, tuple(text_tokens("a b c")))
