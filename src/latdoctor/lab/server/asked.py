"""Reading apart: the bytes of a request body as one typed value, or a clear refusal."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from latdoctor.decoding import UNDECODABLE
from latdoctor.lab.server.refusal import BadRequest
from latdoctor.text import clean

MAX_BODY_BYTES = 64 * 1024
MAX_AUDIO_SECONDS = 3600.0
MAX_TURNS = 20  # of a transcript
_NAME = r"^[A-Za-z0-9._:@/+-]+$"

Name = Annotated[str, Meta(min_length=1, max_length=80, pattern=_NAME)]

Text = Annotated[str, Meta(max_length=MAX_BODY_BYTES)]


class Asked(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client asks: the intent of a text, or of so many seconds of audio.

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


_DECODER = msgspec.json.Decoder(Asked)
_SPEECH = re.compile(r"\w")


def parse(body: bytes) -> Asked:
    """The request in `body`. Raises BadRequest: 400 not JSON, 413 too large, 422 JSON that makes no sense."""
    if len(body) > MAX_BODY_BYTES:
        raise too_large()
    try:
        asked = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(422, "invalid", clean(str(error), 300)) from error
    except UNDECODABLE as error:
        raise BadRequest(400, "malformed", f"the body is not JSON: {clean(str(error), 200)}") from error
    if (asked.text is None) == (asked.audio_seconds is None):
        raise BadRequest(422, "invalid", "give one of `text` and `audio_seconds`")
    if asked.text is not None and not _SPEECH.search(asked.text):
        raise BadRequest(422, "empty", "`text` holds no word")
    if asked.transcript and asked.session is None:
        raise BadRequest(422, "invalid", "a `transcript` is that of a `session`")
    return asked


def too_large(*, close: bool = False) -> BadRequest:
    return BadRequest(413, "too-large", f"a body may have {MAX_BODY_BYTES} bytes", close=close)
