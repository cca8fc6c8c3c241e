"""Whether an answer of the reference server was computed with the history that its client sent.

Each answer of a session says how many tokens of history it used, and gives a checksum of them. A client that knows its
own texts sees from that whether the state was stale, torn or another client's.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

import msgspec
from msgspec import Struct

from latdoctor.load.text_tokens import state_checksum, text_tokens

_REMEMBERED = 4096  # texts: a turn is in the transcript of each later one


class _SessionRequest(Struct):
    transcript: list[str] = []


class _Used(Struct):
    tokens: int
    checksum: str


class _SessionAnswer(Struct):
    session: _Used | None = None


_ASKED, _ANSWER = msgspec.json.Decoder(_SessionRequest), msgspec.json.Decoder(_SessionAnswer)


def has_wrong_history(asked: bytes, answer: bytes) -> bool:
    """Whether the history of `answer` is not the end of the transcript in the request `asked`.

    False where there is nothing to compare: no session, or more history than the transcript has.
    """
    try:
        used, transcript = _ANSWER.decode(answer).session, _ASKED.decode(asked).transcript
    except msgspec.DecodeError:
        return False
    if used is None:
        return False
    newest: list[tuple[int, ...]] = []
    known = 0
    while known < used.tokens and len(newest) < len(transcript):
        newest.append(_remembered(transcript[-1 - len(newest)]))
        known += len(newest[-1])
    if used.tokens > known:
        return False
    tokens = list(chain.from_iterable(reversed(newest)))
    return used.tokens < 0 or used.checksum != state_checksum(tokens[known - used.tokens :])


@lru_cache(_REMEMBERED)
def _remembered(text: str) -> tuple[int, ...]:
    return tuple(text_tokens(text))
