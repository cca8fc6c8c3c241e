"""Metrics of a server's controller. Every sample has the labels `replica` and `backend`."""

from __future__ import annotations

import math

from prometheus_client import Gauge

from latdoctor.lab.server.config import ControlConfig
from latdoctor.lab.server.control.feedback import FeedbackController
from latdoctor.lab.server.control.knob_rules import Values
from latdoctor.lab.server.control.load_window import Measurement
from latdoctor.lab.server.control.step import ControlStep, HoldReason, StepReason, StepVerdict
from latdoctor.lab.server.metrics import FIXED, ServerMetrics

_MODES = ("off", "observe", "on")
_NO_OBSERVATION = 3600.0  # seconds, where there never was one


class ControlMetrics:
    """Updated at each decision."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._fixed, self._registry = metrics.fixed, metrics.registry
        self._mode = self._gauge("ref_control_mode", "0: off, 1: observes only, 2: changes knobs")
        self._age = self._gauge("ref_control_measurement_age_seconds", "Since the controller's newest measurement")
        self._p99 = self._gauge("ref_control_p99_seconds", "P99 of the controller's window")
        self._objective = self._gauge("ref_control_objective_seconds", "P99 that the controller aims at")
        self._missed = self._gauge("ref_control_missed_ratio", "Requests of the window that were late or refused")
        self._blind = self._gauge(
            "ref_control_blind", "1 while requests arrive or wait, and nothing was measured lately"
        )
        self._knob = Gauge("ref_control_knob", "Value of a controlled knob", (*FIXED, "knob"), registry=self._registry)
        self.steps = metrics.split_counter("ref_control_steps", "Steps taken, by why", "reason", tuple(StepReason))
        self.verdicts = metrics.split_counter(
            "ref_control_verdicts", "Steps verified, by what was found", "verdict", tuple(StepVerdict)
        )
        self.holds = metrics.split_counter(
            "ref_control_holds", "Decisions without a step, by why", "reason", tuple(HoldReason)
        )
        self.reversals = metrics.counter("ref_control_reversals", "Steps of a knob against its step before")
        self._reversals = 0

    def _gauge(self, name: str, message: str) -> Gauge:
        child: Gauge = Gauge(name, message, FIXED, registry=self._registry).labels(*self._fixed)
        return child

    def decided(
        self, control: ControlConfig, found: Measurement, age: float, values: Values, controller: FeedbackController
    ) -> None:
        """After one decision; `age` of the measurement in seconds."""
        self._mode.set(_MODES.index(control.mode))
        self._objective.set(control.slo_ms / 1000)
        self._age.set(min(age, _NO_OBSERVATION))
        self._p99.set(found.p99)
        self._missed.set(found.missed / max(1, found.finished))
        self._blind.set(controller.hold is HoldReason.STALE)
        self._show(values)
        if controller.hold is not None:
            self.holds.of(controller.hold).inc()
        self.reversals.inc(controller.reversals - self._reversals)
        self._reversals = controller.reversals

    def off(self, values: Values) -> None:
        """Control is off, and nothing is measured: what is not known is NaN, not 0."""
        self._mode.set(0)
        self._blind.set(0)
        for gauge in (self._age, self._p99, self._objective, self._missed):
            gauge.set(math.nan)
        self._show(values)

    def _show(self, values: Values) -> None:
        for knob, value in values.items():
            self._knob.labels(*self._fixed, knob).set(value)

    def stepped(self, step: ControlStep) -> None:
        """A step was taken, or verified. Steps that were only observed do not count."""
        if step.verification is not None:
            self.verdicts.of(step.verification.verdict).inc()
        elif step.applied:
            self.steps.of(step.reason).inc()
