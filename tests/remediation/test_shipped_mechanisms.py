"""The mechanism of shipped playbooks on a whole reference server: observed with the change, and never without it.

Each load is the same before and after the change. Without the change it is also a smaller one: less load alone must not
look like the mechanism.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.conditions.evaluator import HOLDS, UNKNOWN, TruthStatus
from latdoctor.detectors import derive
from latdoctor.dialects.loader import shipped as dialects
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.lab.dependency_service import StoreSettings
from latdoctor.lab.dependency_service import build as build_store
from latdoctor.lab.hardened_http_server import HttpServer
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.memory.arena import ArenaPool
from latdoctor.lab.server.memory.pool_interface import OutOfMemory
from latdoctor.remediation.actions.field_values import parse as as_knob
from latdoctor.remediation.observation import Observation, evaluate_mechanism
from latdoctor.remediation.parameters import parameter_values, substituted
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_library import shipped
from tests.lab.server.running_server import Running

REFERENCE = next(dialect for dialect in dialects() if dialect.id == "reference")
WINDOW = 10.0  # seconds between two pages, whatever the time between them was
ARENA = {"backend": "arena", "pool_mib": 4, "limit_mib": 4, "segment_mib": 1, "long_share": 0.0, "wait_ms": 0}
NO_EFFECT = {"batching": {"long_seconds": 16.0}}
Change = Mapping[str, Mapping[str, Any]]
Load = Callable[[Running, int], bytes]  # sends so many requests; the page at the end of the window


def page(server: Running) -> bytes:
    return server.client.get("/metrics").content


def waited(server: Running, seconds: float) -> None:
    """Returns once the oldest request has waited so long."""
    server.until(lambda: server.page()[("ref_queue_oldest_age_seconds", "")] > seconds)


def simple(server: Running, count: int) -> bytes:
    asked = [server.asking(text=f"{number}") for number in range(count)]
    assert [one.answer().status_code for one in asked] == [200] * count
    return page(server)


def conversation(server: Running, count: int) -> bytes:
    """Turns of one conversation, which has a name of its own."""
    name = f"s{len(server.model.batches)}"
    assert [server.ask(text="a", session=name).status_code for _ in range(count)] == [200] * count
    return page(server)


def behind_a_batch(server: Running, texts: list[str]) -> list[Any]:
    """Requests that wait until `server.model.gate` is set, for a batch that is computed is never given up."""
    while server.model.entered.acquire(blocking=False):
        pass
    server.model.gate.clear()
    first = server.asking(text="first")
    server.model.until_entered()
    arrived = server.page()[("ref_arrivals_total", "")]
    asked = [server.asking(text=text) for text in texts]
    server.until(lambda: server.page()[("ref_arrivals_total", "")] == arrived + len(texts))
    return [first, *asked]


def queued(server: Running, count: int) -> bytes:
    """Requests that wait for longer than any of the limits set here."""
    asked = behind_a_batch(server, [f"{number}" for number in range(count)])
    governance, queue = server.parts.live_config.config.governance, server.parts.live_config.config.queue
    if governance.fallback_ms or queue.deadline_ms:
        assert {one.answer().status_code for one in asked[1:]} <= {200, 429}
    else:
        server.until(lambda: decided(server) >= count)
    shown = page(server)
    server.model.gate.set()
    assert {one.answer().status_code for one in asked} <= {200, 429, 503}
    return shown


def decided(server: Running) -> float:
    """Requests that wait or were turned away in this window."""
    now = server.page()
    return now[("ref_queue_depth", "")] + now[("ref_requests_shed_total", "queue-full")]


def long_then_short(server: Running, count: int) -> bytes:
    asked = behind_a_batch(server, ["long " * 30])
    waited(server, 0.1)
    asked += [server.asking(text="short") for _ in range(count)]
    server.until(lambda: server.page()[("ref_queue_depth", "")] == 1 + count)
    server.model.gate.set()
    assert {one.answer().status_code for one in asked} == {200}
    return page(server)


def slow(server: Running, count: int) -> bytes:
    """Slow answers twice, since the breaker evaluates them four times a second, and a long request."""
    for _ in range(2):
        asked = behind_a_batch(server, [f"{number}" for number in range(count)])
        waited(server, 0.3)
        server.model.gate.set()
        assert {one.answer().status_code for one in asked} == {200}
    assert server.ask(text="long " * 30).status_code in (200, 429)
    return page(server)


def leases(server: Running, count: int) -> bytes:
    """Buffers of 1 MiB that are kept, as far as the arena has room."""
    import torch

    assert isinstance(server.pool, ArenaPool)
    for _ in range(count):
        with contextlib.suppress(OutOfMemory):
            server.pool.lease((1 << 20,), torch.uint8)
    return page(server)


CASES: dict[str, tuple[Load, int, Change, Mapping[str, str]]] = {
    "app.dependency.bypass": (simple, 4, {}, {}),
    "app.dependency.timeout": (simple, 4, {}, {"timeout": "50ms"}),
    "app.governance.breaker": (slow, 24, {}, {"limit": "50ms", "long_tokens": "20"}),
    "app.governance.fallback": (queued, 4, {}, {"after": "50ms"}),
    "app.governance.lanes": (long_then_short, 4, {}, {"long_tokens": "20"}),
    "app.governance.queue-bound": (queued, 8, {}, {"max_requests": "1"}),
    "app.governance.shed-late": (queued, 4, {}, {"deadline": "50ms"}),
    "app.governance.standby": (simple, 4, {}, {}),
    "app.session.window": (conversation, 6, {"sessions": {"window_turns": 0}}, {"turns": "1"}),
    "framework.alloc.more-room": (leases, 6, {"memory": ARENA}, {}),
    "framework.model.previous-version": (simple, 4, {}, {"version": "v0"}),
    "framework.precision.restore": (simple, 4, {}, {"precision": "bf16"}),
}  # load, requests, settings at first, parameters


def change_of(playbook: Playbook, given: Mapping[str, str]) -> Change:
    """The settings that the playbook makes."""
    config, change = ServerConfig(), dict[str, dict[str, Any]]()
    for step in playbook.steps:
        for name, text in substituted(step, playbook, parameter_values(playbook, given)).items():
            group, _, knob = name.partition(".")
            change.setdefault(group, {})[knob] = as_knob(name, text, getattr(getattr(config, group), knob))
    return change


def observed(server: Running, load: Load, count: int, at: float) -> Observation:
    return seen([page(server), load(server, count)], at)


def seen(pages: list[bytes], at: float) -> Observation:
    """What the first and the last page of a window show of one server."""
    scrapes = [
        ScrapedPage(parse(text, f"{n}"), f"page-{n}", at + WINDOW * number)
        for number, (n, text) in enumerate(zip("ab", pages, strict=True))
    ]
    return Observation(derive(read_pages(REFERENCE, scrapes, "server/x")), {}, {}, at, at + WINDOW)


def statuses(name: str, change: Change | None, *, less: bool = False) -> tuple[list[TruthStatus], list[TruthStatus]]:
    """The conditions of the mechanism in the window before `change` and in the one after it."""
    load, count, first, given = CASES[name]
    playbook = shipped().find(name)
    config = patched(ServerConfig(), first)
    pool = ArenaPool(config.memory) if config.memory.backend == "arena" else None
    with Running(config, pool=pool) as server, ExitStack() as undo:
        if name.startswith("app.dependency"):
            store = HttpServer(build_store(StoreSettings(ttl=0, miss_seconds=0.3)))
            server.on_loop(store.start())
            undo.callback(lambda: server.on_loop(store.stop()))
            server.on_loop(server.parts.live_config.change({"dependency": {"address": store.url}}, frozenset({"*"})))
        before = observed(server, load, count, 1000.0)
        made = change_of(playbook, given) if change is None else change
        server.on_loop(server.parts.live_config.change(made, frozenset({"*"})))
        after = observed(server, load, max(1, count // 2) if less else count, 1100.0)
    items = playbook.verify.mechanism
    return (
        [evaluate_mechanism(item, before, before.values).status for item in items],
        [evaluate_mechanism(item, after, before.values).status for item in items],
    )


@pytest.mark.parametrize("name", CASES)
def test_mechanism_is_observed_with_the_change_and_known_before_it(name: str) -> None:
    before, after = statuses(name, None)
    assert UNKNOWN not in before
    assert set(before) != {HOLDS}
    assert set(after) == {HOLDS}


@pytest.mark.parametrize("less", [False, True], ids=["same load", "half of the load"])
@pytest.mark.parametrize("name", CASES)
def test_mechanism_is_not_observed_after_a_change_without_effect(name: str, less: bool) -> None:
    _, after = statuses(name, NO_EFFECT, less=less)
    assert set(after) != {HOLDS}
