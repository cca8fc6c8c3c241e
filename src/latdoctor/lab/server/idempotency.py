"""Idempotency keys: a request that repeats the `Idempotency-Key` of an earlier one is not applied again.

As in the IETF draft "The Idempotency-Key HTTP Header Field", the repetition gets the response of the first. A refused
request is not remembered, since it has changed nothing. The keys are in memory, so a restart forgets them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from latdoctor.lab.server import intent_request
from latdoctor.lab.server.errors import BadRequest

MAX_KEYS = 1000  # the oldest is forgotten
MAX_KEY_LENGTH = 200
MAX_REMEMBERED_BYTES = 64 * 1024  # of a response; what answers with more, a profile, changes nothing

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Request:
    """A request in progress or completed. `response` is None once it was refused."""

    fingerprint: str
    response: asyncio.Future[Response | None]


@dataclass(slots=True)
class IdempotencyKeys:
    """The requests with a key, oldest first. Used on the event loop."""

    limit: int = MAX_KEYS
    _known: dict[str, _Request] = field(default_factory=dict)

    async def respond(self, request: Request, handler: Handler) -> Response:
        """The response of `handler`, or that of an earlier request with the same key, which may still be in progress.

        Raises BadRequest for an invalid key and for a key of another request, and what `handler` raises.
        """
        key = request.headers.get("idempotency-key")
        if key is None:
            return await handler(request)
        if not 0 < len(key) <= MAX_KEY_LENGTH or not key.isprintable():
            raise BadRequest(400, "invalid-key", f"an Idempotency-Key has 1 to {MAX_KEY_LENGTH} printable characters")
        body = await intent_request.read(request)
        fingerprint = hashlib.sha256(f"{request.method} {request.url.path}\n".encode() + body).hexdigest()
        while known := self._known.get(key):
            if known.fingerprint != fingerprint:
                raise BadRequest(422, "key-reused", "this Idempotency-Key belongs to another request")
            if response := await asyncio.shield(known.response):
                return response
        return await self._first(key, fingerprint, _with_body(request, body), handler)

    async def _first(self, key: str, fingerprint: str, request: Request, handler: Handler) -> Response:
        entry = self._known[key] = _Request(fingerprint, asyncio.get_running_loop().create_future())
        response: Response | None = None
        try:
            response = await handler(request)
        finally:
            applied = response if response is not None and _is_remembered(response) else None
            if applied is None:
                del self._known[key]
            entry.response.set_result(applied)
        self._forget_oldest()
        return response

    def _forget_oldest(self) -> None:
        completed = [key for key, one in self._known.items() if one.response.done()]
        for key in completed[: max(0, len(self._known) - self.limit)]:
            del self._known[key]


def _is_remembered(response: Response) -> bool:
    return response.status_code < 300 and len(response.body) <= MAX_REMEMBERED_BYTES


def _with_body(request: Request, body: bytes) -> Request:
    """The request, with its body to be read once more."""
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return unread.pop() if unread else await request.receive()

    return Request(request.scope, receive)
