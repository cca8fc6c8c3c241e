"""An edge tier of a light model before the centre: latency, load taken from the centre, and what it costs in accuracy.

    python -m bench.tiers [--rate 40] [--seconds 12] [--steps 300] [--registry DIR] [--output json]

Both models are trained here on a synthetic corpus (`intent_corpus`): the centre has 4 layers of width 256, the light
one 2 of 128 (`--light-layers`, `--light-width`). Then a router with two replicas and an edge node serves labelled texts
that neither model has seen, at a constant rate: without the edge, and with it at several confidences. Three minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from bench.harness import arguments, log, markdown, print_result
from bench.intent_corpus import LabelledText, texts
from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.edge_nodes import EdgeNodes
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.serve import ServeOptions
from latdoctor.lab.server.serve_replicas import RouterOptions, commands, edge_commands, serve_router
from latdoctor.lab.server.versions.model_registry import add_version
from latdoctor.load.text_tokens import text_tokens

TOKEN = "of-this-benchmark"  # noqa: S105 - guards nothing
POSITIONS = 512
CENTRE, LIGHT = "centre", "light"
CONFIDENCES = (0.0, 0.6, 0.9, 0.99)
BATCH = 32


class TierRow(Struct, frozen=True):
    """One setting. Shares of all requests; `agreement` with the answers that the centre alone gave."""

    setting: str
    requests: int
    failed: int
    p50_ms: float
    p99_ms: float
    at_edge: float
    passed_on: float
    centre_requests: float
    centre_busy_s: float
    edge_busy_s: float
    accuracy: float
    agreement: float


def trained(layers: int, width: int, steps: int, seed: int) -> Any:
    """The network after `steps` batches of new texts, and its file."""
    import torch
    from torch.nn import functional

    from latdoctor.lab.server.intent_model import INTENTS
    from latdoctor.lab.server.network import Encoder, draw_weights

    encoder = Encoder(layers=layers, width=width, intents=len(INTENTS), positions=POSITIONS)
    draw_weights(encoder, f"start-{seed}")
    rate = torch.optim.AdamW(encoder.parameters(), lr=1e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.OneCycleLR(rate, 1e-3, total_steps=steps)
    for batch in batches(steps, seed):
        loss = functional.cross_entropy(logits(encoder, batch), torch.tensor([one.intent for one in batch]))
        rate.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        rate.step()
        warm.step()
    return encoder


def batches(steps: int, seed: int) -> Sequence[Sequence[LabelledText]]:
    """Texts of about the same length together, in an order of chance: little is padded."""
    source = sorted(texts(steps * BATCH, seed, short_share=0.85), key=lambda one: len(one.text.split()))
    found = [source[at : at + BATCH] for at in range(0, len(source), BATCH)]
    random.Random(seed).shuffle(found)
    return found


def logits(encoder: Any, batch: Sequence[LabelledText]) -> Any:
    """As the server computes them: tokens and positions into the encoder, with a mask over the padding."""
    import torch

    tokens = [text_tokens(one.text) for one in batch]
    longest = max(map(len, tokens))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tokens])
    lengths = torch.tensor([len(row) for row in tokens])
    mask = (torch.arange(longest) < lengths[:, None])[:, None, None, :]
    states = encoder.tokens(ids) + encoder.positions.weight[:longest]
    return encoder(states, lengths, mask)


def registry_of(folder: Path, steps: int, light: tuple[int, int]) -> None:
    """Trains both models and adds them to the registry."""
    from safetensors.torch import save

    for name, (layers, width) in ((CENTRE, (4, 256)), (LIGHT, light)):
        began = time.monotonic()
        encoder = trained(layers, width, steps, seed=1)
        add_version(folder, name, bytes(save({key: one.contiguous() for key, one in encoder.state_dict().items()})))
        log(f"trained {name} ({layers} layers of {width}) in {time.monotonic() - began:.0f} s")


@contextlib.asynccontextmanager
async def service(folder: Path) -> AsyncIterator[tuple[str, ...]]:
    """The addresses: the router's, two replicas' and an edge node's."""
    config = patched(ServerConfig(), {"model": {"registry": str(folder), "version": CENTRE, "precision": "fp32"}})
    light = patched(config, {"model": {"version": LIGHT}})
    options = ServeOptions(config, admin_token=TOKEN)
    router = RouterOptions(
        commands(options, 2),
        RouterConfig(slow_start_ms=0),
        token=TOKEN,
        edge=edge_commands(options, EdgeNodes(1, light)),
    )
    announced: list[str] = []
    ready, end = asyncio.Event(), asyncio.Event()

    def announce(url: str) -> None:
        announced.append(url)
        if len(announced) == 4:
            ready.set()

    serving = asyncio.create_task(serve_router(router, announce=announce, end=end, signals=()))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        yield tuple(announced)
    finally:
        waiting.cancel()
        end.set()
        await serving


