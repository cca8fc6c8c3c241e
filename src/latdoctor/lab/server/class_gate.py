"""The gate of the priority classes before the engine: requests wait here for a seat, or are refused with 429."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from latdoctor.lab.server.config import PrioritiesConfig
from latdoctor.lab.server.errors import BadRequest, LoadShed
from latdoctor.lab.server.metrics import FIXED, ServerMetrics
from latdoctor.lab.server.priority_classes import ClassQuotas, ClassRule, Entry
from latdoctor.load.mix import SECONDS

HEADER = "x-priority-class"
NO_LIMIT = 1 << 30  # of seats, while the classes are off


class ClassMetrics(Collector):
    """Requests, waits and refusals by class; what is seated and waits is read at each scrape.

    They are on the page of a server whose classes are on, or were.
    """

    def __init__(self, metrics: ServerMetrics, quotas: ClassQuotas) -> None:
        self._fixed, self._quotas = metrics.fixed, quotas
        labels, registry = (*FIXED, "class"), metrics.registry
        self._requests = Counter("ref_class_requests", "Requests by priority class", labels, registry=registry)
        self._refused = Counter(
            "ref_class_refused", "Requests refused because their class was full", labels, registry=registry
        )
        self._wait = Histogram(
            "ref_class_wait_seconds", "Waiting for a seat before the queue", labels, registry=registry, buckets=SECONDS
        )
        self._seconds = Histogram(
            "ref_class_seconds", "From a request's seat or wait to its answer", labels, registry=registry,
            buckets=SECONDS,
        )  # fmt: skip
        self.names: set[str] = set()
        registry.register(self)

    def arrived(self, name: str) -> None:
        self.names.add(name)
        self._requests.labels(*self._fixed, name).inc()

    def refused(self, name: str) -> None:
        self._refused.labels(*self._fixed, name).inc()

    def seated(self, name: str, waited: float) -> None:
        self._wait.labels(*self._fixed, name).observe(waited)

    def answered(self, name: str, seconds: float) -> None:
        self._seconds.labels(*self._fixed, name).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        for name, message, read in (
            ("ref_class_seated", "Requests of the class that have a seat", self._quotas.seated),
            ("ref_class_waiting", "Requests of the class that wait for one", self._quotas.waiting),
        ):
            family = GaugeMetricFamily(name, message, labels=(*FIXED, "class"))
            for one in sorted(self.names):
                family.add_metric((*self._fixed, one), read(one))
            yield family

    def describe(self) -> Iterable[Metric]:
        return ()


class ClassGate:
    """Used on the event loop."""

    def __init__(self, config: PrioritiesConfig, metrics: ServerMetrics) -> None:
        self._config = config
        self._quotas = ClassQuotas(_rule(config))
        self._server_metrics = metrics
        self._made: ClassMetrics | None = None
        self._numbers = itertools.count()
        self._turns: dict[int, asyncio.Future[None]] = {}

    @property
    def _metrics(self) -> ClassMetrics:
        if self._made is None:
            self._made = ClassMetrics(self._server_metrics, self._quotas)
        return self._made

    def configure(self, config: PrioritiesConfig) -> None:
        self._config = config
        self._call(self._quotas.configure(_rule(config)))

    def class_of(self, header: str | None) -> str:
        """The class of a request with this header; all are one while the classes are off.

        Raises BadRequest for a class that is not configured.
        """
        if not self._config.seats or header is None:
            return self._config.default
        if header not in self._config.names:
            raise BadRequest(422, "invalid", f"{HEADER} is one of {', '.join(self._config.names)}")
        return header

    @asynccontextmanager
    async def seat(self, name: str) -> AsyncIterator[None]:
        """Waits for a seat, and holds it for the context. Raises LoadShed where the class is full."""
        if not self._config.seats and not self._turns:
            yield
            return
        request, began = next(self._numbers), time.monotonic()
        self._metrics.arrived(name)
        entry, displaced = self._quotas.enter(name, request)
        if displaced is not None and not self._turns[displaced].done():
            self._turns[displaced].set_exception(_full())
        if entry is Entry.REFUSED:
            self._metrics.refused(name)
            raise _full()
        try:
            if entry is Entry.WAITING:
                await self._wait(name, request)
            self._metrics.seated(name, time.monotonic() - began)
            yield
            self._metrics.answered(name, time.monotonic() - began)
        finally:
            self._call(self._quotas.leave(request))

    async def _wait(self, name: str, request: int) -> None:
        turn = self._turns[request] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except LoadShed:
            self._metrics.refused(name)
            raise
        finally:
            del self._turns[request]

    def _call(self, requests: Iterable[int]) -> None:
        for request in requests:
            turn = self._turns.get(request)
            if turn is not None and not turn.done():
                turn.set_result(None)


def _full() -> LoadShed:
    return LoadShed(429, "class-full", "this class of requests has no more room", retry_after=1)


def _rule(config: PrioritiesConfig) -> ClassRule:
    shares = dict(zip(config.names, config.shares, strict=True))
    return ClassRule(shares, config.seats or NO_LIMIT, config.waiting)
