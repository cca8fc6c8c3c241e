"""Weights of replicas by measured latency, and the standby replica: one step at a time, verified and rolled back.

A replica that is slower than its peers, and not by chance, loses a share of its weight, and regains it step by step
when it is as quick as they are. The standby replica is drawn in when the latency begins to rise towards the objective,
and set aside again at a rate well below the one at which it was needed. No clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from latdoctor.lab.server.control.replica_latency import RouterMeasurement
from latdoctor.lab.server.control.step import (
    ControlStep,
    HoldReason,
    Metric,
    Prediction,
    RouteReason,
    StepVerdict,
    Verification,
)
from latdoctor.lab.server.control.step_log import StepLog
from latdoctor.lab.server.control.trend import trend
from latdoctor.lab.server.load_balancing import Policy, RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaState, ReplicaStatus
from latdoctor.shares import Share, difference

WINDOW = 4.0  # seconds of one decision
TREND = 16.0  # seconds in which a rise must show
AHEAD = 15.0  # seconds that it is extrapolated: about what a replica needs to be of use with slow start
HOLD_OFF = 30.0  # seconds in which a rolled back step is not repeated
FEWEST = 30  # answers in a window
_SLOW, _RECOVERED = 1.4, 1.15  # times the peers' latency: between them nothing is changed
_CUT, _GROWTH, _LEAST = 0.7, 0.15, 0.1  # of a weight: factor, additive step and lowest share
_Z_SLOW, _Z_RISE, _Z_WORSE = 3.0, 2.33, 2.58
_NEAR = 0.85  # of the objective: the standby replica is drawn in without waiting for a trend
_ROOM = 0.7  # of the rate at which it was drawn in: then it may be set aside
_CALM = 0.5  # of the objective
_CALM_SECONDS = 20.0
_LOAD_CHANGED = 1.25
_WORSE = 1.3  # times the P95


class WeightChange(Struct, frozen=True):
    """The weight that a replica gets from now on."""

    replica: str
    weight: float
    step: ControlStep


class _Pending(Struct, frozen=True):
    change: WeightChange
    due: float
    before: RouterMeasurement


class RouteFeedback:
    """Decides for one router. `unix` gives Unix time, for the journal."""

    def __init__(
        self, unix: Callable[[], float], on_step: Callable[[ControlStep], None] = lambda _: None, ahead: float = AHEAD
    ) -> None:
        """`on_step` gets each step when it is taken, and once more with its verification; `ahead` in seconds."""
        self._log, self._ahead = StepLog(unix, on_step), ahead
        self._pending: _Pending | None = None
        self._operator: dict[str, float] = {}
        self._set: dict[str, float] = {}
        self._blocked: dict[tuple[str, int], float] = {}
        self._needed_at: float | None = None  # requests a second at which the standby replica was drawn in
        self._calm_since: float | None = None
        self.hold: HoldReason | None = HoldReason.OFF

    @property
    def steps(self) -> Sequence[ControlStep]:
        """The last steps, the oldest first."""
        return self._log.steps

    @property
    def operator_weights(self) -> dict[str, float]:
        """What the operator had set, of the replicas whose weight was changed."""
        return dict(self._operator)

    def decide(
        self, now: float, config: RouterConfig, replicas: Sequence[ReplicaStatus], found: RouterMeasurement
    ) -> WeightChange | None:
        """The weight to change now, or None; `hold` then says why."""
        decision = self._decide(now, config, replicas, found)
        self.hold = decision if isinstance(decision, HoldReason) else None
        return None if isinstance(decision, HoldReason) else decision

    def refused(self, change: WeightChange, now: float) -> None:
        """The change was not taken."""
        self._pending = None
        self._set.pop(change.replica, None)
        self._block(change.replica, now)
        self._log.superseded(change.step)

    def _decide(
        self, now: float, config: RouterConfig, replicas: Sequence[ReplicaStatus], found: RouterMeasurement
    ) -> WeightChange | HoldReason:
        ready = [one for one in replicas if one.state is ReplicaState.READY]
        self._forget_gone({one.name for one in replicas})
        if config.control != "on" and (release := self._release(ready)) is not None:
            return release
        if config.control == "off" or config.policy is Policy.ROUND_ROBIN or config.canary_version:
            return HoldReason.OFF  # weights mean nothing to the policy, or belong to the comparison of versions
        if self._operator_changed(now, ready):
            return HoldReason.OPERATOR
        if found.newest is None or now - found.newest > 2 * WINDOW:
            return HoldReason.STALE if sum(one.in_flight for one in replicas) else HoldReason.IDLE
        if self._pending is not None:
            if now < self._pending.due:
                return HoldReason.PENDING
            undo = self._verify(self._pending, now, found)
            if undo is not None:
                return undo
        return self._step(now, config, ready, found)

    def _step(
        self, now: float, config: RouterConfig, ready: Sequence[ReplicaStatus], found: RouterMeasurement
    ) -> WeightChange | HoldReason:
        if found.answers < FEWEST:
            return HoldReason.FEW
        names = list(reversed([one.name for one in ready]))[: config.standby_replicas]
        standby = [one for one in ready if one.name in names]
        suggested = [
            *self._standby_steps(now, config, ready, standby, found),
            *self._slow_steps(ready, found),
        ]
        if not suggested:
            return HoldReason.IN_BAND
        for replica, weight, reason in suggested:
            direction = 1 if weight > replica.weight else -1
            if now >= self._blocked.get((replica.name, direction), float("-inf")):
                return self._take(now, config, replica, weight, reason, found)
        return HoldReason.BLOCKED

    def _standby_steps(
        self,
        now: float,
        config: RouterConfig,
        ready: Sequence[ReplicaStatus],
        standby: Sequence[ReplicaStatus],
        found: RouterMeasurement,
    ) -> list[tuple[ReplicaStatus, float, RouteReason]]:
        slo = config.control_slo_ms / 1000
        aside = [one for one in standby if one.weight == 0]
        active = [one for one in standby if one.weight > 0 and len(standby) < len(ready)]
        if aside and self._rises(found, slo):
            self._calm_since = None
            return [(aside[0], self._operator.get(aside[0].name) or 1.0, RouteReason.DRAW_IN)]
        room = self._needed_at is None or found.rate < _ROOM * self._needed_at
        if not active or found.p95 > _CALM * slo or found.late or not room:
            self._calm_since = None
            return []
        self._calm_since = now if self._calm_since is None else self._calm_since
        if now - self._calm_since < _CALM_SECONDS:
            return []
        return [(active[-1], 0.0, RouteReason.SET_ASIDE)]

    def _rises(self, found: RouterMeasurement, slo: float) -> bool:
        """Near the objective, or on the way there: a significant rise that reaches it in time."""
        if found.p95 > _NEAR * slo:
            return True
        risen = trend(found.per_second)
        return risen is not None and risen.z > _Z_RISE and risen.ahead(self._ahead) > slo

    def _slow_steps(
        self, ready: Sequence[ReplicaStatus], found: RouterMeasurement
    ) -> list[tuple[ReplicaStatus, float, RouteReason]]:
        steps = []
        for one in sorted(ready, key=lambda one: -found.replicas[one.name].ratio if one.name in found.replicas else 0):
            beside = found.replicas.get(one.name)
            if beside is None or one.weight == 0 or one.weight_share < 1:
                continue  # nothing is known of it, or it is being eased in
            base = self._operator.get(one.name, one.weight) or 1.0  # a standby replica that was drawn in
            if beside.ratio > _SLOW and beside.z > _Z_SLOW and beside.answers >= FEWEST // 3:
                weight = max(_LEAST * base, round(one.weight * _CUT, 3))
                steps += [(one, weight, RouteReason.SLOW)] if weight < one.weight else []
            elif beside.ratio < _RECOVERED and one.weight < base:
                steps.append((one, min(base, round(one.weight + _GROWTH * base, 3)), RouteReason.RECOVERED))
        return steps

    def _take(
        self,
        now: float,
        config: RouterConfig,
        replica: ReplicaStatus,
        weight: float,
        reason: RouteReason,
        found: RouterMeasurement,
    ) -> WeightChange | HoldReason:
        better = reason in (RouteReason.SLOW, RouteReason.DRAW_IN)
        expected = Prediction(Metric.P95, found.p95, found.p95 * (0.9 if better else 1.0))
        if config.control == "observe":
            self._blocked[replica.name, 1 if weight > replica.weight else -1] = now + HOLD_OFF
            self._journal(replica, weight, reason, expected, applied=False)
            return HoldReason.OBSERVING
        if reason is RouteReason.DRAW_IN:
            self._needed_at = found.rate
        self._operator.setdefault(replica.name, replica.weight)
        change = WeightChange(replica.name, weight, self._journal(replica, weight, reason, expected))
        self._set[replica.name] = weight
        eased = config.slow_start_ms / 1000 if reason is RouteReason.DRAW_IN else 0.0
        self._pending = _Pending(change, now + WINDOW + min(found.p95, WINDOW) + min(eased, WINDOW), found)
        return change

    def _verify(self, pending: _Pending, now: float, found: RouterMeasurement) -> WeightChange | None:
        """Judges the step whose effect can be seen; the rollback where it made it worse."""
        self._pending = None
        change, before = pending.change, pending.before
        verdict = _verdict(before, found)
        seconds = now - pending.due + WINDOW
        shares = before.late / max(1, before.answers), found.late / max(1, found.answers)
        self._log.verified(change.step, Verification(verdict, found.p95, seconds, *shares))
        if verdict is not StepVerdict.WORSE or change.step.reason is RouteReason.DRAW_IN:
            return None  # more room is not what makes it slower
        self._blocked[change.replica, change.step.direction] = now + HOLD_OFF
        step = change.step
        undo = self._log.add(step.knob, step.new, step.old, RouteReason.ROLLBACK, undoes=step.number)
        self._set[change.replica] = change.step.old
        return WeightChange(change.replica, change.step.old, undo)

    def _operator_changed(self, now: float, ready: Sequence[ReplicaStatus]) -> bool:
        changed = [one.name for one in ready if one.name in self._set and one.weight != self._set[one.name]]
        for name in changed:
            del self._set[name]
            self._operator.pop(name, None)
            self._block(name, now)
            if self._pending is not None and self._pending.change.replica == name:
                self._log.superseded(self._pending.change.step)
                self._pending = None
        return bool(changed)

    def _release(self, ready: Sequence[ReplicaStatus]) -> WeightChange | None:
        """One replica after the other gets the operator's weight again."""
        if not self._operator:
            return None
        self._pending = self._needed_at = self._calm_since = None
        for one in ready:
            if one.name in self._operator:
                weight, expected = self._operator.pop(one.name), self._set.pop(one.name, None)
                if one.weight == expected and one.weight != weight:
                    return WeightChange(one.name, weight, self._journal(one, weight, RouteReason.RELEASE, None))
        return None

    def _forget_gone(self, names: set[str]) -> None:
        for gone in self._set.keys() - names:
            del self._set[gone]
            self._operator.pop(gone, None)
        if self._pending is not None and self._pending.change.replica not in names:
            self._pending = None

    def _block(self, name: str, now: float) -> None:
        self._blocked[name, 1] = self._blocked[name, -1] = now + HOLD_OFF

    def _journal(
        self,
        one: ReplicaStatus,
        new: float,
        reason: RouteReason,
        prediction: Prediction | None,
        *,
        applied: bool = True,
    ) -> ControlStep:
        return self._log.add(f"weights.{one.name}", one.weight, new, reason, prediction, applied=applied)


def _verdict(before: RouterMeasurement, after: RouterMeasurement) -> StepVerdict:
    if min(before.answers, after.answers) < FEWEST:
        return StepVerdict.UNKNOWN
    low, high = difference(Share(after.late, after.answers), Share(before.late, before.answers), _Z_WORSE)
    if high < 0:
        return StepVerdict.IMPROVED
    if low > 0 or after.p95 > _WORSE * before.p95:
        return StepVerdict.UNKNOWN if after.rate > _LOAD_CHANGED * before.rate else StepVerdict.WORSE
    return StepVerdict.IMPROVED if after.p95 < before.p95 / _WORSE else StepVerdict.UNCHANGED
