"""The HTTP routes of one inference server as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.lab.server.inference_server import InferenceServer
from latdoctor.lab.server.metrics import CONTENT_TYPE

READY, UNAVAILABLE, FAILED = 200, 503, 500


INTENT = "/v1/intent"


def build(parts: InferenceServer, also: Sequence[BaseRoute] = ()) -> Starlette:
    """The ASGI application of `parts`, with the routes in `also`."""

    async def healthz(_: Request) -> Response:
        return _json(READY, {"status": "ok"})

    async def readyz(_: Request) -> Response:
        state = parts.readiness
        return _json(READY if state.ready else UNAVAILABLE, {"status": state.state})

    async def metrics(_: Request) -> Response:
        return Response(await parts.page(), headers={"content-type": CONTENT_TYPE})

    async def failed(request: Request, _: Exception) -> Response:
        """Unexpected error: the traceback goes to the server's log, not to the client."""
        if request.url.path == INTENT:
            parts.metrics.requests.of(str(FAILED)).inc()
        return _json(FAILED, {"error": "internal", "detail": "the server failed; its log says more"})

    async def intent(request: Request) -> Response:
        return await parts.intent_handler(request)

    return Starlette(
        routes=[
            Route(INTENT, intent, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            *parts.admin.routes(),
            *parts.operations.routes(parts.admin.guarded),
            *also,
        ],
        exception_handlers={HTTPException: _plain, Exception: failed},
    )


async def _plain(_: Request, error: Exception) -> Response:
    """404 and 405, as JSON."""
    assert isinstance(error, HTTPException)
    response = _json(error.status_code, {"error": error.detail.lower().replace(" ", "-"), "detail": error.detail})
    response.headers.update(error.headers or {})
    return response


def _json(status: int, value: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
