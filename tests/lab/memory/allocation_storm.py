"""Turns the C library's modes while a model runs on a worker thread, and prints the page faults of a forward.

Run in a process of its own: settings of the allocator outlast the pool that made them.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import msgspec

from latdoctor.lab.server.config import MemoryConfig, ModelSettings
from latdoctor.lab.server.intent_model import IntentModel
from latdoctor.lab.server.memory import build

FORWARDS = 5
BATCH = [list(range(1, 401))] * 2


def main() -> None:
    settings = ModelSettings(precision="fp32", layers=2, width=128, warm_up=False)
    model = IntentModel(settings, build(MemoryConfig(glibc="default")))

    def faults() -> float:
        for _ in range(4):
            model.forward(BATCH)
        before = model.pool.stats().page_faults_total or 0
        for _ in range(FORWARDS):
            model.forward(BATCH)
        return ((model.pool.stats().page_faults_total or 0) - before) / FORWARDS

    found: list[tuple[str, float]] = []
    with ThreadPoolExecutor(1) as worker:
        worker.submit(faults).result()
        for mode in ("pooled", "returning", "pooled", "returning", "default"):
            model.pool.set_live(msgspec.convert({"glibc": mode}, MemoryConfig))
            found.append((mode, worker.submit(faults).result()))
    print(json.dumps({"faults": found, "stats": msgspec.to_builtins(model.pool.stats())}))


main()
