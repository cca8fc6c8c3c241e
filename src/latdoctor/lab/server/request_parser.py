"""Reads and validates the body of an intent request."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.lab.server.errors import BadRequest
from latdoctor.sanitize import clean

MAX_BODY_BYTES = 64 * 1024
MAX_AUDIO_SECONDS = 3600.0
MAX_TURNS = 20  # of a transcript
_NAME = r"^[A-Za-z0-9._:@/+-]+$"

Name = Annotated[str, Meta(min_length=1, max_length=80, pattern=_NAME)]

Text = Annotated[str, Meta(max_length=MAX_BODY_BYTES)]


class IntentRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's request: the intent of a text, or of so many seconds of audio.

    `transcript` are the texts of the session's turns before, oldest first, as chat clients send them along. It is read
    only where the server has lost the session.
    """

    text: Text | None = None
    audio_seconds: Annotated[float, Meta(gt=0, le=MAX_AUDIO_SECONDS)] | None = None
    session: Name | None = None
    transcript: Annotated[tuple[Text, ...], Meta(max_length=MAX_TURNS)] = ()
    priority: Literal["low", "normal", "high"] = "normal"
    request_id: Name | None = None
    attempt: Annotated[int, Meta(ge=0, le=1000)] = 0


_DECODER = msgspec.json.Decoder(IntentRequest)
_SPEECH = re.compile(r"\w")


def parse(body: bytes) -> IntentRequest:
    """The request in `body`. Raises BadRequest: 400 not JSON, 413 too large, 422 JSON that makes no sense."""
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


# A client that is still sending would not read why it was refused: up to here its bytes are read and thrown away.
MAX_IGNORED_BYTES = 4 << 20
BODY_SECONDS = 10.0  # how long a client may take to send it


async def read(request: Request, seconds: float = BODY_SECONDS) -> bytes:
    """The whole body. Raises BadRequest (413, 408) where it is too large or comes too slowly, ClientDisconnect."""
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
