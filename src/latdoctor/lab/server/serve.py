"""`latdoctor lab serve`: HTTP routes, start and graceful shutdown of one inference server.

On SIGTERM or SIGINT the server reports not ready, accepts requests for a short grace period (so that load balancers
notice), closes the listening socket, answers all accepted requests and exits. A second signal exits at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.errors import UsageError
from latdoctor.http.safe_address import is_loopback
from latdoctor.lab.hardened_http_server import HttpServer, allow_files, stop_event
from latdoctor.lab.server.admin_http import json_response
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.governance import ServerState
from latdoctor.lab.server.inference_server import InferenceServer, ModelBackend, ServerIdentity
from latdoctor.lab.server.metrics import CONTENT_TYPE

# Extension attached at the start of a server: returns additional routes.
Agent = Callable[[InferenceServer], Sequence[BaseRoute]]

GRACE_SECONDS = 0.5
DRAIN_SECONDS = 30.0
INTENT = "/v1/intent"
READY, UNAVAILABLE, FAILED = 200, 503, 500


class ServeOptions(Struct, frozen=True):
    """How a server is started. `port` 0 takes a free one."""

    config: ServerConfig = ServerConfig()
    host: str = "127.0.0.1"
    port: int = 8080
    allow_remote: bool = False
    admin_token: str = ""
    access_log: Path | None = None
    replica: str = "0"
    agent: Agent | None = None
    grace_seconds: float = GRACE_SECONDS

    def check_host(self) -> None:
        """Raises UsageError for a host that other machines can reach, unless that is allowed."""
        if not self.allow_remote and not is_loopback(self.host):
            raise UsageError(
                f"{self.host} can be reached from other machines", next_step="--allow-remote, if that is what you want"
            )


def serve(options: ServeOptions, backend: Callable[[ServerConfig], ModelBackend] | None = None) -> None:
    """Serves until SIGTERM or SIGINT. Raises UsageError, and OperationError if the port is not available.

    `backend` builds the model; by default the one of torch.
    """
    gc.set_threshold(700, 10, 10)  # Python's default, as in any server: its pauses are measured
    import uvloop

    options.check_host()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes a line each time it starts and stops
    # torch starts a team of threads for each new size of its pool; one is best with two shared processors.
    os.environ.setdefault("OMP_NUM_THREADS", str(options.config.model.threads))
    allow_files()
    model = (backend or torch_backend)(options.config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, model))


async def _serve(options: ServeOptions, backend: ModelBackend) -> None:
    server = InferenceServer(
        options.config, backend, ServerIdentity(options.replica, options.admin_token, options.access_log)
    )
    extra = options.agent(server) if options.agent else ()
    listening = HttpServer(app(server, extra), host=options.host, port=options.port, drain_seconds=DRAIN_SECONDS)
    stop_requested = stop_event()
    await server.start()
    try:
        await listening.start()
        print(listening.url, flush=True)
        await stop_requested.wait()
        server.readiness.draining = True
        await asyncio.sleep(options.grace_seconds)
        await listening.stop()
    finally:
        await server.stop()


def torch_backend(config: ServerConfig) -> ModelBackend:
    """The intent model and its memory. Loads torch (a second). Raises UsageError for what this machine cannot do."""
    import torch

    from latdoctor.lab.server.intent_model import INTENTS, IntentModel
    from latdoctor.lab.server.memory import build
    from latdoctor.lab.server.network import FRAME_WIDTH
    from latdoctor.lab.server.profiler import TorchRecorder
    from latdoctor.lab.server.tokenizer import audio_frames

    audio_frames(1, FRAME_WIDTH)  # numpy loads its generators at the first use, which no request shall wait for
    pool = build(config.memory)
    model = IntentModel(config.model, pool, positions=config.queue.max_tokens_per_request)
    return ModelBackend(
        model=model,
        pool=pool,
        intents=INTENTS,
        features=FRAME_WIDTH,
        backend="cuda" if pool.backend == "cuda" else "cpu",
        torch_threads=torch.get_num_threads,
        recorder=TorchRecorder,
        compiles=lambda: (model.compilations.total, model.compilations.seconds),
    )


def app(server: InferenceServer, extra: Sequence[BaseRoute] = ()) -> Starlette:
    """The ASGI application of `server`, with the routes in `extra`."""

    async def healthz(_: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(_: Request) -> Response:
        state = server.readiness.state
        body = {"status": state, "model_version": server.models.main.settings.version}
        return json_response(body, status=READY if state is ServerState.READY else UNAVAILABLE)

    async def metrics(_: Request) -> Response:
        return Response(await server.page(), headers={"content-type": CONTENT_TYPE})

    async def failed(request: Request, _: Exception) -> Response:
        """Unexpected error: the traceback goes to the server's log, not to the client."""
        if request.url.path == INTENT:
            server.metrics.requests.of(str(FAILED)).inc()
        return json_response({"error": "internal", "detail": "the server failed; its log says more"}, status=FAILED)

    async def intent(request: Request) -> Response:
        return await server.intent_handler(request)

    return Starlette(
        routes=[
            Route(INTENT, intent, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            *server.admin.routes(server.guard),
            *server.operations.routes(server.guard),
            *server.control.routes(server.guard),
            *extra,
        ],
        exception_handlers={HTTPException: _http_error, Exception: failed},
    )


async def _http_error(_: Request, error: Exception) -> Response:
    """404 and 405, as JSON."""
    assert isinstance(error, HTTPException)
    body = {"error": error.detail.lower().replace(" ", "-"), "detail": error.detail}
    response = json_response(body, status=error.status_code)
    response.headers.update(error.headers or {})
    return response
