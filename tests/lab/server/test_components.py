"""Sessions, tokens, stages, the lock, the access log, the dependency: each component alone."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.dependency_service import StoreSettings
from latdoctor.lab.dependency_service import build as build_store
from latdoctor.lab.hardened_http_server import HttpServer
from latdoctor.lab.server.config import DependencyConfig, ServerConfig, SessionsConfig
from latdoctor.lab.server.dependency_client import DependencyClient
from latdoctor.lab.server.inference_server import ServerIdentity
from latdoctor.lab.server.intent_request import IntentRequest, RequestContext
from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.sessions.conversation import Conversation, Turn, windowed
from latdoctor.lab.server.sessions.in_process_store import InProcessStore
from latdoctor.lab.server.stages import Call, Stages, TimedLock
from latdoctor.lab.server.tokenizer import audio_frames
from latdoctor.load.text_tokens import VOCABULARY, text_tokens
from tests.lab.server.fakes import PATIENCE
from tests.lab.server.running_server import Running


def context(**asked: object) -> RequestContext:
    return RequestContext(IntentRequest(**asked), "r1", 0.0, 0.0)  # type: ignore[arg-type]


def conversation(*turns: Sequence[int]) -> list[Turn]:
    return [Turn(number, b"digest-8", tuple(tokens)) for number, tokens in enumerate(turns)]


def test_a_window_keeps_the_newest_turns() -> None:
    kept, trimmed = windowed(conversation([1], [2, 2], [3]), 2, 512)
    assert (kept.tokens, trimmed) == ((2, 2, 3), 1)


def test_without_a_window_history_grows_up_to_what_a_model_can_read() -> None:
    kept, trimmed = windowed(conversation(*[[7] * 10] * 500), 0, 512)
    assert (len(kept.tokens), trimmed) == (510, 0)  # the window dropped none


def one_turn(*tokens: int) -> Conversation:
    return Conversation(tuple(conversation(tokens)))


def test_a_session_expires_by_its_last_use() -> None:
    store = InProcessStore(SessionsConfig(ttl_s=10))
    store.write("a", one_turn(1), 0.0)
    store.write("b", one_turn(2), 5.0)
    assert store.read("a", 9.0) == one_turn(1)
    assert store.read("b", 15.0) is None
    assert store.read("a", 18.9) == one_turn(1)
    assert len(store) == 1


def test_no_time_to_live_forgets_at_once() -> None:
    store = InProcessStore(SessionsConfig(ttl_s=0))
    store.write("a", one_turn(1), 0.0)
    assert store.read("a", 0.0) is None


@given(st.lists(st.sampled_from("abcdef"), max_size=60), st.integers(0, 4))
def test_sessions_never_exceed_their_number_and_forget_the_least_used(uses: list[str], most: int) -> None:
    store = InProcessStore(SessionsConfig(max_sessions=most))
    for at, name in enumerate(uses):
        store.write(name, one_turn(1), float(at))
        assert len(store) <= most
    recent = list(dict.fromkeys(reversed(uses)))
    known = [name for name in "abcdef" if store.read(name, float(len(uses))) is not None]
    assert known == sorted(recent[:most])


@given(st.text(max_size=300))
def test_tokens_are_in_the_vocabulary_and_always_the_same(text: str) -> None:
    tokens = text_tokens(text)
    assert tokens == text_tokens(text)
    assert all(0 < token < VOCABULARY for token in tokens)
    assert len(tokens) <= len(text.lower())


def test_tokens_are_the_same_ids_for_the_same_text() -> None:
    assert text_tokens("Where is my order?") == text_tokens("where IS my order ?")
    assert len(text_tokens("Where is my order?")) == 5
    assert len(text_tokens("a" * 33)) == 3


def test_audio_has_25_frames_a_second() -> None:
    frames = audio_frames(17.2, 80)
    assert (frames.shape, frames.dtype) == ((430, 80), np.float32)
    assert np.array_equal(frames, audio_frames(17.2, 80))
    assert audio_frames(0.001, 80).shape == (1, 80)


class Trail:
    """Stages that note that they were passed."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.seconds: list[str] = []
        self.threads = ThreadPoolExecutor(1)
        calls = {name: self._call(name) for name in ("preprocess", "session", "features", "postprocess", "send")}
        observe = {name: self._seen(name) for name in ("preprocess", "session", "dependency", "postprocess")}
        self.stages = Stages(calls, self._dependency, observe, self.threads)

    def _call(self, name: str) -> Call:
        def call(_: RequestContext) -> bool:
            self.passed.append(name)
            return name != "session"

        return call

    def _seen(self, name: str):  # type: ignore[no-untyped-def]
        return lambda _: self.seconds.append(name)

    async def _dependency(self, _: RequestContext) -> bool:
        self.passed.append("dependency")
        return False

    def run(self) -> list[str]:
        async def both() -> None:
            await self.stages.before(context(text="a"))
            await self.stages.after(context(text="a"))

        self.passed.clear()
        asyncio.run(both())
        return list(self.passed)


