"""Reloads under load: every request is answered, by exactly the version that its answer names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from bench.model_reload import expected

from latdoctor.lab.faults.model_files import REFUSED_AS, ModelDamage, damage_version
from latdoctor.lab.server.config import MemoryConfig, ModelSettings, QueueConfig, ServerConfig
from latdoctor.lab.server.intent_model import INTENTS
from latdoctor.lab.server.serve import torch_backend
from latdoctor.lab.server.versions.model_registry import add_version
from latdoctor.lab.server.versions.network_weights import drawn_weights
from tests.lab.client_threads import ClientThreads
from tests.lab.server.fakes import PATIENCE
from tests.lab.server.running_server import ADMIN, Running

TOKENS = 64
TEXTS = ["where is my order", "cancel it", "the invoice is wrong and the parcel is late", "a person please"]
GOOD = [f"v{number}" for number in range(1, 7)]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    for version in (*GOOD, *ModelDamage):
        drawn = drawn_weights(version, layers=1, width=32, intents=len(INTENTS), positions=TOKENS, dtype=torch.float32)
        add_version(folder, version, drawn)
    for damage in ModelDamage:
        damage_version(folder, damage, damage)
    return folder


def config(registry: Path) -> ServerConfig:
    model = ModelSettings(version=GOOD[0], precision="fp32", registry=str(registry), warm_up=False)
    return ServerConfig(
        model=model, queue=QueueConfig(max_tokens_per_request=TOKENS), memory=MemoryConfig(backend="arena", pool_mib=8)
    )


@pytest.fixture
def server(registry: Path) -> Iterator[Running]:
    with Running(config(registry), backend=torch_backend(config(registry))) as running:
        yield running


def change_version(server: Running, version: str) -> httpx.Response:
    return httpx.patch(
        f"{server.url}/admin/config",
        json={"model": {"version": version}},
        headers={**ADMIN, "if-match": "*"},
        trust_env=False,
        timeout=PATIENCE,
    )


class Clients(ClientThreads):
    """Threads that send one request after the other until they are stopped."""

    def __init__(self, url: str, count: int = 3) -> None:
        self.answers: list[tuple[str, int, dict[str, Any]]] = []
        self._url = url
        super().__init__(count)

    def talk(self, number: int) -> None:
        texts = cycle(TEXTS[number:] + TEXTS[:number])
        with httpx.Client(base_url=self._url, timeout=PATIENCE, trust_env=False) as client:
            while not self.stop.is_set():
                text = next(texts)
                answer = client.post("/v1/intent", json={"text": text})
                self.answers.append((text, answer.status_code, answer.json()))


def test_reloads_lose_no_request_and_serve_no_damaged_version(server: Running, registry: Path) -> None:
    steps: list[str] = [*GOOD[1:], ModelDamage.FLIPPED_BIT, *GOOD[:5], ModelDamage.TRUNCATED]
    answers_of = expected(registry, GOOD, TEXTS, TOKENS)
    with Clients(server.url) as clients:
        for step in steps:
            before = len(clients.answers)
            changed = change_version(server, step)
            if step in GOOD:
                assert changed.status_code == 200
            else:
                assert (changed.status_code, changed.json()["error"]) == (409, REFUSED_AS[ModelDamage(step)])
            server.until(lambda before=before: len(clients.answers) > before + 3)  # type: ignore[misc]
    assert {status for _, status, _ in clients.answers} == {200}
    for text, _, answer in clients.answers:
        intent, score = answers_of[answer["model_version"], text]
        assert answer["intent"] == intent
        assert answer["score"] == pytest.approx(score, abs=1e-4)  # in a batch the last digits differ
    assert {answer["model_version"] for _, _, answer in clients.answers} == set(GOOD)
    page = server.page()
    assert page[("ref_model_reloads_total", "")] == 10
    assert page[("ref_model_reloads_refused_total", "wrong-checksum")] == 1
    assert page[("ref_model_reloads_refused_total", "wrong-size")] == 1
    assert page[("ref_model_load_seconds_count", "")] == 12
    assert page[("ref_worker_restarts_total", "")] == 0


@pytest.mark.parametrize("damage", ModelDamage)
def test_a_refused_version_leaves_everything_as_it_was(server: Running, damage: ModelDamage) -> None:
    before = server.client.get("/admin/config", headers=ADMIN)
    refused = change_version(server, damage)
    assert (refused.status_code, refused.json()["error"]) == (409, REFUSED_AS[damage])
    after = server.client.get("/admin/config", headers=ADMIN)
    assert (after.json(), after.headers["etag"]) == (before.json(), before.headers["etag"])
    answer = server.ask(text="a")
    assert (answer.status_code, answer.json()["model_version"]) == (200, GOOD[0])
    assert answer.headers["x-model-version"] == GOOD[0]


def test_a_reload_of_a_version_that_was_damaged_since_is_refused(tmp_path: Path) -> None:
    add_version(
        tmp_path,
        GOOD[0],
        drawn_weights(GOOD[0], layers=1, width=32, intents=len(INTENTS), positions=TOKENS, dtype=torch.float32),
    )
    with Running(config(tmp_path), backend=torch_backend(config(tmp_path))) as server:
        before = server.ask(text="where is my order").json()
        headers = {**ADMIN, "if-match": "*"}
        assert server.client.post("/admin/reload", headers=headers).status_code == 200
        damage_version(tmp_path, GOOD[0], ModelDamage.TRUNCATED)
        refused = server.client.post("/admin/reload", headers=headers)
        assert (refused.status_code, refused.json()["error"]) == (409, "wrong-size")
        assert server.client.get("/admin/acts", headers=ADMIN).json()["reloads"] == 1
        after = server.ask(text="where is my order").json()
        assert (after["intent"], after["score"]) == (before["intent"], before["score"])
        assert server.client.get("/readyz").json() == {"status": "ready", "model_version": GOOD[0]}
