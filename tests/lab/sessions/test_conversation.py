"""Laws of the state of a conversation: comparison with a transcript, difference, window, encoding."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.sessions.conversation import (
    TAG_BYTES,
    Conversation,
    Turn,
    decode_turn,
    difference,
    encode_turn,
    recomputed,
    reconcile,
    text_digest,
    turn_of,
    windowed,
)
from latdoctor.load.text_tokens import VOCABULARY, state_checksum, text_tokens

texts = st.lists(st.text("abc ", min_size=1, max_size=6), min_size=1, max_size=12)
windows = st.integers(0, 6)
tokens = st.lists(st.integers(0, VOCABULARY - 1), max_size=40)


def state(said: Sequence[str], window: int = 0) -> Conversation:
    """What a store holds after these turns."""
    return windowed([turn_of(number, text) for number, text in enumerate(said)], window, 4096)[0]


@given(texts, windows, st.integers(0, 11))
def test_a_store_that_is_behind_is_continued_to_the_newest_turn(said: list[str], window: int, behind: int) -> None:
    behind = min(behind, len(said) - 1)
    stored = state(said[: len(said) - behind], window)
    found = reconcile(stored, said)
    assert found is not None
    assert found.behind <= behind
    expected = [token for text in said for token in text_tokens(text)]
    got = list(found.conversation.tokens)
    assert not got or expected[-len(got) :] == got


@given(texts, texts, windows)
def test_what_a_store_gives_always_ends_as_the_transcript_does(held: list[str], said: list[str], window: int) -> None:
    found = reconcile(state(held, window), said)
    if found is None:
        return
    newest = [text_digest(text) for text in said][-len(found.conversation.turns) :]
    assert [turn.digest for turn in found.conversation.turns][-len(newest) :] == newest


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (["a", "b"], []),
        (["a", "x"], ["a", "b"]),
        (["b"], ["a", "b"]),  # begun anew in the middle: the first turn is missing
        (["a", "b", "b"], ["a", "b"]),
    ],
)
def test_a_state_of_another_conversation_is_refused(held: list[str], said: list[str]) -> None:
    assert reconcile(state(held), said) is None


def test_a_transcript_without_its_oldest_turns_confirms_the_state() -> None:
    found = reconcile(state(["a", "b", "c"]), ["b", "c"])
    assert found is not None
    assert (found.behind, len(found.conversation.turns)) == (0, 3)


@given(texts, texts, windows, windows)
def test_a_difference_turns_one_state_into_the_other(before: list[str], after: list[str], one: int, other: int) -> None:
    known, desired = state(before, one), state(after, other)
    change = difference(known, desired)
    kept = () if change.drop is None else known.turns[change.drop :]
    assert (*kept, *change.append) == desired.turns


@given(texts, st.text("abc", max_size=5), st.integers(1, 6))
def test_the_next_turn_is_all_that_is_sent(said: list[str], text: str, window: int) -> None:
    known = state(said, window)
    new = turn_of(len(said), text)
    desired, _ = windowed((*known.turns, new), window, 4096)
    assert difference(known, desired).append == (new,)


@given(st.integers(0, 2**40), st.binary(min_size=8, max_size=8), tokens, st.integers(0, 50))
def test_a_turn_is_read_as_it_was_written(number: int, digest: bytes, ids: list[int], compress: int) -> None:
    turn = Turn(number, digest, tuple(ids))
    stored = encode_turn(turn, compress)
    assert decode_turn(stored) == turn
    assert stored[:TAG_BYTES] == turn.tag


@given(st.binary(max_size=80))
def test_any_other_bytes_are_refused(stored: bytes) -> None:
    try:
        turn = decode_turn(stored)
    except ValueError:
        return
    assert len(turn.tokens) <= 40


def test_bytes_that_would_run_code_are_refused() -> None:
    with pytest.raises(ValueError, match="no record"):
        decode_turn(b"\0" * TAG_BYTES + pickle.dumps([1, 2, 3]))


def test_compressed_tokens_that_grow_beyond_their_number_are_refused() -> None:
    import zstandard

    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    record = msgspec.msgpack.encode(("<u2", (2,), True, bomb))
    with pytest.raises(ValueError, match="tokens"):
        decode_turn(b"\0" * TAG_BYTES + record)


@given(tokens, tokens)
def test_different_histories_have_different_checksums(one: list[int], other: list[int]) -> None:
    assert (state_checksum(one) == state_checksum(other)) == (one == other)


def test_of_no_transcript_nothing_is_made() -> None:
    assert recomputed([]) is None
