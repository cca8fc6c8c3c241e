"""Runs the feedback controller in a server, and shows its steps.

`GET /admin/control` has the mode, the last measurement, why nothing is changed now, and the last steps with prediction
and verification. Each change is a compare-and-set of the live configuration: one of another client in between wins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from latdoctor.errors import LatdoctorError
from latdoctor.lab.server.admin_http import AdminGuard, json_response
from latdoctor.lab.server.control.feedback import FeedbackController
from latdoctor.lab.server.control.knob_rules import values_of
from latdoctor.lab.server.control.load_window import CallCosts, LoadWindow, Measurement, QueueState
from latdoctor.lab.server.control.metrics import ControlMetrics
from latdoctor.lab.server.control.step import ControlStep, HoldReason
from latdoctor.lab.server.intent_request import PendingRequests
from latdoctor.lab.server.live_config import LiveConfig
from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.schedulers.cost_model import CostModel


class ControlStatus(Struct, frozen=True):
    """`hold`: why the last decision changed nothing; None where it did. `operator`: the operator's values of the knobs
    that the controller has changed, which it restores when it is switched off.
    """

    mode: str
    hold: HoldReason | None
    measurement: Measurement | None
    measurement_age: float | None
    knobs: dict[str, float]
    operator: dict[str, float]
    last_refusal: str
    log_error: str
    steps: Sequence[ControlStep]


class ServerControl:
    """Decides every `control.interval_ms`. Used on the server's event loop."""

    def __init__(
        self,
        live_config: LiveConfig,
        load: LoadWindow,
        pending: PendingRequests,
        cost_model: CostModel,
        metrics: ServerMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._live_config, self._load, self._pending = live_config, load, pending
        self._cost_model, self._clock = cost_model, clock
        self._metrics = ControlMetrics(metrics)
        self._controller = FeedbackController(time.time, self._note)
        self._found: Measurement | None = None
        self._unwritten: list[ControlStep] = []
        self._refusal = self._log_error = ""
        self._metrics.off(values_of(live_config.config))
        self.measure: Callable[[], Measurement] = self._measure  # replaced by a fault: measurements that stop

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._live_config.config.control.interval_ms / 1000)
            await self.tick()

    async def tick(self) -> None:
        """One decision."""
        config, etag = self._live_config.config, self._live_config.etag
        if config.control.mode == "off" and not self._controller.operator_values:
            self._controller.hold, self._found = HoldReason.OFF, None
            self._metrics.off(values_of(config))
            return
        found, now = self.measure(), self._clock()
        self._found = found
        change = self._controller.decide(now, config, found)
        if change is not None:
            try:
                await self._live_config.change(change.patch, frozenset({etag}))
                self._refusal = ""
            except LatdoctorError as error:  # another client was quicker, or the value is not possible here
                self._refusal = error.what
                self._controller.refused(change, now, config.control.hold_off_s)
        values = values_of(self._live_config.config)
        self._metrics.decided(config.control, found, found.age(now), values, self._controller)
        await self._write(config.control.log)

    async def _write(self, log: str) -> None:
        """Appends the new steps to the log; where it cannot be written, the status says so and control goes on."""
        if not self._unwritten or not log:
            return
        unwritten, self._unwritten = self._unwritten, []
        try:
            await asyncio.to_thread(_append, Path(log), unwritten)
            self._log_error = ""
        except OSError as error:
            self._log_error = error.strerror or type(error).__name__

    def routes(self, guard: AdminGuard) -> list[BaseRoute]:
        async def show(_: Request) -> Response:
            return json_response(self.status())

        return [guard.route("GET", "/admin/control", show)]

    def status(self) -> ControlStatus:
        config, found = self._live_config.config, self._found
        return ControlStatus(
            mode=config.control.mode,
            hold=self._controller.hold,
            measurement=found,
            measurement_age=round(self._clock() - found.newest, 3) if found and found.newest is not None else None,
            knobs={str(knob): value for knob, value in values_of(config).items()},
            operator={str(knob): value for knob, value in self._controller.operator_values.items()},
            last_refusal=self._refusal,
            log_error=self._log_error,
            steps=self._controller.steps,
        )

    def _measure(self) -> Measurement:
        config, now = self._live_config.config, self._clock()
        queue = QueueState(self._pending.depth, self._pending.oldest_age(now))
        costs = CallCosts(*self._cost_model.learnt(), config.batching.max_batch_tokens)
        seconds, slo = config.control.window_ms / 1000, config.control.slo_ms / 1000
        return self._load.measure(now, seconds, slo, queue, costs)

    def _note(self, step: ControlStep) -> None:
        self._metrics.stepped(step)
        if self._live_config.config.control.log:
            self._unwritten.append(step)


def _append(file: Path, steps: Sequence[ControlStep]) -> None:
    """One JSON object a line. Raises OSError."""
    with file.open("ab") as opened:
        opened.writelines(msgspec.json.encode(step) + b"\n" for step in steps)
