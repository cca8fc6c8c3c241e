"""The rule that sends simple requests to an edge tier of light models, and when an answer of it is passed on.

Pure decisions: a request is simple if it is a text without a conversation, of few words and characters. The answer of
the light model counts where the model is confident enough; else the centre computes the request.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from latdoctor.decode_errors import UNDECODABLE

OK, GATEWAY_TIMEOUT = 200, 504


class PassedOn(StrEnum):
    """Why the centre computes a request that is simple. The values are metric labels."""

    LOW_CONFIDENCE = "low-confidence"
    OVERLOADED = "overloaded"  # every node has as many requests as it may have
    NO_NODE = "no-node"  # none is ready
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    FAILED = "failed"  # the node answered with an error, or was lost while it had the request


class EdgeRule(Struct, frozen=True):
    """The router's `edge_…` settings."""

    bypass: bool = False
    max_words: int = 12
    max_chars: int = 160
    confidence: float = 0.6
    max_in_flight: int = 4
    seconds: float = 0.2


class EdgeQuestion(Struct, frozen=True):
    """What the rule looks at in the body of a request."""

    text: str | None = None
    session: str | None = None


class EdgeAnswer(Struct, frozen=True):
    """What the router looks at in the answer of an edge node."""

    score: Annotated[float, Meta(ge=0, le=1)]


_QUESTION = msgspec.json.Decoder(EdgeQuestion)
_ANSWER = msgspec.json.Decoder(EdgeAnswer)


def is_simple(body: bytes, rule: EdgeRule) -> bool:
    """Whether the edge tier may answer; a body that is not valid goes to the centre, which says why."""
    if rule.bypass:
        return False
    try:
        question = _QUESTION.decode(body)
    except UNDECODABLE:
        return False
    if question.text is None or question.session is not None:
        return False
    return len(question.text) <= rule.max_chars and len(question.text.split()) <= rule.max_words


def judged(status: int, body: bytes, rule: EdgeRule) -> PassedOn | None:
    """Why the answer of an edge node does not count; None: it does."""
    if status == GATEWAY_TIMEOUT:
        return PassedOn.TIMEOUT
    if status != OK:
        return PassedOn.FAILED
    try:
        answer = _ANSWER.decode(body)
    except UNDECODABLE:
        return PassedOn.FAILED
    return None if answer.score >= rule.confidence else PassedOn.LOW_CONFIDENCE
