"""What can be done to a running server that is no knob: warm it up, renew its worker or its model, set it aside.

`GET /admin/acts` counts what was done so far; its ETag changes with each act and with each start of the server. Every
act names that ETag in If-Match, so that whoever lost an answer and asks again never acts twice.
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
    """How often each thing was done since the server started, and whether it is set aside."""

    draining: bool
    warm_ups: int
    worker_restarts: int
    reloads: int


class Reloaded(OperationCounts, frozen=True):
    """After a reload: which weights answer now."""

    checksum: str


class Operations:
    """One act at a time. Used on the event loop."""

    def __init__(
        self, engine: Engine, models: ServingModels, tuning: LiveConfig, readiness: Readiness, profiling: Profiler
    ) -> None:
        self._engine = engine
        self._models = models
        self._tuning = tuning
        self._readiness = readiness
        self._profiling = profiling
        self._start = secrets.token_hex(8)
        self._turns = 0  # how often it was told to be set aside or taken back
        self._warm_ups = 0
        self._reloads = 0
        self._acting = asyncio.Lock()

    @property
    def acts(self) -> OperationCounts:
        return OperationCounts(self._readiness.set_aside, self._warm_ups, self._engine.renewals, self._reloads)

    @property
    def etag(self) -> str:
        """Never the same again after an act, also where the counts are."""
        whole = msgspec.json.encode((self._start, self._turns, self.acts))
        return hashlib.sha256(whole).hexdigest()[:16]

    def routes(self, guarded: Callable[[Handler], Handler]) -> list[BaseRoute]:
        """`guarded`: who is let in, and what becomes of errors."""
        return [
            Route("/admin/acts", guarded(self.show), methods=["GET"]),
            Route("/admin/warm-up", guarded(self.warm_up), methods=["POST"]),
            Route("/admin/restart-worker", guarded(self.restart_worker), methods=["POST"]),
            Route("/admin/reload", guarded(self.reload), methods=["POST"]),
            Route("/admin/draining", guarded(self.drain), methods=["PUT"]),
        ]

    async def show(self, _: Request) -> Response:
        return self._shown(self.acts)

    async def warm_up(self, request: Request) -> Response:
        """Runs every kind of batch once on the worker, between two batches; what waits, waits meanwhile."""

        async def act() -> OperationCounts:
            await self._engine.on_worker(self._models.warm_up)
            self._warm_ups += 1
            return self.acts

        return await self._done(request, act)

    async def restart_worker(self, request: Request) -> Response:
        """A new thread computes; requests that wait are kept."""

        async def act() -> OperationCounts:
            if self._profiling.running:
                raise ProfilerBusy("a profile of the worker is being taken", next_step="wait until it is done")
            await self._engine.renew(RENEWAL_SECONDS)
            return self.acts

        return await self._done(request, act)

    async def reload(self, request: Request) -> Response:
        """Makes the model of the configured version anew; batches go to the old one until it is whole."""

        async def act() -> OperationCounts:
            checksum = await self._tuning.rebuild()
            self._reloads += 1
            return Reloaded(**msgspec.structs.asdict(self.acts), checksum=checksum)

        return await self._done(request, act)

    async def drain(self, request: Request) -> Response:
        """`{"draining": true}`: it says that it is not ready, and still answers what comes. `false` takes that back."""
        asked = mapping(await request_parser.read(request))
        if set(asked) != {"draining"} or not isinstance(asked["draining"], bool):
            raise BadRequest(422, "invalid", 'the body is {"draining": true} or {"draining": false}')

        async def act() -> OperationCounts:
            self._turns += 1
            self._readiness.set_aside = asked["draining"]
            return self.acts

        return await self._done(request, act)

    async def _done(self, request: Request, act: Callable[[], Awaitable[OperationCounts]]) -> Response:
        """Runs one operation if none has run since the caller read the ETag.

        Raises Refused without an ETag, StaleEtag, and what `act` raises; then it is not counted.
        """
        etags = if_match(request)
        async with self._acting:
            if not etags & {"*", self.etag}:
                raise StaleEtag("something was done meanwhile", next_step="look at it again")
            return self._shown(await act())

    def _shown(self, acts: OperationCounts) -> Response:
        headers = {"etag": f'"{self.etag}"'}
        return Response(msgspec.json.encode(acts), headers=headers, media_type="application/json")
