"""Weights of replicas by measured latency, and the standby replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from latdoctor.lab.server.control.replica_latency import ReplicaLatencies
from latdoctor.lab.server.control.route_feedback import HOLD_OFF, TREND, WINDOW, RouteFeedback, WeightChange
from latdoctor.lab.server.control.step import HoldReason, RouteReason, StepVerdict
from latdoctor.lab.server.load_balancing import Policy, patched_router_config
from latdoctor.lab.server.replica_pool import ReplicaPool, RouterConfig

NAMES = ("0", "1", "2")
Latency = Callable[[str, float], float]  # of a replica at a second


class Routed:
    """A pool of three replicas, of which `weights` decide what each answers, and its feedback."""

    def __init__(self, **config: Any) -> None:
        self.now = 1000.0
        config = {"control": "on", "control_slo_ms": 500, "slow_start_ms": 0, **config}
        self.pool = ReplicaPool(
            {name: f"http://{name}" for name in NAMES}, RouterConfig(**config), now=lambda: self.now
        )
        for name in NAMES:
            self.pool.ready(name)
        self.latencies = ReplicaLatencies()
        self.feedback = RouteFeedback(lambda: 1e9 + self.now)
        self.changes: list[WeightChange] = []

    def play(self, seconds: float, latency: Latency, rate: int = 60) -> None:
        """So many seconds of answers, with a decision every half of one."""
        for half in range(int(seconds * 2)):
            for number in range(rate // 2):
                weighted = [one.name for one in self.pool.statuses() if one.weight > 0]
                name = weighted[number % len(weighted)]
                # Equal answers have no spread, and no server's are.
                took = latency(name, self.now) * (0.9 + 0.2 * ((number * 7 + half) % 10) / 10)
                self.latencies.answered(self.now + number / rate, name, took, good=True)
            self.now += 0.5
            self.decide()

    def decide(self) -> None:
        found = self.latencies.measure(self.now, WINDOW, self.pool.config.control_slo_ms / 1000, TREND)
        change = self.feedback.decide(self.now, self.pool.config, self.pool.statuses(), found)
        if change is not None:
            self.changes.append(change)
            self.set(weights={change.replica: change.weight})

    def set(self, **patch: Any) -> None:
        self.pool.configure(patched_router_config(self.pool.config, patch))

    def weight(self, name: str) -> float:
        return next(one.weight for one in self.pool.statuses() if one.name == name)

    @property
    def reasons(self) -> list[object]:
        return [step.reason for step in self.feedback.steps]


def equal(_: str, __: float) -> float:
    return 0.1


def slow_one(name: str, _: float) -> float:
    return 0.3 if name == "1" else 0.1


def test_a_slow_replica_loses_weight_and_regains_it() -> None:
    routed = Routed()
    routed.play(10, slow_one)
    assert 0 < routed.weight("1") < 1
    assert routed.weight("0") == routed.weight("2") == 1
    routed.play(60, equal)
    assert routed.weight("1") == 1
    assert set(routed.reasons) == {RouteReason.SLOW, RouteReason.RECOVERED}


def test_equal_replicas_keep_their_weights() -> None:
    routed = Routed()
    routed.play(30, equal)
    assert routed.changes == []
    assert routed.feedback.hold is HoldReason.IN_BAND


def test_all_replicas_slow_is_no_matter_of_weights() -> None:
    routed = Routed()
    routed.play(10, equal)
    routed.play(20, lambda _, __: 0.4)
    assert routed.changes == []


def test_weights_that_the_policy_ignores_are_not_changed() -> None:
    routed = Routed(policy=Policy.ROUND_ROBIN)
    routed.play(10, slow_one)
    assert routed.changes == []
    assert routed.feedback.hold is HoldReason.OFF


def test_the_standby_replica_waits_aside_until_the_latency_begins_to_rise() -> None:
    routed = Routed(standby_replicas=1)
    routed.play(40, equal)
    assert [routed.weight(name) for name in NAMES] == [1, 1, 0]
    began = routed.now
    routed.play(20, lambda _, now: 0.1 + 0.012 * (now - began), rate=80)
    assert routed.weight("2") == 1
    assert routed.reasons[-1] is RouteReason.DRAW_IN
    drawn = routed.feedback.steps[-1]
    assert drawn.prediction is not None
    assert drawn.prediction.before < 0.4  # before the objective was missed


def test_one_spike_does_not_draw_it_in() -> None:
    routed = Routed(standby_replicas=1, weights={"2": 0.0})
    routed.play(16, equal)
    routed.play(0.5, lambda _, __: 0.35)
    routed.play(16, equal)
    assert routed.weight("2") == 0


@pytest.mark.parametrize(("rate", "kept"), [(80, True), (40, False)])
def test_the_standby_replica_stays_until_the_others_have_room(rate: int, kept: bool) -> None:
    routed = Routed(standby_replicas=1, weights={"2": 0.0})
    routed.play(6, equal, rate=90)
    routed.play(10, lambda _, __: 0.48, rate=90)
    assert routed.weight("2") == 1
    routed.play(60, equal, rate=rate)
    assert (routed.weight("2") == 1) is kept


def test_an_operators_weight_wins() -> None:
    routed = Routed()
    routed.play(6, slow_one)
    routed.set(weights={"1": 0.9})
    routed.decide()
    assert routed.feedback.hold is HoldReason.OPERATOR
    routed.play(HOLD_OFF - 5, slow_one)
    assert routed.weight("1") == 0.9


def test_observing_changes_nothing() -> None:
    routed = Routed(control="observe")
    routed.play(10, slow_one)
    assert routed.changes == []
    assert [step.applied for step in routed.feedback.steps] == [False]


def test_switching_it_off_restores_the_weights() -> None:
    routed = Routed(weights={"1": 2.0})
    routed.play(10, slow_one)
    assert routed.weight("1") < 2
    routed.set(control="off")
    routed.play(2, slow_one)
    assert routed.weight("1") == 2
    assert routed.feedback.operator_weights == {}


def test_a_step_after_which_it_is_slower_is_rolled_back() -> None:
    routed = Routed()

    def shifted(name: str, _: float) -> float:
        if routed.weight("1") < 1:  # the others cannot take what it loses
            return 0.9
        return slow_one(name, 0)

    routed.play(12, shifted)
    assert routed.reasons[:2] == [RouteReason.SLOW, RouteReason.ROLLBACK]
    verified = routed.feedback.steps[0].verification
    assert verified is not None
    assert verified.verdict is StepVerdict.WORSE
    assert routed.weight("1") == 1


def test_a_replica_that_is_gone_is_forgotten() -> None:
    routed = Routed()
    routed.play(10, slow_one)
    routed.pool.remove("1")
    routed.decide()
    assert routed.feedback.operator_weights == {}