ORDER = ["preprocess", "session", "features", "dependency", "postprocess", "send"]


def test_stages_run_in_order_and_only_what_was_done_is_measured() -> None:
    trail = Trail()
    assert trail.run() == ORDER
    assert trail.seconds == ["preprocess", "postprocess"]


def test_a_stage_is_wrapped_and_unwrapped_while_the_server_runs() -> None:
    trail = Trail()

    def around(word: str):  # type: ignore[no-untyped-def]
        def wrapper(inner: Call) -> Call:
            def call(passing: RequestContext) -> bool:
                trail.passed.append(word)
                return inner(passing)

            return call

        return wrapper

    take_a = trail.stages.wrap("session", around("a"))
    take_b = trail.stages.wrap("session", around("b"))
    assert trail.run() == ["preprocess", "b", "a", "session", *ORDER[2:]]
    take_a()
    take_a()
    assert trail.run() == ["preprocess", "b", "session", *ORDER[2:]]
    take_b()
    assert trail.run() == ORDER
    with pytest.raises(UsageError, match="no stage"):
        trail.stages.wrap("forward", around("c"))


def test_the_lock_reports_each_wait() -> None:
    waits: list[float] = []
    lock = TimedLock(waits.append)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            assert leave.wait(PATIENCE)

    def wait() -> None:
        with lock:
            pass

    holder, waiter = threading.Thread(target=hold), threading.Thread(target=wait)
    holder.start()
    assert inside.wait(PATIENCE)
    waiter.start()
    leave.set()
    holder.join(PATIENCE)
    waiter.join(PATIENCE)
    assert waits[0] == 0.0
    assert len(waits) == 2
    wait()
    assert waits[2] == 0.0


def test_the_access_log_has_a_line_for_each_answer(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with Running(identity=ServerIdentity("r7", access_log=log)) as server:
        server.ask(text="a", request_id="mine")
        server.ask(text=5)
        server.ask(text="a b c", session="s-7")
        server.ask(text="d e", session="s-7")
        server.ask(audio_seconds=2)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line.get("session"), line.get("input_tokens")) for line in lines[2:]] == [
        ("s-7", 3),
        ("s-7", 2),  # without the history
        (None, 50),
    ]
    del lines[2:]
    assert [(line["status"], line["request_id"], line["reason"], line["replica"]) for line in lines] == [
        (200, "mine", "model", "r7"),
        (422, "", "invalid", "r7"),
    ]
    for line in lines:
        assert datetime.fromisoformat(line["entry"]) <= datetime.fromisoformat(line["exit"])
        assert line["seconds"] > 0


def test_an_access_log_that_cannot_be_opened_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="cannot be written"):
        Running(identity=ServerIdentity(access_log=tmp_path / "no" / "log")).__enter__()


