"""HTTP router in front of the replicas: every request under /v1/ goes to one of them. With its metrics page.

A request that could not be delivered at all goes to the next replica, unless the router tries one only. One that was
delivered and lost is answered 503 and never sent twice: the replica may have computed it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counting
from collections.abc import Mapping
from typing import Self

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from yarl import URL

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.lab.server import intent_request
from latdoctor.lab.server.control.replica_latency import ReplicaLatencies
from latdoctor.lab.server.edge_tier import CENTRE, EDGE, EdgeTier
from latdoctor.lab.server.errors import CLIENT_GONE, BadRequest, ClientGone, RequestRefused, Unavailable
from latdoctor.lab.server.intent_request import MODEL_VERSION_HEADER
from latdoctor.lab.server.replica_pool import Replica, ReplicaPool, ReplicaState
from latdoctor.lab.server.versions.version_metrics import VersionMetrics

MAX_ANSWER_BYTES = 1 << 20
OK = 200
TOO_MANY = 429
_SERVER_ERROR = 500
# About the same steps as on the replicas' own pages: 0.5 ms · 1.5ⁿ, up to a minute.
SECONDS = tuple(0.0005 * 1.5**step for step in range(30))
# Replicas close an idle connection after 5 s; one that is about to be closed must not get a request.
IDLE_SECONDS = 2.0

# They belong to one connection and are not passed on (RFC 9110, 7.6.1); the length is computed anew.
_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length", "date", "server", "expect"),
    }
)


class RouterMetrics:
    """Counts the router's requests; the replicas' state is read from the pool at each scrape."""

    def __init__(self, pool: ReplicaPool) -> None:
        self._pool = pool
        self.registry = CollectorRegistry()
        self._arrivals = self._counter("ref_router_arrivals", "Requests that came in")
        self._completions = self._counter("ref_router_completions", "Requests that were answered with success")
        self._whole = self._histogram("ref_router_seconds", "From the request's arrival at the router to its answer")
        self._tiers = self._histogram("ref_router_tier_seconds", "The same, by the tier that answered", "tier")
        self._answers = self._counter("ref_router_requests", "Requests a replica was asked for", "replica", "status")
        self._unrouted = self._counter("ref_router_unrouted", "Requests no replica answered", "reason")
        self._seconds = self._histogram(
            "ref_router_request_seconds", "From the request's arrival at the router to the replica's answer", "replica"
        )
        self._up = self._gauge("ref_router_replica_up", "1: ready to take requests")
        self._in_flight = self._gauge("ref_router_in_flight", "Requests the replica works on")
        self._weight = self._gauge("ref_router_replica_weight", "Its weight as it counts now")
        self._share = self._gauge(
            "ref_router_replica_weight_share",
            "Share of its weight that counts now: below 1 while it is eased in, 0 where it takes nothing",
        )
        self._ejected = self._gauge("ref_router_replica_ejected", "1: out of the balancing, as an outlier")
        self._ejections = self._counter(
            "ref_router_replica_ejections", "Times it was ejected as an outlier, by why", "replica", "reason"
        )
        self._lost = self._counter("ref_router_replica_lost", "Times its process was lost", "replica")
        self._info = self._gauge(
            "ref_router_replica_info", "Where its own page is, and its model", "address", "model_version"
        )
        self.versions = VersionMetrics(self.registry, SECONDS)
        self.latencies = ReplicaLatencies()
        self._switches = Gauge(
            "ref_router_version_switches", "Times a replica was given another version", registry=self.registry
        )
        self._canary_share = Gauge(
            "ref_router_canary_share", "Share of the requests that goes to the canary", registry=self.registry
        )
        self._counted_losses: Counting[str] = Counting()
        self._counted_ejections: Counting[tuple[str, str]] = Counting()
        self._statuses: dict[str, set[str]] = {}  # of the answers of each replica

    def _counter(self, name: str, message: str, *labels: str) -> Counter:
        return Counter(name, message, labels, registry=self.registry)

    def _gauge(self, name: str, message: str, *labels: str) -> Gauge:
        return Gauge(name, message, ("replica", *labels), registry=self.registry)

    def _histogram(self, name: str, message: str, *labels: str) -> Histogram:
        return Histogram(name, message, labels, registry=self.registry, buckets=SECONDS)

    def arrived(self) -> None:
        self._arrivals.inc()

    def answered(self, replica: str, version: str, status: int, seconds: float) -> None:
        """`status` as sent to the client, `seconds` since the request arrived, by this version of the model."""
        self.versions.answered(version, status, seconds)
        if status == OK or status >= TOO_MANY:  # a bad request says nothing of the replica
            self.latencies.answered(time.monotonic(), replica, seconds, good=status == OK)
        self._answers.labels(replica, str(status)).inc()
        self._statuses.setdefault(replica, set()).add(str(status))
        self._seconds.labels(replica).observe(seconds)
        self._answered_whole(CENTRE, status, seconds)

    def answered_at_edge(self, status: int, seconds: float) -> None:
        """The same for an answer of the edge tier; of its nodes `EdgeMetrics` has more."""
        self._answered_whole(EDGE, status, seconds)

    def _answered_whole(self, tier: str, status: int, seconds: float) -> None:
        self._whole.observe(seconds)
        self._tiers.labels(tier).observe(seconds)
        if status == OK:
            self._completions.inc()

    def unrouted(self, reason: str) -> None:
        self._unrouted.labels(reason).inc()

    def page(self) -> bytes:
        """The page in Prometheus' text format. Nothing of a replica that is gone is on it."""
        names = {one.name for one in self._pool.statuses()}
        for gone in self._statuses.keys() - names:
            for status in self._statuses.pop(gone):
                self._answers.remove(gone, status)
            self._seconds.remove(gone)
        for gone in self._counted_losses.keys() - names:
            self._lost.remove(gone)
            del self._counted_losses[gone]
        for gone, reason in [key for key in self._counted_ejections if key[0] not in names]:
            self._ejections.remove(gone, reason)
            del self._counted_ejections[gone, reason]
        for gauge in (self._up, self._in_flight, self._weight, self._share, self._ejected, self._info):
            gauge.clear()
        config = self._pool.config
        self._switches.set(self._pool.version_switches)
        self._canary_share.set(config.canary_share if config.canary_version else 0.0)
        for one in self._pool.statuses():
            self._info.labels(one.name, one.url, one.version).set(1)
            self._up.labels(one.name).set(one.state is ReplicaState.READY)
            self._in_flight.labels(one.name).set(one.in_flight)
            self._weight.labels(one.name).set(one.eased_weight)
            self._share.labels(one.name).set(one.weight_share)
            self._lost.labels(one.name).inc(one.losses - self._counted_losses[one.name])
            self._counted_losses[one.name] = one.losses
            self._ejected.labels(one.name).set(one.ejected is not None)
            for reason, count in one.ejections.items():
                self._ejections.labels(one.name, reason).inc(count - self._counted_ejections[one.name, reason])
                self._counted_ejections[one.name, reason] = count
        return generate_latest(self.registry)


