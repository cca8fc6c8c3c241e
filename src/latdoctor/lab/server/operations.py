"""Operations on a running server: warm-up, worker restart, model reload, draining.

`GET /admin/acts` returns how often each ran; its ETag changes with each operation and each start of the server. Every
operation requires that ETag in If-Match, so that a client that lost the response can retry without running it twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.lab.server import request_parser
from latdoctor.lab.server.admin import Handler, if_match, mapping
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.live_config import LiveConfig, StaleEtag
from latdoctor.lab.server.profiler import Profiler, ProfilerBusy
from latdoctor.lab.server.readiness import Readiness
from latdoctor.lab.server.serving_models import ServingModels

RENEWAL_SECONDS = 5.0  # how long a worker that shall end is waited for: the longest batch takes less than a second


class OperationCounts(Struct, frozen=True):
    """How often each operation ran since the server started, and whether it is draining."""

    draining: bool
    warm_ups: int
    worker_restarts: int
    reloads: int


class Reloaded(OperationCounts, frozen=True):
    """After a reload: checksum of the weights in use."""

    checksum: str


class Operations:
    """Runs one operation at a time. Used on the event loop."""

    def __init__(
        self, engine: Engine, models: ServingModels, live_config: LiveConfig, readiness: Readiness, profiling: Profiler
    ) -> None:
        self._engine = engine
        self._models = models
        self._live_config = live_config
        self._readiness = readiness
        self._profiling = profiling
        self._start = secrets.token_hex(8)
        self._turns = 0  # changes of draining
        self._warm_ups = 0
        self._reloads = 0
        self._lock = asyncio.Lock()

    @property
    def counts(self) -> OperationCounts:
        return OperationCounts(self._readiness.set_aside, self._warm_ups, self._engine.renewals, self._reloads)

    @property
    def etag(self) -> str:
        """Never reused after an operation, even if the counts are equal."""
        whole = msgspec.json.encode((self._start, self._turns, self.counts))
        return hashlib.sha256(whole).hexdigest()[:16]

    def routes(self, guarded: Callable[[Handler], Handler]) -> list[BaseRoute]:
        """`guarded` adds authentication and error responses to a handler."""
        return [
            Route("/admin/acts", guarded(self.show), methods=["GET"]),
            Route("/admin/warm-up", guarded(self.warm_up), methods=["POST"]),
            Route("/admin/restart-worker", guarded(self.restart_worker), methods=["POST"]),
            Route("/admin/reload", guarded(self.reload), methods=["POST"]),
            Route("/admin/draining", guarded(self.drain), methods=["PUT"]),
        ]

    async def show(self, _: Request) -> Response:
        return self._shown(self.counts)

    async def warm_up(self, request: Request) -> Response:
        """Runs every kind of batch once on the worker, between two batches; what waits, waits meanwhile."""

        async def operation() -> OperationCounts:
            await self._engine.on_worker(self._models.warm_up)
            self._warm_ups += 1
            return self.counts

        return await self._run(request, operation)

    async def restart_worker(self, request: Request) -> Response:
        """A new thread computes; requests that wait are kept."""

        async def operation() -> OperationCounts:
            if self._profiling.running:
                raise ProfilerBusy("a profile of the worker is being taken", next_step="wait until it is done")
            await self._engine.renew(RENEWAL_SECONDS)
            return self.counts

        return await self._run(request, operation)

    async def reload(self, request: Request) -> Response:
        """Makes the model of the configured version anew; batches go to the old one until it is whole."""

        async def operation() -> OperationCounts:
            checksum = await self._live_config.rebuild()
            self._reloads += 1
            return Reloaded(**msgspec.structs.asdict(self.counts), checksum=checksum)

        return await self._run(request, operation)

    async def drain(self, request: Request) -> Response:
        """`{"draining": true}`: it says that it is not ready, and still answers what comes. `false` takes that back."""
        body = mapping(await request_parser.read(request))
        if set(body) != {"draining"} or not isinstance(body["draining"], bool):
            raise BadRequest(422, "invalid", 'the body is {"draining": true} or {"draining": false}')

        async def operation() -> OperationCounts:
            self._turns += 1
            self._readiness.set_aside = body["draining"]
            return self.counts

        return await self._run(request, operation)

    async def _run(self, request: Request, operation: Callable[[], Awaitable[OperationCounts]]) -> Response:
        """Runs one operation if none has run since the caller read the ETag.

        Raises Refused without an ETag, StaleEtag, and what `operation` raises; then it is not counted.
        """
        etags = if_match(request)
        async with self._lock:
            if not etags & {"*", self.etag}:
                raise StaleEtag("another operation ran since", next_step="read /admin/acts again")
            return self._shown(await operation())

    def _shown(self, counts: OperationCounts) -> Response:
        headers = {"etag": f'"{self.etag}"'}
        return Response(msgspec.json.encode(counts), headers=headers, media_type="application/json")
