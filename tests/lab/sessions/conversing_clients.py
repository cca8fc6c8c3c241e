"""Clients that hold conversations, each turn at the next server, and compare every answer with what was said."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import httpx

from latdoctor.load.text_tokens import state_checksum, text_tokens
from tests.lab.client_threads import ClientThreads
from tests.lab.server.fakes import PATIENCE
from tests.waiting import comes_about

CLIENTS = 6


class Clients(ClientThreads):
    """Conversations, each turn at the next server; every answer is compared with what was said."""

    def __init__(self, addresses: list[str]) -> None:
        self.levels: Counter[str] = Counter()
        self.wrong: list[Any] = []
        self._addresses = addresses
        self._lock = threading.Lock()
        super().__init__(CLIENTS)

    def until_answered(self, more: int) -> None:
        due = self.levels.total() + more
        assert comes_about(lambda: self.levels.total() >= due or bool(self.wrong), 60)

    def until_level(self, level: str) -> None:
        due = self.levels[level] + CLIENTS
        assert comes_about(lambda: self.levels[level] >= due or bool(self.wrong), 60), level

    def talk(self, number: int) -> None:
        said: list[str] = []
        with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
            while not self.stop.is_set():
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
