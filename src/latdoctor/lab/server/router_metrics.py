"""The router's metrics page."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from latdoctor.lab.server.replica_pool import ReplicaPool

# The same steps as on the replicas' own pages: 0.5 ms · 1.5ⁿ, up to a minute.
SECONDS = tuple(0.0005 * 1.5**step for step in range(30))


CONTENT_TYPE = CONTENT_TYPE_LATEST


class RouterMetrics:
    """Counts what the router does; the replicas' state is read from the pool when the page is asked for."""

    def __init__(self, pool: ReplicaPool) -> None:
        self._pool = pool
        self.registry = CollectorRegistry()
        self._arrivals = Counter("ref_router_arrivals", "Requests that came in", registry=self.registry)
        self._whole = Histogram(
            "ref_router_seconds",
            "From the request's arrival at the router to its answer",
            registry=self.registry,
            buckets=SECONDS,
        )
        self._answers = Counter(
            "ref_router_requests", "Requests a replica was asked for", ("replica", "status"), registry=self.registry
        )
        self._unrouted = Counter(
            "ref_router_unrouted", "Requests no replica answered", ("reason",), registry=self.registry
        )
        self._seconds = Histogram(
            "ref_router_request_seconds",
            "From the request's arrival at the router to the replica's answer",
            ("replica",),
            registry=self.registry,
            buckets=SECONDS,
        )
        self._up = Gauge("ref_router_replica_up", "1: takes requests", ("replica",), registry=self.registry)
        self._in_flight = Gauge(
            "ref_router_in_flight", "Requests the replica works on", ("replica",), registry=self.registry
        )
        self._weight = Gauge(
            "ref_router_replica_weight", "Its weight as it counts now", ("replica",), registry=self.registry
        )
        self._share = Gauge(
            "ref_router_replica_weight_share",
            "Share of its weight that counts now: below 1 while it is eased in, 0 where it takes nothing",
            ("replica",),
            registry=self.registry,
        )
        self._lost = Counter(
            "ref_router_replica_lost", "Times its process was lost", ("replica",), registry=self.registry
        )
        where = Gauge(
            "ref_router_replica_info", "Where its own page is", ("replica", "address"), registry=self.registry
        )
        for one in pool.statuses():
            where.labels(one.name, one.url).set(1)
        self._counted_losses = dict.fromkeys((one.name for one in pool.statuses()), 0)

    def arrived(self) -> None:
        self._arrivals.inc()

    def answered(self, replica: str, status: int, seconds: float) -> None:
        """`status` is what the client got, `seconds` since the request arrived."""
        self._answers.labels(replica, str(status)).inc()
        self._seconds.labels(replica).observe(seconds)
        self._whole.observe(seconds)

    def unrouted(self, reason: str) -> None:
        self._unrouted.labels(reason).inc()

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        for one in self._pool.statuses():
            self._up.labels(one.name).set(one.state == "ready")
            self._in_flight.labels(one.name).set(one.in_flight)
            self._weight.labels(one.name).set(one.eased_weight)
            self._share.labels(one.name).set(one.weight_share)
            self._lost.labels(one.name).inc(one.losses - self._counted_losses[one.name])
            self._counted_losses[one.name] = one.losses
        return generate_latest(self.registry)