def test_the_dependency_is_asked_and_a_miss_is_no_error() -> None:
    with Running() as server:
        store = HttpServer(build_store(StoreSettings(miss_seconds=0)))
        server.on_loop(store.start())
        change = {"dependency": {"address": store.url}}
        server.on_loop(server.parts.live_config.change(change, frozenset({"*"})))
        assert [server.ask(text="a").status_code for _ in range(3)] == [200] * 3
        page = server.page()
        assert page[("ref_dependency_seconds_count", "")] == 3
        assert page[("ref_dependency_hits_total", "")] == 2
        assert page[("ref_dependency_errors_total", "")] == 0
        server.on_loop(server.parts.live_config.change({"dependency": {"bypass": True}}, frozenset({"*"})))
        assert server.ask(text="a").status_code == 200
        assert server.page()[("ref_dependency_seconds_count", "")] == 3
        server.on_loop(store.stop())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:80"])
def test_a_dependency_that_does_not_answer_costs_no_request(address: str) -> None:
    with Running(ServerConfig(dependency=DependencyConfig(address=address))) as server:
        assert server.ask(text="a").status_code == 200
        assert server.page()[("ref_dependency_errors_total", "")] == 1
        assert server.page()[("ref_dependency_timeouts_total", "")] == 0


def test_a_dependency_that_is_too_slow_is_given_up() -> None:
    async def ask() -> list[float | None]:
        async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader_done.wait()
            writer.close()

        reader_done = asyncio.Event()
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        metrics = ServerMetrics("r", "cpu")
        client = DependencyClient(DependencyConfig(address=f"127.0.0.1:{port}", timeout_ms=20), metrics)
        assert await client.stage(context(text="a"))
        await client.close()
        reader_done.set()
        server.close()
        await server.wait_closed()
        labels = {"replica": "r", "backend": "cpu"}
        names = ("ref_dependency_errors_total", "ref_dependency_timeouts_total")
        return [metrics.registry.get_sample_value(name, labels) for name in names]

    assert asyncio.run(ask()) == [1, 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_loss_of_the_worker_is_a_503_and_the_next_request_is_answered() -> None:
    with Running() as server:
        server.model.fails_with = SystemExit()  # ends a thread without a word
        answer = server.ask(text="a")
        assert (answer.status_code, answer.json()["error"]) == (503, "worker-lost")
        assert server.ask(text="a").status_code == 200
        assert server.page()[("ref_worker_restarts_total", "")] == 1


def test_a_lost_session_is_read_from_the_transcript_and_made_again() -> None:
    with Running(ServerConfig(sessions=SessionsConfig(window_turns=2))) as server:
        turns = [f"{'word ' * 30}{turn}" for turn in range(4)]  # 31 tokens each
        for transcript in (turns, [*turns, "and now"], None):
            asked = {} if transcript is None else {"transcript": transcript}
            assert server.ask(text="and now", session="s", **asked).status_code == 200
        # All of it at the loss, then what the window keeps: two turns of which the last are the requests themselves.
        assert server.model.batches == [[4 * 31 + 1 + 2], [31 + 2 + 1 + 2], [2 + 2 + 1 + 2]]
        page = server.page()
        assert (page["ref_session_misses_total", ""], page["ref_session_hits_total", ""]) == (1, 2)
        assert page["ref_session_history_tokens_count", ""] == 2


def test_a_turn_that_the_server_has_not_seen_is_read_from_the_transcript() -> None:
    with Running() as server:
        for transcript in ([], ["one", "two three"]):
            assert server.ask(text="one", session="s", transcript=transcript).status_code == 200
        assert server.model.batches == [[1], [3 + 1 + 1]]
        page = server.page()
        assert page["ref_session_stale_total", "process"] == 1
        assert page["ref_session_recomputed_tokens_total", ""] == 2


def test_of_a_long_transcript_the_newest_tokens_are_read() -> None:
    with Running() as server:
        assert server.ask(text="now", session="s", transcript=["old " * 600, "new"]).status_code == 200
        assert server.model.batches == [[512]]


def test_an_audio_request_reads_nothing_of_its_session_and_adds_nothing() -> None:
    with Running() as server:
        said = ["one two", " ... "]
        assert server.ask(audio_seconds=2, session="s", transcript=said).status_code == 200
        assert server.ask(text="three", session="s", transcript=said).status_code == 200
        assert server.model.batches == [[50], [2 + 3 + 1 + 1]]
