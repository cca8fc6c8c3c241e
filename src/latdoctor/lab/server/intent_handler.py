"""Handler of `POST /v1/intent`: stages, admission, queue, deadline and fallback of one request.

Everything here runs on the event loop and only waits; what computes runs on request threads and the worker.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from latdoctor.lab.server.class_gate import HEADER, ClassGate
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.errors import CLIENT_GONE, BadRequest, ClientGone, LoadShed, RequestRefused, Unavailable
from latdoctor.lab.server.governance import Governance, Readiness
from latdoctor.lab.server.intent_request import (
    BODY_SECONDS,
    MODEL_VERSION_HEADER,
    AnswerSource,
    RequestContext,
    Ticket,
    parse,
    read,
)
from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.stages import StageHandlers, Stages
from latdoctor.load.mix import FRAMES_PER_SECOND

_BEYOND_QUEUE = 512  # requests that may be on their way beside those that may wait
FAQ = "faq"


@dataclass(frozen=True, slots=True)
class IntentHandler:
    """Handles one request after the other. `config` returns the current configuration."""

    engine: Engine
    stages: Stages
    stage_handlers: StageHandlers
    governance: Governance
    classes: ClassGate
    metrics: ServerMetrics
    readiness: Readiness
    config: Callable[[], ServerConfig]
    clock: Callable[[], float]
    body_seconds: float = BODY_SECONDS

    async def __call__(self, request: Request) -> Response:
        began, entered = self.clock(), time.time()
        self.metrics.arrivals.inc()
        try:
            with self.readiness.request(self.config().queue.max_requests + _BEYOND_QUEUE):
                context = await self._answered(request, began, entered)
        except (ClientGone, ClientDisconnect):
            self.metrics.cancelled.inc()
            return Response(status_code=CLIENT_GONE)
        except RequestRefused as refused:
            return await self._refuse(refused, began, entered)
        self.metrics.requests.of("200").inc()
        headers = {"connection": "close"} if self.readiness.away else {}
        if context.computed is not None:
            headers[MODEL_VERSION_HEADER] = context.computed.version
        return Response(context.body, media_type="application/json", headers=headers)

    async def _answered(self, request: Request, began: float, entered: float) -> RequestContext:
        content = await read(request, self.body_seconds)
        # What follows is the server's own time. How long the body took is the network's and the client's.
        received = self.clock()
        self.metrics.body_seconds.observe(received - began)
        intent_request = parse(content)
        if intent_request.attempt:
            self.metrics.retry_arrivals.inc()
        self.governance.arrived(intent_request)
        context = RequestContext(
            intent_request, intent_request.request_id or next(_NAMES), received, entered, len(content)
        )
        await self.stages.before(context)
        if context.cached is None:
            async with self.classes.seat(self.classes.class_of(request.headers.get(HEADER))):
                await self._admitted(request, context)
        await self.stages.after(context)
        self._count(context)
        return context

    async def _admitted(self, request: Request, context: RequestContext) -> None:
        """Admission, then the computation."""
        intent_request, received = context.intent_request, context.received
        deadline = self.governance.admit(intent_request, context.tokens, received, self.engine.pending)
        if context.tokens > self.config().batching.long_seconds * FRAMES_PER_SECOND:
            self.metrics.long_inputs.inc()
        await self._compute(request, context, deadline)

    async def _compute(self, request: Request, context: RequestContext, deadline: float | None) -> None:
        """Queues the request and waits for its answer, a disconnect, the deadline or the fallback timeout."""
        lane = self.governance.lane(context.tokens)
        ticket = self.engine.submit(context.tokens, context.input, lane=lane, deadline=deadline)
        context.queued = ticket.work.arrived
        fallback_ms = self.config().governance.fallback_ms
        async with self._watched(request, ticket):
            # A timer that is not cancelled keeps its ticket for as long: up to ten minutes of requests.
            timers = []
            if deadline is not None:
                timers.append(self._at(deadline, partial(self._too_late, ticket)))
            if fallback_ms:
                timers.append(self._at(context.received + fallback_ms / 1000, partial(self._fall_back, ticket)))
            try:
                context.computed = await ticket.answer
            except _FallBack:
                context.intent, context.source = FAQ, AnswerSource.FALLBACK
                self.metrics.fallback.inc()
            finally:
                for timer in timers:
                    timer.cancel()

    @asynccontextmanager
    async def _watched(self, request: Request, ticket: Ticket) -> AsyncIterator[None]:
        """Cancels the request if the client disconnects."""
        watch = asyncio.ensure_future(self._gone(request, ticket))
        try:
            yield
        finally:
            watch.cancel()
            self.engine.drop(ticket)

    async def _gone(self, request: Request, ticket: Ticket) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if not ticket.answer.done():
            ticket.answer.set_exception(ClientGone())

    def _at(self, instant: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, instant - self.clock()), call)

    def _too_late(self, ticket: Ticket) -> None:
        if not ticket.answer.done() and self.engine.drop(ticket):
            ticket.answer.set_exception(LoadShed(429, "deadline", "the answer would come too late", retry_after=1))

    def _fall_back(self, ticket: Ticket) -> None:
        if not ticket.answer.done():
            ticket.answer.set_exception(_FallBack())

    def _count(self, context: RequestContext) -> None:
        took = context.sent - context.received
        self.metrics.request_seconds.observe(took)
        self.metrics.latency_of_size(context.content_bytes, took)
        if context.computed is not None:
            self.governance.load.answered(context.sent, took)
            self.metrics.latency_of_version(context.computed.version, took)
            if context.computed.standby:
                self.metrics.standby.inc()

    async def _refuse(self, refused: RequestRefused, began: float, entered: float) -> Response:
        self.metrics.requests.of(str(refused.status)).inc()
        if isinstance(refused, BadRequest):
            self.metrics.rejected.of(refused.reason).inc()
        elif isinstance(refused, LoadShed):
            self.governance.load.shed(self.clock())
            self.metrics.shed.of(refused.reason).inc()
        seconds = self.clock() - began
        await self.stages.elsewhere(
            partial(self.stage_handlers.log, entered, seconds, refused.status, "", refused.reason)
        )
        return refused.response(close=self.readiness.away)


class _FallBack(Unavailable):
    """The fallback timeout has passed: the default answer is sent."""

    def __init__(self) -> None:
        super().__init__("fallback", "the model took too long")


_NAMES = (f"r{number}" for number in itertools.count(1))
