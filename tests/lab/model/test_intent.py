"""The intent model: the same for a version, the same alone and in a batch, and every knob of its settings."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
import torch

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import MemoryConfig, ModelSettings
from latdoctor.lab.server.intent_model import INTENTS, IntentModel
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.memory import build
from latdoctor.lab.server.memory.pool_interface import OutOfMemory
from latdoctor.lab.server.network import BATCHES, FRAME_WIDTH, LENGTHS, POSITIONS, bucket, resolve_precision
from latdoctor.lab.server.standby_model import Predictions
from latdoctor.load.text_tokens import VOCABULARY

ARENA = MemoryConfig(backend="arena", pool_mib=8, segment_mib=2)
FULL = ModelSettings(precision="fp32")
SMALL = ModelSettings(precision="fp32", layers=2, width=64)


def built(settings: ModelSettings = SMALL, memory: MemoryConfig = ARENA) -> IntentModel:
    return IntentModel(settings, build(memory))


def changed(settings: ModelSettings, **knobs: object) -> ModelSettings:
    return msgspec.convert({**msgspec.to_builtins(settings), **knobs}, ModelSettings)


def text(length: int, seed: int = 0) -> list[int]:
    choice = random.Random(f"{length} {seed}")
    return [choice.randrange(VOCABULARY) for _ in range(length)]


def audio(frames: int, seed: int = 0) -> ModelInput:
    return np.random.default_rng(seed).standard_normal((frames, FRAME_WIDTH)).astype(np.float32)


def one_by_one(model: IntentModel, inputs: Sequence[ModelInput]) -> Predictions:
    alone = [model.forward([one]) for one in inputs]
    return Predictions(
        intents=tuple(answer.intents[0] for answer in alone),
        scores=tuple(answer.scores[0] for answer in alone),
        checksum=model.checksum,
        padded_tokens=sum(answer.padded_tokens for answer in alone),
    )


MIXED: list[ModelInput] = [text(3), text(60), audio(25), text(200), audio(141), text(1), text(37)]


@pytest.mark.parametrize("attention", ["sdpa", "naive"])
@pytest.mark.parametrize("memory", [ARENA, MemoryConfig(glibc="default")], ids=["arena", "glibc"])
def test_padding_does_not_change_an_answer(attention: str, memory: MemoryConfig) -> None:
    model = built(changed(FULL, attention=attention), memory)
    together, alone = model.forward(MIXED), one_by_one(model, MIXED)
    assert together.intents == alone.intents
    assert together.scores == pytest.approx(alone.scores, abs=1e-5)
    assert together.padded_tokens == 7 * 200
    assert alone.padded_tokens == sum(len(one) for one in MIXED)
    assert model.pool.stats().alloc_total == 2 * (1 + len(MIXED))


def test_the_whole_input_counts() -> None:
    model = built()
    words = text(50)
    scores = {model.forward([[*words[:at], words[at] ^ 1, *words[at + 1 :]]]).scores for at in (0, 25, 49)}
    assert len(scores | {model.forward([words]).scores}) == 4
    assert model.forward([words[::-1]]).scores != model.forward([words]).scores


def test_a_version_is_the_same_model_whenever_it_is_built() -> None:
    first, again, other = built(), built(), built(changed(SMALL, version="v2"))
    assert first.checksum == again.checksum
    assert first.forward(MIXED) == again.forward(MIXED)
    assert other.checksum != first.checksum
    assert other.forward(MIXED).scores != first.forward(MIXED).scores
    # And on every machine: what a saved report says of a version stays true.
    assert first.checksum == "393ad2e41ae68749"


def test_answers_are_spread_over_the_intents() -> None:
    model = built(FULL)
    answers = model.forward([text(40, seed) for seed in range(60)])
    assert len(set(answers.intents)) >= 8
    assert all(0 <= intent < len(INTENTS) for intent in answers.intents)
    assert all(1 / len(INTENTS) <= score <= 1 for score in answers.scores)


@pytest.mark.parametrize(("precision", "agreement"), [("bf16", 0.95), ("int8", 0.95)])
def test_cheaper_precisions_answer_nearly_the_same(precision: str, agreement: float) -> None:
    exact, cheap = built(FULL), built(changed(FULL, precision=precision))
    batches = [[text(length, seed) for seed in range(40)] for length in (24, 40)]
    agreed = 0
    for batch in batches:
        wanted, found = exact.forward(batch), cheap.forward(batch)
        assert found.scores == pytest.approx(wanted.scores, abs=0.1)
        assert found.scores != wanted.scores
        agreed += sum(a == b for a, b in zip(wanted.intents, found.intents, strict=True))
    assert agreed >= agreement * 80
    assert cheap.precision == precision
    assert cheap.checksum == exact.checksum  # of the same weights, before they are made smaller


def test_auto_is_bf16_only_where_the_hardware_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert resolve_precision("auto", "cpu") == "bf16"
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert resolve_precision("auto", "cpu") == "fp32"
    with pytest.raises(UsageError, match="CPU only"):
        resolve_precision("int8", "cuda")


def test_the_standby_is_lighter_and_shares_the_memory() -> None:
    model = built(FULL)
    light = model.standby()
    assert (light.settings.layers, light.settings.width) == (2, 128)
    assert light.parameters < model.parameters / 3
    assert light.pool is model.pool
    assert light.settings.version == model.settings.version
    assert len(light.forward(MIXED).intents) == len(MIXED)


def test_the_reference_has_the_measured_size() -> None:
    assert built(FULL).parameters == pytest.approx(5.5e6, rel=0.03)


def test_settings_are_turned_live() -> None:
    model = built()
    before = model.forward(MIXED)
    model.apply(changed(SMALL, version="v2"))
    assert model.forward(MIXED).checksum != before.checksum
    model.apply(changed(SMALL, precision="bf16"))
    assert model.precision == "bf16"
    model.apply(changed(SMALL, threads=2))
    model.forward(MIXED)
    assert torch.get_num_threads() == 2
    model.apply(SMALL)
    assert model.forward(MIXED) == before
    assert torch.get_num_threads() == 1


def test_a_version_may_be_deeper_than_the_server_was_set_up_for() -> None:
    per_layer = built(changed(SMALL, layers=3)).parameters - built().parameters
    assert built(changed(SMALL, version="v2+4")).parameters == built().parameters + 4 * per_layer


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param([], id="nothing"),
        pytest.param([text(5), []], id="an empty input"),
        pytest.param([text(POSITIONS + 1)], id="too long"),
        pytest.param([[VOCABULARY]], id="beyond the vocabulary"),
        pytest.param([[-1]], id="below the vocabulary"),
        pytest.param([np.zeros((5, 3), dtype=np.float32)], id="another width of frames"),
    ],
)
def test_bad_batches_are_refused_and_leave_nothing_behind(batch: list[ModelInput]) -> None:
    model = built()
    with pytest.raises(ValueError, match=r"batch|token ids|audio"):
        model.forward(batch)
    assert model.pool.stats().allocated_bytes == 0
    assert len(model.forward([text(POSITIONS)]).intents) == 1


def test_a_batch_over_the_memory_is_refused_and_the_next_one_served() -> None:
    model = built(memory=MemoryConfig(backend="arena", pool_mib=1, limit_mib=1, segment_mib=1))
    with pytest.raises(OutOfMemory):
        model.forward([text(POSITIONS)] * 16)
    assert len(model.forward([text(40)]).intents) == 1
    assert model.pool.stats().alloc_oom_total == 1


def test_a_width_that_the_heads_cannot_share_is_refused() -> None:
    with pytest.raises(UsageError, match="multiple of 4"):
        built(changed(SMALL, width=33))


def test_warm_up_runs_batches() -> None:
    model = built()
    model.warm_up()
    stats = model.pool.stats()
    assert stats.alloc_total
    assert stats.allocated_bytes == 0


def test_compaction_runs_between_two_batches() -> None:
    now = [0.0]
    from latdoctor.lab.server.memory.arena import ArenaPool

    pool = ArenaPool(msgspec.structs.replace(ARENA, compaction_ms=500), clock=lambda: now[0])
    model = IntentModel(SMALL, pool)
    before = model.forward(MIXED)
    now[0] = 1
    assert model.forward(MIXED) == before
    assert pool.stats().compactions_total == 1


class TestCompiled:
    """With a compiler that does nothing, the counting and the buckets are the same as with the real one."""

    def test_each_bucket_is_compiled_once(self) -> None:
        settings = changed(SMALL, compile=True)
        model = IntentModel(settings, build(ARENA), compiler=lambda graph, _inputs: graph.forward)
        plain = built()
        for batch in ([text(40)], [text(41)], [text(60)]):
            found, wanted = model.forward(batch), plain.forward(batch)
            assert found.intents == wanted.intents
            assert found.scores == pytest.approx(wanted.scores, abs=1e-5)
            assert found.padded_tokens == 64
        assert model.compilations.total == 1
        three = [text(40, seed) for seed in range(3)]
        assert model.forward(three).padded_tokens == 4 * 64
        assert model.forward(three).intents == plain.forward(three).intents
        assert model.compilations.total == 2
        assert model.compilations.seconds > 0

    def test_without_buckets_every_new_shape_is_compiled_until_all_are_known(self) -> None:
        model = built(changed(SMALL, compile=True, compiler="eager-graph"))
        model.forward([text(40)])
        once = model.compilations.total
        seconds = model.compilations.seconds
        assert once == 1
        assert seconds > 0
        model.apply(changed(SMALL, compile=True, compiler="eager-graph", compile_buckets=False))
        lengths = range(20, 32)  # more shapes than torch would compile by itself
        for length in lengths:
            assert model.forward([text(length)]).padded_tokens == length
        assert model.compilations.total == once + len(lengths)
        assert model.compilations.seconds > seconds
        for length in lengths:
            model.forward([text(length)])
        assert model.compilations.total == once + len(lengths)
        model.apply(changed(SMALL, compile=True, compiler="eager-graph"))
        assert model.forward([text(40)]).padded_tokens == 64
        assert model.compilations.total == once + len(lengths)

    @pytest.mark.parametrize(
        ("batch", "length", "longest", "padded"),
        [
            (1, 1, 512, (1, 64)),
            (2, 64, 512, (4, 64)),
            (5, 65, 512, (16, 128)),
            (32, 512, 512, (32, 512)),
            (33, 300, 512, (64, 512)),
            (1, 90, 100, (1, 100)),
            (1, 600, 2048, (1, 1024)),
        ],
    )
    def test_shapes_are_padded_up(self, batch: int, length: int, longest: int, padded: tuple[int, int]) -> None:
        assert bucket(batch, length, longest) == padded

    def test_buckets_rise(self) -> None:
        assert list(BATCHES) == sorted(BATCHES)
        assert list(LENGTHS) == sorted(LENGTHS)


def test_a_model_that_is_built_again_answers_the_same() -> None:
    model = built()
    first, before = model.forward(MIXED), model._now
    model.rebuild()
    assert model._now is not before
    assert model.forward(MIXED) == first
    assert model.checksum == before.checksum
