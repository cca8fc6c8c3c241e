"""Features of a request: what they add to the input, and which are left out when they are trimmed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import FEATURE_NAMES, FeaturesConfig, QueueConfig, ServerConfig, load_config
from latdoctor.lab.server.features import by_weight, feature_tokens, features_of
from latdoctor.load.text_tokens import RESERVED, VOCABULARY
from tests.lab.server.running_server import ADMIN, Running

settings = st.builds(
    FeaturesConfig,
    count=st.integers(0, len(FEATURE_NAMES)),
    kept=st.integers(0, len(FEATURE_NAMES)),
    order=st.lists(st.sampled_from(FEATURE_NAMES), unique=True).map(tuple),
)


@given(settings)
def test_trimming_keeps_the_weightiest_and_the_order_of_the_input(config: FeaturesConfig) -> None:
    whole, kept = features_of(config, trimmed=False), features_of(config, trimmed=True)
    assert whole == FEATURE_NAMES[: config.count]
    assert len(kept) == min(config.kept, config.count)
    assert list(kept) == [name for name in whole if name in kept]
    ranked = by_weight(config)
    assert sorted(ranked) == sorted(whole)
    assert set(kept) == set(ranked[: config.kept])


@given(st.lists(st.sampled_from(FEATURE_NAMES), unique=True), st.text(max_size=20))
def test_a_feature_is_two_tokens_of_the_vocabulary_and_the_same_everywhere(names: list[str], key: str) -> None:
    tokens = feature_tokens(names, key)
    assert len(tokens) == 2 * len(names)
    assert all(RESERVED <= token < VOCABULARY for token in tokens)
    assert tokens == feature_tokens(names, key)


@pytest.mark.parametrize("order", ["nothing", "hour,hour"])
def test_an_order_of_unknown_or_repeated_features_is_refused(order: str) -> None:
    with pytest.raises(UsageError, match="order"):
        load_config(None, [f"features.order={order}"])


def change(server: Running, **knobs: object) -> None:
    changed = server.client.patch("/admin/config", json={"features": knobs}, headers={**ADMIN, "if-match": "*"})
    assert changed.status_code == 200


def test_features_are_trimmed_while_the_server_runs() -> None:
    with Running(ServerConfig(features=FeaturesConfig(count=10))) as server:
        assert server.ask(text="one two three").status_code == 200
        change(server, trim="on", kept=4)
        assert server.ask(text="one two three").status_code == 200
        change(server, kept=0)
        assert server.ask(text="one two three").status_code == 200
        assert server.ask(audio_seconds=1).status_code == 200  # it has none
        change(server, trim="off")
        assert server.ask(text="one two three").status_code == 200
        assert server.model.batches == [[20 + 1 + 3], [8 + 1 + 3], [3], [25], [20 + 1 + 3]]
        assert server.page()[("ref_features_trimmed_total", "")] == 2


def test_features_and_history_share_the_room_for_an_input() -> None:
    config = ServerConfig(features=FeaturesConfig(count=10), queue=QueueConfig(max_tokens_per_request=16))
    with Running(config) as server:
        for text in ("one two three", "four", "word " * 16):
            assert server.ask(text=text, session="s").status_code == 200
        assert server.model.batches == [[12 + 1 + 3], [10 + 1 + 3 + 1 + 1], [16]]


@pytest.mark.parametrize(("is_open", "tokens"), [(False, 20 + 1 + 1), (True, 1)])
def test_with_auto_they_are_trimmed_while_the_breaker_is_open(is_open: bool, tokens: int) -> None:
    with Running(ServerConfig(features=FeaturesConfig(count=10, trim="auto", kept=0))) as server:
        server.parts.governance.breaker.is_open = lambda _: is_open  # type: ignore[method-assign]
        assert server.ask(text="one").status_code == 200
        assert server.model.batches == [[tokens]]
