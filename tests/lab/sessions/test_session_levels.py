"""Sessions in a real Redis: what replicas share, and that no failure of the store makes an answer wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from latdoctor.errors import UsageError
from latdoctor.lab.redis_server import RedisServer
from latdoctor.lab.server.config import SessionsConfig
from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.session_metrics import SessionMetrics
from latdoctor.lab.server.sessions.conversation import recomputed
from latdoctor.lab.server.sessions.redis_store import KEY_PREFIX, StoreFailure
from latdoctor.lab.server.sessions.session_levels import OpenSession, SessionLevel, SessionLevels
from latdoctor.lab.server.sessions.store_breaker import StoreBreaker
from latdoctor.load.text_tokens import state_checksum, text_tokens
from tests.lab.server.running_server import ADMIN, Running
from tests.lab.sessions.redis_servers import config_in_redis, in_redis

NOW = 100.0


class Replica:
    """The session levels of one server, with its counters."""

    def __init__(self, config: SessionsConfig, clock: Callable[[], float] = lambda: NOW, max_tokens: int = 512) -> None:
        self.metrics = ServerMetrics("r", "cpu")
        self.levels = SessionLevels(config, max_tokens, SessionMetrics(self.metrics), threading.Lock(), clock)

    def turn(self, session: str, said: list[str], text: str) -> OpenSession:
        """One turn; `said` grows by it."""
        opened = self.levels.open_session(session, tuple(said))
        self.levels.add_turn(opened, text, text_tokens(text))
        said.append(text)
        return opened

    def counted(self, name: str, label: str = "") -> float:
        families = text_string_to_metric_families(self.metrics.page().decode())
        values = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and (not label or label in sample.labels.values())
        ]
        return sum(values)


def is_true(opened: OpenSession, said: Sequence[str]) -> bool:
    """Whether the history is the end of what was said."""
    truth = [token for text in said for token in text_tokens(text)]
    got = list(opened.tokens)
    return not got or truth[-len(got) :] == got


def test_a_conversation_goes_on_at_another_replica(redis_server: RedisServer) -> None:
    one, other = Replica(in_redis(redis_server)), Replica(in_redis(redis_server))
    said: list[str] = []
    levels = [replica.turn("s", said, text).level for replica, text in ((one, "a b"), (other, "c"), (one, "d"))]
    assert levels == [SessionLevel.NONE, SessionLevel.REDIS, SessionLevel.REDIS]
    assert other.counted("ref_session_reused_tokens_total") == 2


def test_turns_made_again_that_do_not_fit_are_not_counted() -> None:
    replica, said = Replica(SessionsConfig(window_turns=0), max_tokens=4), list[str]()
    replica.turn("s", said, "a b")
    said += ["c d e", "f g h", "i j k"]  # answered elsewhere
    opened = replica.turn("s", said, "l")
    assert opened.tokens == tuple(text_tokens("i j k"))
    assert opened.recomputed_tokens == 3
    assert replica.counted("ref_session_reused_tokens_total") == 0


def test_only_the_new_tokens_are_sent(redis_server: RedisServer) -> None:
    replica, said = Replica(in_redis(redis_server, window_turns=5)), []  # type: tuple[Replica, list[str]]
    for _ in range(10):
        replica.turn("s", said, "word " * 40)
    written = replica.counted("ref_session_store_written_bytes_total")
    whole = replica.counted("ref_session_store_whole_bytes_total")
    assert whole == written / 10 * (1 + 2 + 3 + 4 + 5 * 6)
    with redis_server.client() as client:
        assert client.llen(KEY_PREFIX + "s") == 5
        assert 0 < int(client.pttl(KEY_PREFIX + "s")) <= 3600_000


def test_compressed_turns_take_fewer_bytes_and_are_the_same(redis_server: RedisServer) -> None:
    said: list[str] = []
    Replica(in_redis(redis_server, compress_bytes=64)).turn("s", said, "word " * 200)
    with redis_server.client() as client:
        assert len(client.lindex(KEY_PREFIX + "s", 0)) < 100
    opened = Replica(in_redis(redis_server)).turn("s", said, "b")
    assert (opened.level, opened.tokens) == (SessionLevel.REDIS, tuple(text_tokens("word " * 200)))


def test_the_process_level_saves_the_call(redis_server: RedisServer) -> None:
    replica, said = Replica(in_redis(redis_server, max_sessions=10)), []  # type: tuple[Replica, list[str]]
    assert [replica.turn("s", said, text).level for text in "abc"] == [
        SessionLevel.NONE,
        SessionLevel.PROCESS,
        SessionLevel.PROCESS,
    ]
    assert replica.counted("ref_session_store_read_bytes_total") == 0
    assert Replica(in_redis(redis_server)).turn("s", said, "d").level is SessionLevel.REDIS


def test_a_later_turn_is_never_overwritten_by_an_earlier_one(redis_server: RedisServer) -> None:
    one, other = Replica(in_redis(redis_server)), Replica(in_redis(redis_server))
    said = ["a"]
    one.levels.add_turn(one.levels.open_session("s", ()), "a", text_tokens("a"))
    slow = one.levels.open_session("s", tuple(said))  # of "b", which is answered last
    other.turn("s", [*said, "b"], "c")
    one.levels.add_turn(slow, "b", text_tokens("b"))
    assert one.counted("ref_session_superseded_total") == 1
    opened = one.levels.open_session("s", ("a", "b", "c"))
    assert (opened.level, opened.behind, opened.tokens) == (SessionLevel.REDIS, 0, tuple(text_tokens("a b c")))


def test_an_old_state_with_higher_numbers_is_replaced(redis_server: RedisServer) -> None:
    """As after a partition: the store was not readable when the conversation was made again from a short transcript."""
    replica, old = Replica(in_redis(redis_server)), []  # type: tuple[Replica, list[str]]
    for number in range(10):
        replica.turn("s", old, f"old {number}")
    made = recomputed(["x"])
    assert made is not None
    opened = OpenSession("s", SessionLevel.RECOMPUTED, made, verified=True)
    replica.levels.add_turn(opened, "y", text_tokens("y"))
    assert replica.levels.open_session("s", ("x", "y")).level is SessionLevel.REDIS


def test_without_transcripts_turns_of_two_replicas_are_all_kept(redis_server: RedisServer) -> None:
    one, other = Replica(in_redis(redis_server)), Replica(in_redis(redis_server))
    opened = [replica.levels.open_session("s", None) for replica in (one, other)]
    for replica, session, text in zip((one, other), opened, ("a", "b"), strict=True):
        replica.levels.add_turn(session, text, text_tokens(text))
    assert one.levels.open_session("s", None).tokens == tuple(text_tokens("a b"))


steps = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["answered", "in-flight", "flush"])), max_size=14)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, process=st.integers(0, 2))
def test_whatever_the_order_of_answers_the_history_is_what_was_said(
    redis_server: RedisServer, steps: list[tuple[int, str]], process: int
) -> None:
    redis_server.flush()
    replicas = [Replica(in_redis(redis_server, max_sessions=process, window_turns=3)) for _ in range(2)]
    said: list[str] = []
    waiting: list[tuple[Replica, OpenSession, str]] = []
    for number, (which, what) in enumerate(steps):
        if what == "flush":
            redis_server.flush()
            continue
        opened = replicas[which].levels.open_session("s", tuple(said))
        assert is_true(opened, said)
        assert bool(opened.tokens) == bool(said)
        text = f"turn {number}"
        said.append(text)
        waiting.append((replicas[which], opened, text))
        if what == "answered":
            for replica, session, earlier in reversed(waiting):  # the latest is answered first
                replica.levels.add_turn(session, earlier, text_tokens(earlier))
            waiting.clear()


def full(server: RedisServer) -> None:
    server.set_limit(1, "noeviction")


def killed(server: RedisServer) -> None:
    server.kill()


FAILURES: dict[str, tuple[Callable[[RedisServer], None], StoreFailure]] = {
    "killed": (killed, StoreFailure.CONNECTION),
    "full": (full, StoreFailure.FULL),
    "failed-over-to-a-replica": (RedisServer.demote, StoreFailure.READ_ONLY),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_store_that_fails_costs_work_and_no_answer(redis_server: RedisServer, name: str) -> None:
    fail, reason = FAILURES[name]
    said: list[str] = []
    with Running(config_in_redis(redis_server, window_turns=2)) as server:

        def turn(text: str) -> str:
            answer = server.ask(text=text, session="s", transcript=said[-20:])
            assert answer.status_code == 200
            use = answer.json()["session"]
            truth = [token for earlier in said for token in text_tokens(earlier)]
            assert use["checksum"] == state_checksum(truth[len(truth) - use["tokens"] :])
            assert bool(use["tokens"]) == bool(said)
            said.append(text)
            return str(use["level"])

        assert [turn(f"before {number}") for number in range(3)] == ["none", "redis", "redis"]
        fail(redis_server)
        assert [turn(f"during {number}") for number in range(6)][-1] == "recomputed"
        page = server.page()
        assert page["ref_session_store_errors_total", reason] > 0
        assert page["ref_session_store_up", ""] == (name != "killed")
        if name == "killed":
            assert page["ref_session_store_breaker_open", ""] == 1
            assert page["ref_session_store_skipped_total", ""] > 0
            redis_server.start()
        redis_server.promote()
        redis_server.set_limit(0, "noeviction")
        assert server.client.patch(
            "/admin/config", json={"sessions": {"store_breaker_open_ms": 1}}, headers={**ADMIN, "if-match": "*"}
        ).is_success
        server.until(lambda: turn("again") == "redis")


def test_a_silent_store_is_not_waited_for_twice(redis_server: RedisServer) -> None:
    replica = Replica(in_redis(redis_server, store_timeout_ms=50, store_breaker_failures=1))
    said: list[str] = []
    replica.turn("s", said, "a")
    with redis_server.client() as client:
        client.execute_command("CLIENT", "PAUSE", 3000, "ALL")
    opened = replica.turn("s", said, "b")
    assert (opened.level, is_true(opened, ["a"])) == (SessionLevel.RECOMPUTED, True)
    assert replica.counted("ref_session_store_errors_total", "timeout") == 1
    assert replica.counted("ref_session_store_skipped_total") == 1  # the write of the same request
    assert replica.levels.breaker_open


def test_what_is_no_conversation_is_not_used(redis_server: RedisServer) -> None:
    replica = Replica(in_redis(redis_server))
    with redis_server.client() as client:
        client.rpush(KEY_PREFIX + "s", b"rubbish")
    opened = replica.turn("s", ["a"], "b")
    assert opened.level is SessionLevel.RECOMPUTED
    assert replica.counted("ref_session_store_errors_total", "corrupt") == 1
    assert replica.turn("s", ["a", "b"], "c").level is SessionLevel.REDIS  # it was replaced


def test_an_evicting_store_loses_states_and_says_so(redis_server: RedisServer) -> None:
    with Running(config_in_redis(redis_server)) as server:
        for number in range(50):
            assert server.ask(text="word " * 50, session=f"s{number}", transcript=[]).status_code == 200
        redis_server.set_limit(1, "allkeys-lru")
        assert server.ask(text="b", session="s0", transcript=["word " * 50]).json()["session"]["level"] == "recomputed"
        assert server.page()["ref_session_store_evicted_total", ""] > 0


def test_the_limit_of_the_store_is_raised_and_given_back(redis_server: RedisServer) -> None:
    redis_server.set_limit(5 << 20, "noeviction")
    with Running(config_in_redis(redis_server)) as server:

        def limit(mebibytes: float) -> float:
            change = {"sessions": {"store_limit_mib": mebibytes}}
            answer = server.client.patch("/admin/config", json=change, headers={**ADMIN, "if-match": "*"})
            assert answer.is_success
            return server.page()["ref_session_store_limit_bytes", ""]

        assert [limit(mebibytes) for mebibytes in (8, 16, 0)] == [8 << 20, 16 << 20, 5 << 20]


def test_a_limit_that_cannot_be_set_changes_nothing(redis_server: RedisServer) -> None:
    redis_server.kill()
    replica = Replica(in_redis(redis_server))
    with pytest.raises(UsageError, match="maxmemory"):
        replica.levels.configure(in_redis(redis_server, store_limit_mib=8))
    redis_server.start()
    replica.levels.configure(in_redis(redis_server, store_limit_mib=8))
    figures = replica.levels.figures()
    assert figures is not None
    assert figures.limit_bytes == 8 << 20


def test_the_limit_is_given_back_after_other_changes(redis_server: RedisServer) -> None:
    redis_server.set_limit(5 << 20, "noeviction")
    replica = Replica(in_redis(redis_server))
    for changed in ({"store_limit_mib": 8}, {"store_limit_mib": 8, "ttl_s": 900}, {"ttl_s": 900}):
        replica.levels.configure(in_redis(redis_server, **changed))
    assert redis_server.limit()[0] == 5 << 20
    replica.turn("s", [], "a")
    with redis_server.client() as client:
        assert int(client.pttl(KEY_PREFIX + "s")) <= 900_000


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lfu"])
def test_a_shorter_time_to_live_holds_for_what_is_stored_already(redis_server: RedisServer, policy: str) -> None:
    """An hour before, a quarter of an hour now: for sessions used just now, 20 min ago and 10 min ago."""
    replica = Replica(in_redis(redis_server))
    redis_server.set_limit(0, policy)
    with redis_server.client() as client:
        for session, idle in {"now": 0, "long-ago": 1200, "before": 600}.items():
            replica.turn(session, [], "a")
            key = KEY_PREFIX + session
            left, stored = (3600 - idle) * 1000, client.dump(key)
            client.restore(key, left, stored, replace=True, **({} if "lfu" in policy else {"idletime": idle}))
        client.set("of-another-application", "1")
        for _ in range(2):  # two replicas do the same
            replica.levels.configure(in_redis(redis_server, ttl_s=900))
            replica.levels.configure(in_redis(redis_server, ttl_s=901))
        left = {name: client.pttl(KEY_PREFIX + name) / 1000 for name in ("now", "long-ago", "before")}
        assert client.ttl("of-another-application") == -1
    if policy == "noeviction":
        assert left["long-ago"] < 0
        assert (left["now"], left["before"]) == (pytest.approx(900, abs=5), pytest.approx(300, abs=5))
    else:
        assert all(0 < one <= 900 for one in left.values())


def test_a_shorter_time_to_live_is_accepted_without_the_store(redis_server: RedisServer) -> None:
    replica = Replica(in_redis(redis_server))
    redis_server.kill()
    replica.levels.configure(in_redis(redis_server, ttl_s=900))
    redis_server.start()
    replica.turn("s", [], "a")
    with redis_server.client() as client:
        assert int(client.pttl(KEY_PREFIX + "s")) <= 900_000


def test_sessions_return_to_the_process_where_the_store_is_bypassed(redis_server: RedisServer) -> None:
    replica, said = Replica(in_redis(redis_server)), []  # type: tuple[Replica, list[str]]
    replica.turn("s", said, "a")
    replica.levels.configure(SessionsConfig())
    assert [replica.turn("s", said, text).level for text in "bc"] == [SessionLevel.RECOMPUTED, SessionLevel.PROCESS]
    assert replica.levels.figures() is None


def test_the_breaker_probes_once_in_a_while() -> None:
    breaker = StoreBreaker(2, 10.0)
    breaker.failed(0.0)
    assert breaker.allows(0.0)
    breaker.failed(0.0)
    assert [breaker.allows(now) for now in (0.0, 9.9, 10.0, 10.1, 20.0)] == [False, False, True, False, True]
    breaker.succeeded()
    assert breaker.allows(20.1)


def test_a_breaker_of_zero_failures_never_opens() -> None:
    breaker = StoreBreaker(0, 10.0)
    for _ in range(10):
        breaker.failed(0.0)
    assert breaker.allows(0.0)
    assert not breaker.is_open
