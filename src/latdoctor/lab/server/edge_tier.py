"""The edge tier behind the router: nodes with light models that answer simple requests before the centre does.

A request that the edge does not answer well, in time or at all is computed at the centre: the client sees no failure of
an edge node. It may then be computed twice, which the router's replicas allow (an answer has no effect).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.responses import Response

from latdoctor.lab.server.edge_routing import OK, EdgeRule, PassedOn, is_simple, judged
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import Replica, ReplicaPool, ReplicaState
from latdoctor.load.mix import SECONDS

TIER_HEADER = "x-tier"
EDGE, CENTRE = "edge", "centre"
# Sends the request to a replica, with a limit in seconds; 504: it took longer. Raises ClientConnectorError.
Deliver = Callable[[Replica, float], Awaitable[Response]]


class EdgeMetrics:
    """Counters of the tier and of its nodes, on the router's page."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.simple = Counter("ref_edge_requests", "Requests that the rule sends to the edge tier", registry=registry)
        self.answered = Counter("ref_edge_answered", "Requests answered by the edge tier", registry=registry)
        self.passed_on = Counter(
            "ref_edge_passed_on", "Requests that it passed on to the centre, by why", ("reason",), registry=registry
        )
        for reason in PassedOn:
            self.passed_on.labels(reason)
        self.sent = Counter("ref_edge_sent", "Requests sent to an edge node", registry=registry)
        self.node_answers = Counter("ref_edge_node_answers", "Requests that an edge node computed", registry=registry)
        self.node_seconds = Histogram(
            "ref_edge_node_seconds", "From sending a request to an edge node to its answer, or to giving it up",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.ready = Gauge("ref_edge_ready_ratio", "Share of the nodes that are ready", registry=registry)
        self.bypass = Gauge("ref_edge_bypass", "1: no request goes to the edge tier", registry=registry)
        self.up = Gauge("ref_edge_node_up", "1: ready to take requests", ("node",), registry=registry)
        self.in_flight = Gauge("ref_edge_node_in_flight", "Requests the node works on", ("node",), registry=registry)
        self.ejected = Gauge("ref_edge_node_ejected", "1: out, as an outlier", ("node",), registry=registry)


class EdgeTier:
    """Used on the router's event loop. `pool` has the nodes; the settings are those of the router."""

    def __init__(self, pool: ReplicaPool, centre: ReplicaPool, registry: CollectorRegistry) -> None:
        self.pool = pool
        self._centre = centre
        self._configured: RouterConfig | None = None
        self.metrics = EdgeMetrics(registry)

    @property
    def rule(self) -> EdgeRule:
        """As configured now; the balancing of the nodes follows the router's."""
        config = self._centre.config
        if config is not self._configured:
            self._configured = config
            self.pool.configure(
                msgspec.structs.replace(config, weights={}, sticky=False, model_version="", canary_version="")
            )
        return config.edge_rule

    async def answer(self, body: bytes, deliver: Deliver) -> Response | None:
        """The answer of an edge node; None: the centre has to compute the request."""
        rule = self.rule
        if not is_simple(body, rule):
            return None
        self.metrics.simple.inc()
        found = await self._ask(rule, deliver)
        if isinstance(found, PassedOn):
            self.metrics.passed_on.labels(found).inc()
            return None
        self.metrics.answered.inc()
        found.headers[TIER_HEADER] = EDGE
        return found

    async def _ask(self, rule: EdgeRule, deliver: Deliver) -> Response | PassedOn:
        node = self.pool.choose()
        if node is None:
            return PassedOn.NO_NODE
        if rule.max_in_flight and node.in_flight >= rule.max_in_flight:
            return PassedOn.OVERLOADED
        self.metrics.sent.inc()
        began = time.monotonic()
        try:
            with self.pool.in_flight(node):
                response = await deliver(node, rule.seconds)
        except aiohttp.ClientConnectorError:
            self.pool.unready(node.name)  # until it answers the supervisor again
            return PassedOn.UNREACHABLE
        finally:
            seconds = time.monotonic() - began
            self.metrics.node_seconds.observe(seconds)
        reason = judged(response.status_code, bytes(response.body), rule)
        self.pool.answered(node.name, failed=reason in (PassedOn.TIMEOUT, PassedOn.FAILED), seconds=seconds)
        if response.status_code == OK:
            self.metrics.node_answers.inc()
        return reason or response

    def refresh(self) -> None:
        """Sets the gauges, for a page."""
        self.metrics.bypass.set(self.rule.bypass)
        for gauge in (self.metrics.up, self.metrics.in_flight, self.metrics.ejected):
            gauge.clear()
        statuses = self.pool.statuses()
        self.metrics.ready.set(sum(one.state is ReplicaState.READY for one in statuses) / len(statuses))
        for one in statuses:
            self.metrics.up.labels(one.name).set(one.state is ReplicaState.READY)
            self.metrics.in_flight.labels(one.name).set(one.in_flight)
            self.metrics.ejected.labels(one.name).set(one.ejected is not None)
