"""Admin interface of one server: configuration, diagnostics, and operations. This machine and token only.

Operations are warm-up, worker restart, model reload and draining. `GET /admin/acts` returns how often each ran; its
ETag changes with each operation and each start of the server. Every operation requires that ETag in If-Match, so that
a client that lost the response can retry without running it twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.lab.server import intent_request
from latdoctor.lab.server.admin_http import AdminGuard, if_match, json_response
from latdoctor.lab.server.config import ServerConfig, knobs
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.errors import BadRequest, ProfilerBusy, StaleEtag
from latdoctor.lab.server.governance import Readiness
from latdoctor.lab.server.live_config import LiveConfig
from latdoctor.lab.server.memory.pool_interface import MemoryStats
from latdoctor.lab.server.profiler import MAX_SECONDS, ProfileOptions, Profiler
from latdoctor.lab.server.standby_model import ServingModels

MAX_LISTED_REQUESTS = 1000  # waiting requests that are listed
RENEWAL_SECONDS = 5.0  # time for a worker to end: the longest batch takes less than a second


@dataclass(frozen=True, slots=True)
class AdminInterface:
    """Configuration and diagnostics. Used on the event loop; what blocks runs on `threads`."""

    live_config: LiveConfig
    engine: Engine
    profiler: Profiler
    memory_stats: Callable[[], MemoryStats]
    clock: Callable[[], float]
    threads: Executor

    def routes(self, guard: AdminGuard) -> list[BaseRoute]:
        return [
            guard.route("GET", "/admin/config", self.config),
            guard.route("PATCH", "/admin/config", self.change),
            guard.route("GET", "/admin/knobs", self.knobs),
            guard.route("POST", "/debug/profile", self.profile),
            guard.route("GET", "/debug/memory", self.memory),
            guard.route("GET", "/debug/queue", self.queue),
            guard.route("GET", "/debug/threads", self.stacks),
        ]

    async def config(self, _: Request) -> Response:
        return self._with_etag(await self.live_config.settled())

    async def knobs(self, _: Request) -> Response:
        """Every knob, and whether it can be changed while the server runs."""
        return json_response(dict(knobs()))

    async def change(self, request: Request) -> Response:
        """A merge patch of groups and knobs (as RFC 7396 has it, without deleting); If-Match is required."""
        etags = if_match(request)
        patch = await _json_object(request)
        return self._with_etag(await self.live_config.change(patch, etags))

    def _with_etag(self, config: ServerConfig) -> Response:
        """`config` with its ETag; there is no await between the two."""
        return json_response(config, etag=self.live_config.etag)

    async def profile(self, request: Request) -> Response:
        depth = ProfileOptions(*(request.query_params.get(name, "0") == "1" for name in ("shapes", "memory", "stack")))
        seconds = _seconds(request.query_params.get("seconds", "3"))
        trace = await self.profiler.take(seconds, depth)
        headers = {"content-disposition": 'attachment; filename="trace.json.gz"'}
        return Response(trace, headers=headers, media_type="application/gzip")

    async def memory(self, _: Request) -> Response:
        return json_response(await asyncio.get_running_loop().run_in_executor(self.threads, self.memory_stats))

    async def queue(self, _: Request) -> Response:
        """The waiting requests, oldest first, without waiting for the worker."""
        now, waiting = self.clock(), [ticket.work for ticket in self.engine.pending.all()]
        works = [
            {"id": one.id, "tokens": one.tokens, "lane": one.lane, "waited_seconds": round(now - one.arrived, 6)}
            for one in waiting[:MAX_LISTED_REQUESTS]
        ]
        return json_response({"depth": len(waiting), "tokens": sum(one.tokens for one in waiting), "works": works})

    async def stacks(self, _: Request) -> Response:
        """Stack of every Python thread."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = {
            f"{names.get(ident, 'unnamed')} ({ident})": traceback.format_stack(frame)
            for ident, frame in sys._current_frames().items()
        }
        return json_response(stacks)


class OperationCounts(Struct, frozen=True):
    """How often each operation ran since the server started, and whether it is draining."""

    draining: bool
    warm_ups: int
    worker_restarts: int
    reloads: int


