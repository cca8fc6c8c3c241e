"""The client's metrics page, as a gateway in front of the server would publish it.

The client's latency beyond the server's own is network time. The generator's event loop serves the page and renders it
on request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from types import SimpleNamespace

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from latdoctor.errors import OperationError
from latdoctor.load.mix import BODY_SIZES, SECONDS, body_size
from latdoctor.load.outcome import Ending, Reply, ending_of
from latdoctor.load.transport import Transport

CLIENT = "load"  # its name on the page
_BEAT = 0.05  # seconds, as the server's heartbeat
_FIXED = ("client",)
_OUTCOMES: tuple[Ending, ...] = tuple(one for one in Ending if one is not Ending.NOT_SENT)


class ClientPage:
    """The counters. Each attempt counts separately: a retry is one more request."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client leaves it untyped
        self._registry = registry = CollectorRegistry(auto_describe=False)
        seconds = Histogram(
            "ref_client_request_seconds",
            "From sending an attempt (connecting included) to its whole answer, of those answered well",
            (*_FIXED, "size"),
            buckets=SECONDS,
            registry=registry,
        )
        self._seconds = {size: seconds.labels(CLIENT, size) for size in BODY_SIZES}
        requests = Counter("ref_client_requests", "Attempts that ended", (*_FIXED, "outcome"), registry=registry)
        self._outcomes = {outcome: requests.labels(CLIENT, outcome.value) for outcome in _OUTCOMES}
        self._retries = self._counter("ref_client_retries", "Attempts after the first of a request")
        self._sent = self._counter("ref_client_sent_bytes", "Bodies sent")
        self._received = self._counter("ref_client_received_bytes", "Bodies of answers read")
        self._in_flight = Gauge("ref_client_in_flight", "Attempts that wait", _FIXED, registry=registry).labels(CLIENT)
        self._connect = self._histogram("ref_client_connect_seconds", "Opening a connection")
        self._lag = self._histogram("ref_client_loop_lag_seconds", "How late a 50 ms heartbeat of the event loop")

    def _counter(self, name: str, message: str) -> Counter:
        child: Counter = Counter(name, message, _FIXED, registry=self._registry).labels(CLIENT)
        return child

    def _histogram(self, name: str, message: str) -> Histogram:
        child: Histogram = Histogram(name, message, _FIXED, buckets=SECONDS, registry=self._registry).labels(CLIENT)
        return child

    def began(self, content_bytes: int, attempt: int) -> None:
        self._in_flight.inc()
        self._sent.inc(content_bytes)
        if attempt:
            self._retries.inc()

    def ended(self, content_bytes: int, outcome: Ending, seconds: float, answer_bytes: int) -> None:
        """Count the end of an attempt. Its time counts only for answers, as on the server's page."""
        self._in_flight.dec()
        self._outcomes[outcome].inc()
        self._received.inc(answer_bytes)
        if outcome is Ending.ANSWERED:
            self._seconds[body_size(content_bytes)].observe(seconds)

    def traces(self) -> list[aiohttp.TraceConfig]:
        """The aiohttp trace that measures connection times."""
        config = aiohttp.TraceConfig()

        async def connecting(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
            context.began = perf_counter()

        async def connected(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
            self._connect.observe(perf_counter() - context.began)

        config.on_connection_create_start.append(connecting)
        config.on_connection_create_end.append(connected)
        return [config]

    async def watch_itself(self) -> None:
        """Measure the lag of the event loop: a late client cannot measure the network."""
        while True:
            began = perf_counter()
            await asyncio.sleep(_BEAT)
            self._lag.observe(max(0.0, perf_counter() - began - _BEAT))

    def text(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)


class CountingTransport:
    """A transport that counts the attempts of another on `page`."""

    def __init__(self, transport: Transport, page: ClientPage) -> None:
        self._transport, self._page = transport, page

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        began, received = perf_counter(), 0
        outcome = Ending.TIMED_OUT  # if the attempt is cancelled
        self._page.began(len(content), attempt)
        try:
            reply = await self._transport.send(content, request_id, attempt)
            outcome, received = ending_of(reply.status), reply.content_bytes
            return reply
        finally:
            self._page.ended(len(content), outcome, perf_counter() - began, received)


@asynccontextmanager
async def served_page(page: ClientPage, port: int) -> AsyncIterator[str]:
    """Serve `page` on the local `port` (0: a free one) and yields its address. Raises OperationError."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=page.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    beats = asyncio.create_task(page.watch_itself())
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        try:
            await site.start()
        except OSError as error:
            raise OperationError(f"the client's metrics page: {error.strerror or error}", where=str(port)) from error
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        beats.cancel()
        await runner.cleanup()