async def busy(session: Any, urls: Sequence[str]) -> float:
    """Seconds that the workers behind these addresses have computed."""
    total = 0.0
    for url in urls:
        async with session.get(f"{url}/metrics") as answer:
            page = await answer.text()
        for family in text_string_to_metric_families(page):
            total += sum(one.value for one in family.samples if one.name == "ref_worker_busy_seconds_total")
    return total


async def sent(session: Any, url: str, load: Sequence[LabelledText], rate: float) -> list[tuple[int, str, str, float]]:
    """Status, intent, tier and latency (from the intended time) of each text, sent at a constant rate."""
    start = time.monotonic() + 0.1

    async def one(number: int, text: str) -> tuple[int, str, str, float]:
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        async with session.post(f"{url}/v1/intent", json={"text": text}) as answer:
            body = await answer.json()
            tier = answer.headers.get("x-tier", CENTRE)
            return answer.status, str(body.get("intent")), tier, time.monotonic() - due

    return list(await asyncio.gather(*(one(number, each.text) for number, each in enumerate(load))))


async def measured(folder: Path, rate: float, seconds: float) -> list[TierRow]:
    import aiohttp

    from latdoctor.lab.server.intent_model import INTENTS

    load = texts(int(rate * seconds), seed=2)
    rows: list[TierRow] = []
    alone: list[str] = []
    headers = {"Authorization": f"Bearer {TOKEN}", "If-Match": "*"}
    async with service(folder) as (router, *servers), aiohttp.ClientSession() as session:
        centre, edge = servers[:2], servers[2:]
        await sent(session, router, load[: int(rate * 2)], rate)  # connections and caches
        settings: list[tuple[str, dict[str, Any]]] = [("centre alone", {"edge_bypass": True})]
        settings += [(f"edge, confidence {at:g}", {"edge_bypass": False, "edge_confidence": at}) for at in CONFIDENCES]
        for name, knobs in settings:
            async with session.patch(f"{router}/admin/config", json=knobs, headers=headers) as answer:
                if answer.status != 200:
                    raise SystemExit(await answer.text())
            before = await busy(session, centre), await busy(session, edge)
            answers = await sent(session, router, load, rate)
            after = await busy(session, centre), await busy(session, edge)
            intents = [intent for _, intent, _, _ in answers]
            alone = alone or intents
            light = edge_share(answers)
            simple = sum(len(one.text.split()) <= 12 and len(one.text) <= 160 for one in load) / len(load)
            latencies = sorted(latency for _, _, _, latency in answers)
            rows.append(
                TierRow(
                    name,
                    len(answers),
                    sum(status != 200 for status, *_ in answers),
                    round(latencies[len(latencies) // 2] * 1e3, 1),
                    round(latencies[int(0.99 * len(latencies))] * 1e3, 1),
                    round(light, 3),
                    round(simple - light, 3) if "alone" not in name else 0.0,
                    round(1 - light, 3),
                    round(after[0] - before[0], 2),
                    round(after[1] - before[1], 2),
                    agreement(intents, [INTENTS[one.intent] for one in load]),
                    agreement(intents, alone),
                )
            )
            log(str(rows[-1]))
    return rows


def edge_share(answers: Sequence[tuple[int, str, str, float]]) -> float:
    return sum(tier == "edge" for _, _, tier, _ in answers) / len(answers)


def agreement(one: Sequence[str], other: Sequence[str]) -> float:
    return round(sum(first == second for first, second in zip(one, other, strict=True)) / len(one), 4)


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--light-layers", type=int, default=2)
    parser.add_argument("--light-width", type=int, default=128)
    parser.add_argument("--registry", type=Path, help="has both models already, or gets them")
    options = parser.parse_args(given)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ[ADMIN_TOKEN_VARIABLE] = TOKEN
    import torch

    torch.set_num_threads(1)
    with contextlib.ExitStack() as opened:
        folder = options.registry or Path(opened.enter_context(tempfile.TemporaryDirectory())) / "registry"
        if not (folder / LIGHT).is_dir():
            registry_of(folder, options.steps, (options.light_layers, options.light_width))
        rows = asyncio.run(measured(folder, options.rate, options.seconds))
    columns = TierRow.__struct_fields__
    print_result(
        msgspec.to_builtins(rows),
        options.output,
        "\n".join(markdown(columns, [[getattr(row, name) for name in columns] for row in rows])),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
