"""A real Redis fails in every way while conversations go on at two servers: no request is lost, no answer is wrong."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import httpx
import pytest

from latdoctor.lab.faults.session_store import StoreFaultKind, store_fault
from latdoctor.lab.redis_server import RedisServer
from latdoctor.lab.server.sessions.conversation import state_checksum
from latdoctor.lab.server.tokenizer import text_tokens
from tests.lab.server.fakes import PATIENCE
from tests.lab.server.running_server import Running
from tests.lab.sessions.redis_servers import config_in_redis
from tests.waiting import comes_about

CLIENTS = 6
ANSWERS = 60  # in each phase


class Clients:
    """Conversations, each turn at the next server; every answer is compared with what was said."""

    def __init__(self, addresses: list[str]) -> None:
        self.levels: Counter[str] = Counter()
        self.wrong: list[Any] = []
        self._addresses = addresses
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._talk, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def until_answered(self, more: int) -> None:
        due = self.levels.total() + more
        assert comes_about(lambda: self.levels.total() >= due or bool(self.wrong), 60)

    def until_level(self, level: str) -> None:
        due = self.levels[level] + CLIENTS
        assert comes_about(lambda: self.levels[level] >= due or bool(self.wrong), 60), level

    def _talk(self, number: int) -> None:
        said: list[str] = []
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            while not self._stop.is_set():
                text = f"turn {len(said)} of {number}"
                asked = {"text": text, "session": f"c{number}", "transcript": said[-20:]}
                address = self._addresses[len(said) % len(self._addresses)]
                self._note(client.post(f"{address}/v1/intent", json=asked), said)
                said.append(text)

    def _note(self, answer: httpx.Response, said: list[str]) -> None:
        use = answer.json().get("session", {}) if answer.status_code == 200 else {}
        truth = [token for text in said for token in text_tokens(text)]
        used = use.get("tokens", -1)
        right = 0 <= used <= len(truth) and use["checksum"] == state_checksum(truth[len(truth) - used :])
        with self._lock:
            self.levels[use.get("level", "")] += 1
            if not right or bool(used) != bool(said):
                self.wrong.append((answer.status_code, answer.text))


def restart(server: RedisServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("process", [0, 100], ids=["stateless", "process-level"])
def test_no_request_is_lost_and_no_answer_is_wrong(redis_server: RedisServer, process: int) -> None:
    config = config_in_redis(
        redis_server, max_sessions=process, window_turns=3, store_timeout_ms=100, store_breaker_open_ms=50
    )
    actions: list[Callable[[], object]] = [lambda: restart(redis_server), redis_server.flush]
    with ExitStack() as started:
        servers = [started.enter_context(Running(config)) for _ in range(2)]
        clients = started.enter_context(Clients([server.url for server in servers]))
        clients.until_answered(ANSWERS)
        for kind in (*StoreFaultKind, None):
            with store_fault(kind, redis_server, 600) if kind else nullcontext():
                clients.until_answered(ANSWERS)
            clients.until_level("redis")
        with redis_server.client() as client:
            client.execute_command("CLIENT", "PAUSE", 500, "ALL")
        clients.until_answered(ANSWERS)
        for act in actions:
            act()
            clients.until_level("redis")
        reasons = {reason for server in servers for (name, reason), count in server.page().items()
                   if name == "ref_session_store_errors_total" and count}  # fmt: skip
    assert clients.wrong == []
    assert process or clients.levels["recomputed"] > 0  # of two processes each lacks one turn only
    assert {"connection", "full", "read-only"} <= reasons
