"""The simulated engine keeps its books: blocks, requests and time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.lab.telemetry.vllm import Engine, EngineSimulation, capacity


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(0.5, 40),
    blocks=st.integers(600, 4_000),
    prompt=st.floats(20, 800),
    output=st.floats(10, 300),
    seed=st.integers(0, 1_000),
)
def test_nothing_is_lost_and_no_block_is_used_twice(
    rate: float, blocks: int, prompt: float, output: float, seed: int
) -> None:
    run = EngineSimulation(random.Random(seed), Engine(rate, rate, 0.0, blocks, prompt, output))
    seen = run.at(8.0)
    assert 0 <= seen.usage <= 1
    ended = seen.stopped + seen.lengthy
    assert sum(seen.e2e.counts) == sum(seen.outputs.counts) == ended
    first_tokens, later_tokens = sum(seen.ttft.counts), sum(seen.itl.counts)
    assert first_tokens + later_tokens == seen.output_tokens
    assert ended <= first_tokens <= ended + seen.running + seen.waiting


@pytest.mark.parametrize(("share", "presses"), [(0.6, False), (1.3, True)])
def test_pressure_comes_from_the_load_alone(share: float, presses: bool) -> None:
    blocks, prompt, output = 3_200, 200.0, 320.0
    rate = share * capacity(blocks, prompt, output)
    seen = EngineSimulation(random.Random(3), Engine(rate, rate, 0.0, blocks, prompt, output)).at(90.0)
    assert (seen.preemptions > 0) == presses
    assert (seen.waiting > 20) == presses
