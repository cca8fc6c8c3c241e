"""Reading a request's body: bounded in size and in time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from latdoctor.lab.server.asked import MAX_BODY_BYTES, too_large
from latdoctor.lab.server.refusal import BadRequest

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
