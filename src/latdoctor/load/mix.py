"""The request mix: shares of short and long, text and audio, sessions, and malformed bodies.

The constants are shared with the reference server: audio frame rate, classes of body size, latency buckets.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from latdoctor.load.distributions import Quantiles

FRAMES_PER_SECOND = 25  # of audio; one frame is one token to the model
SMALL_BODY_BYTES = 1024  # a body up to here fits one packet of any network with its headers
BODY_SIZES = ("small", "large")
# 0.0005·1.5ⁿ up to 60 s: a quantile from these buckets is at most 22 % off.
SECONDS = tuple(float(f"{0.0005 * 1.5**n:.6g}") for n in range(29))


def body_size(content_bytes: int) -> str:
    """The class of a request body (one of BODY_SIZES) on the server's and the client's metrics page."""
    return BODY_SIZES[content_bytes > SMALL_BODY_BYTES]


MALFORMED = "malformed"
_GOLDEN = 0.618033988749895  # its multiples modulo 1 are spread evenly
MOST_TURNS = 20  # of a transcript: the server's limit
MOST_WORDS = 4000  # of a transcript; well under the server's limit of 64 KiB for a body

Share = Annotated[float, Meta(ge=0, le=1)]
Length = Annotated[int, Meta(ge=1, le=100_000)]  # tokens


class Mix(Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of all requests. Lengths are in tokens, uniform over a range; a text has one word per token.

    The default lengths are those of a customer-service desk: short turns, and a few long recordings.
    `sessions` is the number of conversations; 0: none. Each request of a conversation includes the texts of the turns
    before, as chat clients do. `tokens`, where given, is the distribution of all lengths, from which short and long
    (at least `long_tokens[0]`) follow. `questions`, where given, is how many different texts there are of each size:
    frequent questions, which a cache of answers can know.
    """

    long_share: Share = 0.15
    audio_share: Share = 0.3
    malformed_share: Share = 0.0
    sessions: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    short_tokens: tuple[Length, Length] = (20, 60)
    long_tokens: tuple[Length, Length] = (300, 500)
    tokens: Quantiles | None = None
    questions: Annotated[int, Meta(ge=0, le=4096)] = 0

    def __post_init__(self) -> None:
        for low, high in (self.short_tokens, self.long_tokens):
            if low > high:
                raise ValueError(f"a range of lengths goes from {low} to {high}")


class Turn(Struct, frozen=True, gc=False):
    """A text: the index of its first word, and its length in words."""

    place: int
    tokens: int


class RequestContent(Struct, frozen=True, gc=False):
    """The content of one request; `place` is the index of its first word or of its malformed body.

    `before` are the texts of earlier requests of the same session.
    """

    kind: str
    tokens: int
    place: int
    session: int | None
    before: tuple[Turn, ...] = ()


def draw(mix: Mix, rng: Random) -> RequestContent:
    """Draw the next request of `mix`, always with six random numbers, so that a share changes no other request."""
    malformed, long, audio, length, place, session = (rng.random() for _ in range(6))
    if mix.questions:
        question = int(place * mix.questions)
        place, length = question / mix.questions, question * _GOLDEN % 1
    if mix.tokens is None:
        size = "long" if long < mix.long_share else "short"
        low, high = mix.long_tokens if size == "long" else mix.short_tokens
        tokens = low + int(length * (high - low + 1))
    else:
        tokens = max(1, round(mix.tokens.value(length)))
        size = "long" if tokens >= mix.long_tokens[0] else "short"
    kind = MALFORMED if malformed < mix.malformed_share else f"{size}-{'audio' if audio < mix.audio_share else 'text'}"
    return RequestContent(
        kind=kind,
        tokens=tokens,
        place=int(place * len(_WORDS)),
        session=int(session * mix.sessions) if mix.sessions else None,
    )


def with_other_words(ask: RequestContent, by: int) -> RequestContent:
    """The same request with a text of the same length that begins `by` words further on."""
    return structs.replace(ask, place=(ask.place + by) % len(_WORDS))


class Conversations:
    """The previous turns of each session."""

    def __init__(self) -> None:
        self._turns: dict[int, tuple[Turn, ...]] = {}

    def joined(self, ask: RequestContent) -> RequestContent:
        """`ask` with the previous turns of its session; the oldest are dropped beyond the limits."""
        if ask.session is None or ask.kind == MALFORMED:
            return ask
        before = self._turns.get(ask.session, ())
        if not ask.kind.endswith("audio"):
            self._turns[ask.session] = _bounded((*before, Turn(ask.place, ask.tokens)))
        return structs.replace(ask, before=before)


def _bounded(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    kept = turns[-MOST_TURNS:]
    while sum(turn.tokens for turn in kept) > MOST_WORDS:
        kept = kept[1:]
    return kept


def body(ask: RequestContent, request_id: str, attempt: int) -> bytes:
    """The body of one attempt; `attempt` 0 is the first."""
    if ask.kind == MALFORMED:
        return MALFORMED_BODIES[ask.place % len(MALFORMED_BODIES)]
    fields: dict[str, object] = {"request_id": request_id, "attempt": attempt}
    if ask.kind.endswith("audio"):
        fields["audio_seconds"] = ask.tokens / FRAMES_PER_SECOND
    else:
        fields["text"] = filler_text(ask.place, ask.tokens)
    if ask.session is not None:
        fields["session"] = f"s-{ask.session}"
        fields["transcript"] = [filler_text(turn.place, turn.tokens) for turn in ask.before]
    return msgspec.json.encode(fields)


def filler_text(place: int, words: int) -> str:
    """Return `words` words of an endless text; it takes microseconds, because it runs during the load."""
    rounds, rest = divmod(words, len(_WORDS))
    turned = _WORDS[place:] + _WORDS[:place] if place + rest > len(_WORDS) or rounds else _WORDS[place : place + rest]
    return " ".join(turned * rounds + turned[:rest])


VOCABULARY = """
the my a please order parcel invoice account refund ticket where is was not it when will arrive paid twice card
address change cancel subscription delivery late broken screen charger phone battery update login password reset
blocked payment failed receipt missing colour size wrong exchange return label courier tracking number never came
gift voucher expired discount code does work speak to someone about contract renewal price increase month again
thanks help me urgent still waiting since monday yesterday morning I we you can could would have been told that
"""
_WORDS = Random(0).choices(VOCABULARY.split(), k=4096)  # noqa: S311  # filler text, no secret
MALFORMED_BODIES = (
    b"{",
    b"[]",
    b"{}",
    b'{"text": 5}',
    b'{"text": "\xff"}',
    b'{"audio_seconds": -1}',
    b'{"audio_seconds": 1e9}',
    b'{"text": "' + b"a" * 70_000 + b'"}',
)
