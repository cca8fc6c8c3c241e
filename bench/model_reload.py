"""Reloads of the model under load, damaged files among them: no request fails, and no damaged version answers.

    python -m bench.model_reload [--reloads 100] [--damaged 5] [--output json]

A reference server with torch and a model registry of small versions. Clients send requests without a pause, and compare
every answer with what the version that it names answers when it is computed apart. Damaged versions (a flipped bit, a
lost end, a missing or empty file, another format, a torn manifest) are put between the good ones at random.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.harness import arguments, log, print_result
from latdoctor.lab.admin_client import AdminRefusedError
from latdoctor.lab.faults.model_files import ModelDamage, damage_version
from latdoctor.lab.processes import ServerProcess
from latdoctor.lab.server.config import ModelSettings, ServerConfig, patched
from latdoctor.lab.server.versions.model_registry import add_version

CLIENTS = 8
PAUSE = 0.2  # seconds between two reloads
TEXTS = ["where is my order", "cancel it now", "the invoice is wrong " * 8, "a person please", "late " * 60]
VERSIONS = 10
TOKENS = 128


class Reloads(Struct, frozen=True):
    """`wrong_answers`: intents or scores that are not those of the version that the answer names."""

    reloads: int
    accepted: int
    refused: int
    refused_codes: dict[str, int]
    requests: int
    failed_requests: int
    wrong_answers: int
    damaged_versions_served: int
    versions_served: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    load_ms: float


def registry_of(folder: Path) -> list[str]:
    """Fills the registry; the names of its good versions."""
    import torch

    from latdoctor.lab.server.intent_model import INTENTS
    from latdoctor.lab.server.versions.network_weights import drawn_weights

    good = [f"v{number}" for number in range(1, VERSIONS + 1)]
    for version in (*good, *ModelDamage):
        weights = drawn_weights(
            version, layers=2, width=64, intents=len(INTENTS), positions=TOKENS, dtype=torch.float32
        )
        add_version(folder, version, weights)
    for damage in ModelDamage:
        damage_version(folder, damage, damage)
    return good


def expected(
    registry: Path, versions: Sequence[str], texts: Sequence[str], positions: int
) -> dict[tuple[str, str], tuple[str, float]]:
    """What each version answers to each text (intent and score), computed apart from the server."""
    from latdoctor.lab.server.config import MemoryConfig
    from latdoctor.lab.server.intent_model import INTENTS, IntentModel
    from latdoctor.lab.server.memory import build
    from latdoctor.load.text_tokens import text_tokens

    found = {}
    for version in versions:
        settings = ModelSettings(version=version, precision="fp32", registry=str(registry))
        model = IntentModel(settings, build(MemoryConfig(backend="arena", pool_mib=8)), positions=positions)
        for text in texts:
            answer = model.forward([text_tokens(text)])
            found[version, text] = (INTENTS[answer.intents[0]], answer.scores[0])
    return found


def steps(good: Sequence[str], reloads: int, damaged: int) -> list[str]:
    """Versions to load, each another one than the one before it; damaged ones at random places."""
    choice = random.Random(0)
    kinds = list(ModelDamage)
    at = set(choice.sample(range(reloads), damaged))
    whole, number, bad = [], 0, 0
    for step in range(reloads):
        if step in at:
            whole.append(str(kinds[bad % len(kinds)]))
            bad += 1
        else:
            number += 1
            whole.append(good[number % len(good)])
    return whole


class Client:
    """Sends one request after the other, and keeps what came back."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.answers: Counter[tuple[str, str, str, float]] = Counter()
        self.failed: Counter[str] = Counter()

    async def run(self, url: str, end: asyncio.Event, number: int) -> None:
        import aiohttp

        async with aiohttp.ClientSession(url) as session:
            while not end.is_set():
                text = TEXTS[number % len(TEXTS)]
                number += 1
                began = time.perf_counter()
                try:
                    async with session.post("/v1/intent", json={"text": text}) as response:
                        status, body = response.status, await response.read()
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.failed[type(error).__name__] += 1
                    continue
                self.latencies.append(time.perf_counter() - began)
                if status != 200:
                    self.failed[str(status)] += 1
                    continue
                answer = msgspec.json.decode(body)
                self.answers[text, answer["model_version"], answer["intent"], answer["score"]] += 1


async def under_load(server: ServerProcess, planned: Sequence[str]) -> tuple[list[Client], Counter[str], list[float]]:
    """The clients, the codes of the refusals, and the seconds of the accepted reloads."""
    end, clients = asyncio.Event(), [Client() for _ in range(CLIENTS)]
    running = [asyncio.create_task(client.run(server.url, end, number)) for number, client in enumerate(clients)]
    codes: Counter[str] = Counter()
    seconds: list[float] = []
    await asyncio.sleep(1.0)
    for version in planned:
        began = time.perf_counter()
        try:
            await asyncio.to_thread(server.admin.configure, {"model": {"version": version}})
            seconds.append(time.perf_counter() - began)
        except AdminRefusedError as refused:
            codes[next((code for code in _CODES if code in str(refused)), str(refused))] += 1
        await asyncio.sleep(PAUSE)
    end.set()
    await asyncio.gather(*running)
    return clients, codes, seconds


_CODES = ("wrong-checksum", "wrong-size", "missing-file", "wrong-format", "bad-manifest", "wrong-tensors")


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--reloads", type=int, default=100, metavar="N")
    parser.add_argument("--damaged", type=int, default=5, metavar="N")
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="latdoctor-registry-") as folder:
        good = registry_of(Path(folder))
        answers_of = expected(Path(folder), good, TEXTS, TOKENS)
        model = {"registry": folder, "version": good[0], "precision": "fp32"}
        config = patched(ServerConfig(), {"model": model, "queue": {"max_tokens_per_request": TOKENS}})
        planned = steps(good, options.reloads, options.damaged)
        with ServerProcess(config, faults=False) as server:
            server.wait_ready()
            log("loaded; clients begin")
            clients, codes, seconds = asyncio.run(under_load(server, planned))
    answers: Counter[tuple[str, str, str, float]] = sum((one.answers for one in clients), Counter())
    wrong = 0
    for (text, version, intent, score), count in answers.items():
        right = answers_of.get((version, text))
        if right is None or intent != right[0] or abs(score - right[1]) > 1e-3:
            wrong += count
    latencies = sorted(one for client in clients for one in client.latencies)
    served = {version for _, version, _, _ in answers}
    found = Reloads(
        reloads=len(planned),
        accepted=len(seconds),
        refused=sum(codes.values()),
        refused_codes=dict(codes),
        requests=len(latencies) + sum(sum(client.failed.values()) for client in clients),
        failed_requests=sum(sum(client.failed.values()) for client in clients),
        wrong_answers=wrong,
        damaged_versions_served=len(served & set(map(str, ModelDamage))),
        versions_served=len(served),
        p50_ms=round(latencies[len(latencies) // 2] * 1e3, 1),
        p99_ms=round(latencies[len(latencies) * 99 // 100] * 1e3, 1),
        slowest_ms=round(latencies[-1] * 1e3, 1),
        load_ms=round(sorted(seconds)[len(seconds) // 2] * 1e3, 1),
    )
    print_result(msgspec.to_builtins(found), options.output)
    return 0 if not found.failed_requests and not wrong and found.refused == options.damaged else 1


if __name__ == "__main__":
    sys.exit(main())
