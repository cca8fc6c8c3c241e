"""The request that a run sends to a server other than the reference server: a path, and a JSON body for each phase."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from latdoctor.load.mix import RequestContent, filler_text

PROMPT = "$PROMPT"  # replaced by words without quotes or escapes: as many as the request has tokens


class RequestTemplate(Struct, frozen=True, forbid_unknown_fields=True):
    """`body` is the body in every phase that `bodies` does not name."""

    path: Annotated[str, Meta(pattern="^/")]
    body: str
    bodies: dict[str, str] = {}

    def content(self, phase: str, ask: RequestContent) -> bytes:
        """The body of one request of `phase`."""
        text = self.bodies.get(phase, self.body)
        return text.replace(PROMPT, filler_text(ask.place, ask.tokens)).encode()
