"""BentoML with the intent model: `bentoml serve bench.peers.bento_service:Intent`, settings by the environment.

PEER_BATCH: its `max_batch_size`; 1: an API that is not batchable, its own default. PEER_LATENCY_MS: `max_latency_ms`.
PEER_LEAN=1: without access log and metrics, which are on by default. One worker, uvicorn with uvloop and httptools.
Runs in the peers' own environment.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import bentoml

from bench.peers.answering import Answering

BATCH = int(os.environ.get("PEER_BATCH", "1"))
LATENCY_MS = int(os.environ.get("PEER_LATENCY_MS", "60000"))
LEAN = {"logging": {"access": {"enabled": False}}, "metrics": {"enabled": False}, "monitoring": {"enabled": False}}
SETTINGS: dict[str, Any] = LEAN if os.environ.get("PEER_LEAN") == "1" else {}

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class OneOfMany:
    """Its batchable APIs take and give a list of many: this puts the one request's brackets on, and takes them off."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/v1/intent":
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message["type"] == "http.request" and message.get("more_body", False)
        given = [{"type": "http.request", "body": b"[" + body + b"]", "more_body": False}]
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        length = (b"content-length", str(len(body) + 2).encode())
        started: Message = {}

        async def receive_many() -> Message:
            return given.pop() if given else await receive()

        async def send_one(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
                return
            content = message.get("body", b"").strip()
            if started["status"] == 200:
                content = content.removeprefix(b"[").removesuffix(b"]")
            kept = [(name, value) for name, value in started["headers"] if name != b"content-length"]
            started["headers"] = [*kept, (b"content-length", str(len(content)).encode())]
            await send(started)
            await send({**message, "body": content})

        await self._app({**scope, "headers": [*headers, length]}, receive_many, send_one)


if BATCH > 1:

    @bentoml.service(workers=1, threads=1, **SETTINGS)
    class Intent:
        """One batch at a time on a thread of its own, collected by BentoML's dispatcher."""

        def __init__(self) -> None:
            self.answering = Answering.from_environment()

        @bentoml.api(route="/v1/intent", batchable=True, max_batch_size=BATCH, max_latency_ms=LATENCY_MS)
        def classify(self, asked: list[dict[str, Any]], /) -> list[dict[str, Any]]:
            return self.answering.answer([self.answering.read(one) for one in asked])

    Intent.add_asgi_middleware(OneOfMany)

else:

    @bentoml.service(workers=1, threads=1, **SETTINGS)
    class Intent:  # type: ignore[no-redef]
        """One request at a time on a thread of its own."""

        def __init__(self) -> None:
            self.answering = Answering.from_environment()

        @bentoml.api(route="/v1/intent")
        def classify(self, asked: dict[str, Any], /) -> dict[str, Any]:
            return self.answering.answer([self.answering.read(asked)])[0]