class Reloaded(OperationCounts, frozen=True):
    """After a reload: checksum of the weights in use."""

    checksum: str


@dataclass(slots=True)
class Operations:
    """Runs one operation at a time. Used on the event loop."""

    engine: Engine
    models: ServingModels
    live_config: LiveConfig
    readiness: Readiness
    profiler: Profiler
    _start: str = field(default_factory=lambda: secrets.token_hex(8))
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _draining_changes: int = 0
    _warm_ups: int = 0
    _reloads: int = 0

    @property
    def counts(self) -> OperationCounts:
        return OperationCounts(self.readiness.set_aside, self._warm_ups, self.engine.renewals, self._reloads)

    @property
    def etag(self) -> str:
        """Never reused after an operation, even if the counts are equal."""
        whole = msgspec.json.encode((self._start, self._draining_changes, self.counts))
        return hashlib.sha256(whole).hexdigest()[:16]

    def routes(self, guard: AdminGuard) -> list[BaseRoute]:
        return [
            guard.route("GET", "/admin/acts", self.show),
            guard.route("POST", "/admin/warm-up", self.warm_up),
            guard.route("POST", "/admin/restart-worker", self.restart_worker),
            guard.route("POST", "/admin/reload", self.reload),
            guard.route("PUT", "/admin/draining", self.drain),
        ]

    async def show(self, _: Request) -> Response:
        return json_response(self.counts, etag=self.etag)

    async def warm_up(self, request: Request) -> Response:
        """Runs every kind of batch once on the worker, between two batches; waiting requests wait meanwhile."""

        async def operation() -> OperationCounts:
            await self.engine.on_worker(self.models.warm_up)
            self._warm_ups += 1
            return self.counts

        return await self._run(request, operation)

    async def restart_worker(self, request: Request) -> Response:
        """Replaces the worker thread; waiting requests are kept."""

        async def operation() -> OperationCounts:
            if self.profiler.running:
                raise ProfilerBusy("a profile of the worker is being taken", next_step="wait until it is done")
            await self.engine.renew(RENEWAL_SECONDS)
            return self.counts

        return await self._run(request, operation)

    async def reload(self, request: Request) -> Response:
        """Loads the model of the configured version again; batches use the old one until the new one is verified.

        A version that cannot be loaded is refused with 409 and a code of `model_registry`; the old one goes on.
        """

        async def operation() -> OperationCounts:
            checksum = await self.live_config.rebuild()
            self._reloads += 1
            return Reloaded(**msgspec.structs.asdict(self.counts), checksum=checksum)

        return await self._run(request, operation)

    async def drain(self, request: Request) -> Response:
        """`{"draining": true}`: reports not ready, and still answers requests. `false` reverts it."""
        body = await _json_object(request)
        if set(body) != {"draining"} or not isinstance(body["draining"], bool):
            raise BadRequest(422, "invalid", 'the body is {"draining": true} or {"draining": false}')

        async def operation() -> OperationCounts:
            self._draining_changes += 1
            self.readiness.set_aside = body["draining"]
            return self.counts

        return await self._run(request, operation)

    async def _run(self, request: Request, operation: Callable[[], Awaitable[OperationCounts]]) -> Response:
        """Runs one operation if none has run since the caller read the ETag.

        Raises RequestRefused without an ETag, StaleEtag, and what `operation` raises; then it is not counted.
        """
        etags = if_match(request)
        async with self._lock:
            if not etags & {"*", self.etag}:
                raise StaleEtag("another operation ran since", next_step="read /admin/acts again")
            counts = await operation()
            return json_response(counts, etag=self.etag)


async def _json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises BadRequest."""
    raw = await intent_request.read(request)
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except UNDECODABLE as error:
        raise BadRequest(400, "malformed", f"the body is not a JSON object: {error}") from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not 0.1 <= seconds <= MAX_SECONDS:
        raise BadRequest(422, "invalid", f"`seconds` is a number from 0.1 to {MAX_SECONDS:g}")
    return seconds