class _SessionField(msgspec.Struct):
    """The session of a request body, for sticky routing (a few microseconds of decoding)."""

    session: str | None = None


_SESSION_DECODER = msgspec.json.Decoder(_SessionField)


class Router:
    """Passes requests on to the pool's replicas; an asynchronous context that holds the connections to them.

    `one_try`: a request that its replica does not take is answered 503, as behind a proxy without retries.
    """

    def __init__(self, pool: ReplicaPool, *, one_try: bool = False, edge: ReplicaPool | None = None) -> None:
        """`edge`: the nodes of an edge tier."""
        self._pool = pool
        self._one_try = one_try
        self.metrics = RouterMetrics(pool)
        self._edge = EdgeTier(edge, pool, self.metrics.registry) if edge is not None else None
        self._session: aiohttp.ClientSession | None = None
        self.draining = False  # reports not ready, and asks clients to disconnect

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=MAX_ANSWER_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def app(self, *more: BaseRoute) -> Starlette:
        """The ASGI application, with further routes such as the admin interface's."""
        return Starlette(
            routes=[
                Route("/v1/{path:path}", self._forward, methods=["GET", "POST"]),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._page),
                *more,
            ]
        )

    async def _healthz(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, _: Request) -> Response:
        statuses = self._pool.statuses()
        ready = sum(one.state is ReplicaState.READY for one in statuses)
        body = {
            "ready": ready,
            "replicas": {one.name: one.state for one in statuses},
            "addresses": {one.name: one.url for one in statuses},
        }
        return JSONResponse(body, status_code=200 if ready and not self.draining else 503)

    async def _page(self, _: Request) -> Response:
        if self._edge is not None:
            self._edge.refresh()
        return Response(self.metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def _forward(self, request: Request) -> Response:
        arrived = time.monotonic()
        self.metrics.arrived()
        try:
            body = await intent_request.read(request)
            answer = await self._until_disconnect(request, body, arrived)
            if self.draining:
                answer.headers["connection"] = "close"
            return answer
        except RequestRefused as refused:
            self.metrics.unrouted(refused.reason)
            return refused.response()
        except (ClientDisconnect, ClientGone):
            self.metrics.unrouted("client-gone")
            return Response(status_code=CLIENT_GONE)

    async def _until_disconnect(self, request: Request, body: bytes, arrived: float) -> Response:
        """The answer; the request is cancelled at the replica if the client disconnects."""
        response = asyncio.create_task(self._answer(request, body, arrived))
        disconnect = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({response, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if response.done():
                return await response
            raise ClientGone
        finally:
            response.cancel()
            disconnect.cancel()

    async def _answer(self, request: Request, body: bytes, arrived: float) -> Response:
        """The answer of the edge tier, if there is one and it has one; else that of a replica."""
        if self._edge is not None and request.method == "POST":

            async def deliver(node: Replica, seconds: float) -> Response:
                return await self._deliver(node, request, body, seconds)

            answer = await self._edge.answer(body, deliver)
            if answer is not None:
                self.metrics.answered_at_edge(answer.status_code, time.monotonic() - arrived)
                return answer
        return await self._send_to_replica(request, body, arrived)

    async def _send_to_replica(self, request: Request, body: bytes, arrived: float) -> Response:
        """Tries one replica after the other until one has accepted the request."""
        tried: frozenset[str] = frozenset()
        session = session_of(body) if self._pool.config.by_session else None
        while (replica := self._pool.choose(tried, session)) is not None:
            version, began = replica.version, time.monotonic()
            try:
                with self._pool.in_flight(replica):
                    answer = await self._deliver(replica, request, body, self._pool.config.timeout_ms / 1000)
            except aiohttp.ClientConnectorError as error:
                if self._one_try:
                    raise Unavailable("replica-unreachable", f"replica {replica.name} took no connection") from error
                self._pool.unready(replica.name)  # until it answers the supervisor again
                tried |= {replica.name}
                continue
            failed = answer.status_code >= _SERVER_ERROR
            self._pool.answered(replica.name, failed=failed, seconds=time.monotonic() - began)
            version = answer.headers.get(MODEL_VERSION_HEADER, version)
            self.metrics.answered(replica.name, version, answer.status_code, time.monotonic() - arrived)
            return answer
        raise Unavailable("no-replica", "no replica can take the request now")

    async def _deliver(self, replica: Replica, request: Request, body: bytes, seconds: float) -> Response:
        if self._session is None:
            raise Unavailable("starting", "the router is not started")
        url = replica.url + _target(request)
        try:
            async with self._session.request(
                request.method,
                URL(url, encoded=True),
                data=body or None,
                headers=_end_to_end(request.headers),
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as answer:
                content = await _read_answer(answer)
                headers = _end_to_end(answer.headers) | {"x-replica": replica.name}
                return Response(content, answer.status, headers)
        except aiohttp.ClientConnectorError:
            raise
        except TimeoutError:
            detail = f"replica {replica.name} did not answer within {seconds:g} s"
            return RequestRefused(504, "replica-timeout", detail).response()
        except aiohttp.ClientError:
            detail = f"replica {replica.name} was lost while it had this request; it may be sent again"
            return Unavailable("replica-lost", detail).response()
        except RequestRefused as refused:
            return refused.response()


def session_of(body: bytes) -> str | None:
    """The session in a request body; None if it has none or is invalid (the replica then reports the error)."""
    try:
        return _SESSION_DECODER.decode(body).session
    except UNDECODABLE:
        return None


def _target(request: Request) -> str:
    """Path and query as sent, without decoding, so that `/v1/../admin` stays an unknown path."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    try:
        return (path + b"?" + query if query else path).decode("ascii")
    except UnicodeDecodeError as error:
        raise BadRequest(400, "malformed", "the path holds characters that must be percent-encoded") from error


async def _read_answer(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_chunked(64 * 1024):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise RequestRefused(502, "answer-too-large", f"the replica's answer has over {MAX_ANSWER_BYTES} bytes")
    return bytes(content)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    lower = ((name.lower(), value) for name, value in headers.items())
    return {name: value for name, value in lower if name not in _HOP_BY_HOP}
