"""An answer that was computed with other turns than the client had sent is a failure."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.load.answered_history import has_wrong_history
from latdoctor.load.arrivals import Constant
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load
from latdoctor.load.text_tokens import packed_tokens, state_checksum, text_tokens, unpacked_tokens
from tests.load.tiny_server import serving

SAID = ["where is my parcel", "it was to arrive on monday", "order 1234"]
TOKENS = [token for text in SAID for token in text_tokens(text)]


def asked(transcript: Sequence[str] = SAID) -> bytes:
    return json.dumps({"text": "hello", "session": "s", "transcript": list(transcript)}).encode()


def answered(tokens: Sequence[int], counted: int | None = None) -> bytes:
    session = {"level": "redis", "tokens": len(tokens) if counted is None else counted}
    return json.dumps({"intent": "x", "session": session | {"checksum": state_checksum(tokens)}}).encode()


@pytest.mark.parametrize("kept", range(len(TOKENS) + 1))
def test_the_end_of_the_transcript_is_right(kept: int) -> None:
    assert not has_wrong_history(asked(), answered(TOKENS[len(TOKENS) - kept :]))


@pytest.mark.parametrize(
    "answer",
    [
        answered(TOKENS[:4]),  # a stale state: the last turns are missing
        answered([*TOKENS[:-1], TOKENS[-1] + 1]),
        answered(TOKENS[::-1]),
        answered(TOKENS[-3:], counted=4),
        answered([], counted=-1),
    ],
)
def test_any_other_history_is_wrong(answer: bytes) -> None:
    assert has_wrong_history(asked(), answer)


@pytest.mark.parametrize(
    ("request_body", "answer"),
    [
        (asked(), b'{"intent": "x"}'),  # no session
        (asked(SAID[1:]), answered(TOKENS)),  # the server knows turns that this request did not send
        (asked(), b"no JSON"),
        (b"{", answered(TOKENS)),
    ],
)
def test_what_cannot_be_compared_is_not_called_wrong(request_body: bytes, answer: bytes) -> None:
    assert not has_wrong_history(request_body, answer)


@given(st.lists(st.integers(0, 8191)))
def test_packed_tokens_come_back(tokens: list[int]) -> None:
    assert unpacked_tokens(packed_tokens(tokens)) == tuple(tokens)


def test_a_load_counts_answers_with_a_wrong_history_as_failed() -> None:
    plan = LoadPlan((LoadPhase("only", 0.6, Constant(50), Mix(sessions=2, audio_share=0)),))

    def stale(transcript: list[str]) -> dict[str, object]:
        before = [token for text in transcript[:-1] for token in text_tokens(text)]
        return {"tokens": len(before), "checksum": state_checksum(before)}

    with serving() as server:
        server.session = stale
        counts = (result := run_load(plan, server.address)).total
    assert counts.counts.failed == counts.statuses["wrong-history"] > 10
    assert result.total.counts.answered == counts.statuses["200"] > 0  # the first turns, which have no history
