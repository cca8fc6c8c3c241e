"""An intent request: its body read and validated, its way through the stages, and its place in the queue."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.lab.server.answer_cache import CachedAnswer
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.schedulers.batch import Work
from latdoctor.lab.server.sessions.session_levels import OpenSession, SessionLevel
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_BODY_BYTES = 64 * 1024
MAX_AUDIO_SECONDS = 3600.0
MAX_TURNS = 20  # of a transcript
MODEL_VERSION_HEADER = "x-model-version"  # of the model that computed an answer, for a router in front
_NAME = r"^[A-Za-z0-9._:@/+-]+$"

Name = Annotated[str, Meta(min_length=1, max_length=80, pattern=_NAME)]

Text = Annotated[str, Meta(max_length=MAX_BODY_BYTES)]


class IntentRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's request: the intent of a text, or of so many seconds of audio.

    `transcript` are the texts of the session's turns before, oldest first, as chat clients send them; empty at the
    first turn. By it the server checks the state that it has, and makes it again where it has lost it.
    """

    text: Text | None = None
    audio_seconds: Annotated[float, Meta(gt=0, le=MAX_AUDIO_SECONDS)] | None = None
    session: Name | None = None
    transcript: Annotated[tuple[Text, ...], Meta(max_length=MAX_TURNS)] | None = None
    priority: Literal["low", "normal", "high"] = "normal"
    request_id: Name | None = None
    attempt: Annotated[int, Meta(ge=0, le=1000)] = 0


_DECODER = msgspec.json.Decoder(IntentRequest)
_SPEECH = re.compile(r"\w")


def parse(body: bytes) -> IntentRequest:
    """The request in `body`. Raises BadRequest: 400 not JSON, 413 too large, 422 invalid values."""
    if len(body) > MAX_BODY_BYTES:
        raise too_large()
    try:
        intent_request = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(422, "invalid", clean(str(error), 300)) from error
    except UNDECODABLE as error:
        raise BadRequest(400, "malformed", f"the body is not JSON: {clean(str(error), 200)}") from error
    if (intent_request.text is None) == (intent_request.audio_seconds is None):
        raise BadRequest(422, "invalid", "give one of `text` and `audio_seconds`")
    if intent_request.text is not None and not _SPEECH.search(intent_request.text):
        raise BadRequest(422, "empty", "`text` holds no word")
    if intent_request.transcript and intent_request.session is None:
        raise BadRequest(422, "invalid", "a `transcript` is that of a `session`")
    return intent_request


def too_large(*, close: bool = False) -> BadRequest:
    return BadRequest(413, "too-large", f"a body may have {MAX_BODY_BYTES} bytes", close=close)


# A client that is still sending would not read the refusal: up to here its bytes are read and discarded.
MAX_IGNORED_BYTES = 4 << 20
BODY_SECONDS = 10.0  # how long a client may take to send it


async def read(request: Request, seconds: float = BODY_SECONDS) -> bytes:
    """The whole body. Raises BadRequest (413, 408) where it is too large or too slow, ClientDisconnect."""
    declared = request.headers.get("content-length", "")
    announced = int(declared[:20]) if declared.isdigit() else 0
    if announced > MAX_IGNORED_BYTES or (announced > MAX_BODY_BYTES and "expect" in request.headers):
        raise too_large(close=True)
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_IGNORED_BYTES:
                    raise too_large(close=True)
                if size <= MAX_BODY_BYTES:
                    body += chunk
    except TimeoutError:
        raise BadRequest(408, "slow-body", "the body did not come in time", close=True) from None
    if size > MAX_BODY_BYTES:
        raise too_large()
    return bytes(body)


# Token ids of a text, or feature frames of audio: float32, (frames, 80).
ModelInput: TypeAlias = "Sequence[int] | NDArray[np.float32]"


class ModelAnswer(Struct, frozen=True):
    """The model's answer for one request. Times are seconds of the server's monotonic clock."""

    intent: int
    score: float
    version: str
    batched: float
    computed: float
    standby: bool = False


class AnswerSource(StrEnum):
    """What computed an answer; FALLBACK: nothing, it is the default answer; CACHE: the model, earlier."""

    MODEL = "model"
    STANDBY = "standby"
    FALLBACK = "fallback"
    CACHE = "cache"


class SessionUse(Struct, frozen=True):
    """The history that an answer was computed with: where it came from, its tokens and their checksum."""

    level: SessionLevel
    tokens: int
    checksum: str


class IntentResponse(Struct, frozen=True, omit_defaults=True):
    """The body of a 200. Times are those of the server's monotonic clock."""

    intent: str
    score: float
    model_version: str
    request_id: str
    source: AnswerSource
    timing: RequestTiming
    session: SessionUse | None = None


@dataclass(slots=True)
class RequestContext:
    """A request in progress: stages read what they need and store their results."""

    intent_request: IntentRequest
    request_id: str
    received: float  # when the body was whole: seconds of the server's monotonic clock, as are all times here
    entered: float  # at its first line: seconds of Unix time, for the access log
    content_bytes: int = 0  # of its body
    own: Sequence[int] = ()  # token ids of the text
    input: ModelInput = ()
    tokens: int = 0  # the length the scheduler sees: the request's own and its history's
    session: OpenSession | None = None
    history: Sequence[int] = ()  # the part of the session's tokens that is computed with the request
    feature: tuple[float, ...] | None = None  # from the dependency
    queued: float = 0.0
    computed: ModelAnswer | None = None
    cached: CachedAnswer | None = None
    intent: str = ""
    source: AnswerSource = AnswerSource.MODEL
    sent: float = 0.0
    body: bytes = b""


class RequestTiming(Struct, frozen=True):
    """The times of one answer, in seconds of the server's monotonic clock; `received`: the body was whole."""

    received: float
    queued: float
    batched: float
    computed: float
    sent: float

    def stages(self) -> dict[str, float]:
        """Seconds in each: before the queue, in it, in the model, and after it."""
        parts = {
            "prepare": self.queued - self.received,
            "queue": self.batched - self.queued,
            "compute": self.computed - self.batched,
            "finish": self.sent - self.computed,
        }
        return {name: round(max(0.0, seconds), 6) for name, seconds in parts.items()}


@dataclass(frozen=True, slots=True)
class Ticket:
    """An accepted request: its scheduling data, its model input and the future of its answer."""

    work: Work
    input: ModelInput
    answer: asyncio.Future[ModelAnswer]


class PendingRequests:
    """Tickets by id in order of arrival. The lock is held for dictionary steps only, never for computing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._tokens = 0

    def add(self, ticket: Ticket) -> None:
        with self._lock:
            self._tickets[ticket.work.id] = ticket
            self._tokens += ticket.work.tokens

    def take(self, ids: Iterable[int]) -> tuple[Ticket, ...]:
        """Removes and returns those of `ids` that still wait; the clients of the others have disconnected."""
        with self._lock:
            taken = tuple(ticket for id_ in ids if (ticket := self._tickets.pop(id_, None)) is not None)
            self._tokens -= sum(ticket.work.tokens for ticket in taken)
        return taken

    def all(self) -> tuple[Ticket, ...]:
        with self._lock:
            return tuple(self._tickets.values())

    def oldest_age(self, now: float) -> float:
        """Seconds that the oldest has waited; 0 where none waits."""
        with self._lock:
            for ticket in self._tickets.values():
                return max(0.0, now - ticket.work.arrived)
        return 0.0

    @property
    def depth(self) -> int:
        return len(self._tickets)

    @property
    def tokens(self) -> int:
        return self._tokens
