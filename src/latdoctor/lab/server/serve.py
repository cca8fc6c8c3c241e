"""`latdoctor lab serve`: start and graceful shutdown of one inference server.

On SIGTERM or SIGINT the server reports not ready, accepts requests for a short grace period (so that load balancers
notice), closes the listening socket, answers all accepted requests and exits. A second signal exits at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.routing import BaseRoute

from latdoctor.errors import UsageError
from latdoctor.http.address import is_loopback
from latdoctor.lab.server.app import build
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.inference_server import InferenceServer

if TYPE_CHECKING:
    from latdoctor.lab.server.inference_server import ModelBackend


# Extension attached at the start of a server: returns additional routes.
Agent = Callable[["InferenceServer"], Sequence["BaseRoute"]]

GRACE_SECONDS = 0.5
DRAIN_SECONDS = 30.0


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


def serve(options: ServeOptions) -> None:
    """Serves until SIGTERM or SIGINT. Raises UsageError, and OperationError if the port is not available."""
    import uvloop

    from latdoctor.lab.http_server import allow_files

    if not options.allow_remote and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from other machines", next_step="--allow-remote, if that is what you want"
        )
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes a line each time it starts and stops
    # torch starts a team of threads for each new size of its pool; one is what two shared processors bear best.
    os.environ.setdefault("OMP_NUM_THREADS", str(options.config.model.threads))
    allow_files()
    brain = real_brain(options.config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, brain))


async def _serve(options: ServeOptions, brain: ModelBackend) -> None:
    from latdoctor.lab.http_server import HttpServer
    from latdoctor.lab.server.inference_server import InferenceServer, ServerIdentity

    parts = InferenceServer(
        options.config, brain, ServerIdentity(options.replica, options.admin_token, options.access_log)
    )
    also = options.agent(parts) if options.agent else ()
    listening = HttpServer(build(parts, also), host=options.host, port=options.port, drain_seconds=DRAIN_SECONDS)
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()

    def request_stop() -> None:
        if stop_requested.is_set():
            os._exit(1)  # second signal: exit now
        stop_requested.set()

    for signal_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_, request_stop)
    await parts.start()
    try:
        await listening.start()
        sys.stdout.write(f"{listening.url}\n")
        sys.stdout.flush()
        await stop_requested.wait()
        parts.readiness.draining = True
        await asyncio.sleep(options.grace_seconds)
        await listening.stop()
    finally:
        await parts.stop()


def real_brain(config: ServerConfig) -> ModelBackend:
    """The intent model and its memory. Loads torch (a second). Raises UsageError for what this machine cannot do."""
    import torch

    from latdoctor.lab.server.inference_server import ModelBackend
    from latdoctor.lab.server.memory import build as build_pool
    from latdoctor.lab.server.model import FRAME_WIDTH, INTENTS, IntentModel
    from latdoctor.lab.server.profiler import TorchRecorder
    from latdoctor.lab.server.tokenizer import audio_frames

    audio_frames(1, FRAME_WIDTH)  # numpy loads its generators at the first use: no request shall pay for that
    pool = build_pool(config.memory)
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
