"""What PyRCA is given: whole columns and a graph that only leads upward."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.rca.columns import PARENTS, method_columns
from hypothesis import given as drawn
from hypothesis import strategies as st

from latdoctor.evaluation.baselines.methods import Signals
from latdoctor.evidence.catalogue import TIERS, catalogue

SECONDS = 20
NAMES = (
    "host.psi.cpu_some node/a",
    "alloc.device_rate s",
    "queue.depth s",
    "latency.p50 s",
    "latency.p99 s",
    "own.thing s",
)


def world(seed: int = 1) -> Signals:
    chance = np.random.default_rng(seed)
    return {name: (chance.random(SECONDS), chance.random(SECONDS)) for name in NAMES}


def test_latency_is_the_end_of_the_graph_and_no_other_latency_is_given() -> None:
    found = method_columns(world())
    assert found.latency == "latency.p99 s"
    assert "latency.p50 s" not in found.names
    assert found.before.shape == found.incident.shape == (SECONDS, len(found.names))
    assert all(cause != found.latency for cause, _ in found.edges)


@drawn(st.integers(0, 200))
def test_the_graph_leads_upward_and_keeps_few_parents(seed: int) -> None:
    found = method_columns(world(seed))

    def level(name: str) -> int:
        known = catalogue().get(name.partition(" ")[0])
        return len(TIERS) if name == found.latency else TIERS.index(known.tier if known else TIERS[-1])

    assert all(level(cause) < level(effect) for cause, effect in found.edges)
    assert max((sum(effect == name for _, effect in found.edges) for name in found.names), default=0) <= PARENTS


def test_holes_are_filled_and_columns_of_holes_left_out() -> None:
    signals = {**world()}
    few, many = world(2)["queue.depth s"][0], np.full(SECONDS, math.nan)
    few[0] = few[5] = math.nan
    many[3:9] = 1.0
    signals["queue.depth s"] = (few, signals["queue.depth s"][1])
    signals["alloc.device_rate s"] = (signals["alloc.device_rate s"][0], many)
    signals["own.thing s"] = (np.ones(SECONDS), np.arange(SECONDS, dtype=np.float64))
    found = method_columns(signals)
    assert set(found.names) == {"host.psi.cpu_some node/a", "queue.depth s", "latency.p99 s"}
    column = found.before[:, found.names.index("queue.depth s")]
    assert np.isfinite(column).all()
    assert column[0] == few[1]
    assert column[5] == few[4]


@pytest.mark.parametrize("left", [(), ("queue.depth s",), ("latency.p99 s",)])
def test_too_little_is_an_error(left: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"latency|columns"):
        method_columns({name: world()[name] for name in left})
