"""Runs the feedback of replica weights in the router, and shows its steps.

`GET /admin/control` has the mode, the last measurement, why nothing is changed now, and the last steps with prediction
and verification. A weight that another client changed in between stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.errors import UsageError
from latdoctor.lab.server.admin_http import AdminGuard, json_response
from latdoctor.lab.server.control.replica_latency import ReplicaLatencies, RouterMeasurement
from latdoctor.lab.server.control.route_feedback import TREND, WINDOW, RouteFeedback, WeightChange
from latdoctor.lab.server.control.step import ControlStep, HoldReason, RouteReason, StepVerdict
from latdoctor.lab.server.load_balancing import patched_router_config
from latdoctor.lab.server.replica_pool import ReplicaPool

TICK = 0.5  # seconds between two decisions
_MODES = ("off", "observe", "on")


class RouterControlStatus(Struct, frozen=True):
    """`hold`: why the last decision changed nothing; None where it did. `operator`: weights that are restored when
    control is switched off.
    """

    mode: str
    hold: HoldReason | None
    measurement: RouterMeasurement | None
    operator: dict[str, float]
    steps: Sequence[ControlStep]


class RouterControl:
    """Used on the router's event loop."""

    def __init__(self, pool: ReplicaPool, latencies: ReplicaLatencies, registry: CollectorRegistry) -> None:
        self._pool, self._latencies = pool, latencies
        self._feedback = RouteFeedback(time.time, self._note)
        self._found: RouterMeasurement | None = None
        self._mode = Gauge("ref_router_control_mode", "0: off, 1: observes only, 2: changes weights", registry=registry)
        self._steps = Counter("ref_router_control_steps", "Steps taken, by why", ("reason",), registry=registry)
        self._verdicts = Counter(
            "ref_router_control_verdicts", "Steps verified, by what was found", ("verdict",), registry=registry
        )
        for reason in RouteReason:
            self._steps.labels(reason)
        for verdict in StepVerdict:
            self._verdicts.labels(verdict)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(TICK)
            await self.tick()

    async def tick(self) -> None:
        """One decision."""
        async with self._pool.changing:  # nothing is changed between reading and writing
            config, now = self._pool.config, time.monotonic()
            self._mode.set(_MODES.index(config.control))
            if config.control == "off" and not self._feedback.operator_weights:
                self._found = None
                return
            self._found = found = self._latencies.measure(now, WINDOW, config.control_slo_ms / 1000, TREND)
            change = self._feedback.decide(now, config, self._pool.statuses(), found)
            if change is not None:
                self._apply(change, now)

    def _apply(self, change: WeightChange, now: float) -> None:
        try:
            weights = {"weights": {change.replica: change.weight}}
            self._pool.configure(patched_router_config(self._pool.config, weights))
        except UsageError:  # it would leave no replica with a weight, or the replica is gone
            self._feedback.refused(change, now)

    def routes(self, guard: AdminGuard) -> list[BaseRoute]:
        async def show(_: Request) -> Response:
            return json_response(self.status())

        return [guard.route("GET", "/admin/control", show)]

    def status(self) -> RouterControlStatus:
        feedback = self._feedback
        mode = self._pool.config.control
        return RouterControlStatus(mode, feedback.hold, self._found, feedback.operator_weights, feedback.steps)

    def _note(self, step: ControlStep) -> None:
        if step.verification is not None:
            self._verdicts.labels(step.verification.verdict).inc()
        elif step.applied:
            self._steps.labels(step.reason).inc()
