"""The feedback controller: one step at a time, each predicted, verified and rolled back where it made it worse.

No clock and no I/O: the caller passes time and measurement, applies the change, and says whether it was taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from latdoctor.lab.server.config import ControlConfig, ServerConfig
from latdoctor.lab.server.control.knob_rules import ProposedStep, arming, metric_of, proposals, values_of
from latdoctor.lab.server.control.load_window import Measurement
from latdoctor.lab.server.control.step import (
    ControlledKnob,
    ControlStep,
    HoldReason,
    Metric,
    StepReason,
    StepVerdict,
    Verification,
)
from latdoctor.lab.server.control.step_log import StepLog
from latdoctor.shares import Share, difference

FEWEST = 30  # requests in a window, for a judgement
_STALE_WINDOWS = 2.0  # without an observation
_Z = 2.58  # of the interval that a worse share of missed requests must exclude zero with
_WORSE_P50 = 1.3  # times, where a step of the wait is judged
_LOAD_CHANGED = 1.25  # times the offered tokens: what was measured is then not the step's doing
_REVERSALS = 3  # in a row, of one knob: it oscillates
_INTEGERS = frozenset({ControlledKnob.BATCH_TOKENS, ControlledKnob.BATCH_REQUESTS})


class KnobChange(Struct, frozen=True):
    """What is to be written, as a merge patch of the configuration, and the steps that it consists of."""

    patch: dict[str, dict[str, float | int]]
    steps: tuple[ControlStep, ...]


class PendingStep(Struct, frozen=True):
    """Steps that were applied at once, whose effect cannot be seen before `due`, seconds of the controller's clock."""

    steps: tuple[ControlStep, ...]
    applied_at: float
    due: float
    before: Measurement


class FeedbackController:
    """Decides for one server. `unix` gives Unix time, for the journal."""

    def __init__(self, unix: Callable[[], float], on_step: Callable[[ControlStep], None] = lambda _: None) -> None:
        """`on_step` gets each step when it is taken, and once more with its verification."""
        self._log = StepLog(unix, on_step)
        self._pending: PendingStep | None = None
        self._operator: dict[ControlledKnob, float] = {}  # their values before the first step of the knob
        self._set: dict[ControlledKnob, float] = {}
        self._blocked: dict[tuple[ControlledKnob, int], float] = {}
        self._turns: dict[ControlledKnob, list[tuple[float, int]]] = {}  # time and direction of its last steps
        self.hold: HoldReason | None = HoldReason.OFF
        self.holds: Counter[HoldReason] = Counter()
        self.reversals = 0

    @property
    def steps(self) -> Sequence[ControlStep]:
        """The last steps, the oldest first."""
        return self._log.steps

    @property
    def operator_values(self) -> Mapping[ControlledKnob, float]:
        """What the operator had set, of the knobs that were changed."""
        return self._operator

    def decide(self, now: float, config: ServerConfig, found: Measurement) -> KnobChange | None:
        """The change to make now, or None; `hold` then says why."""
        decision = self._decide(now, config, found)
        if isinstance(decision, HoldReason):
            self.hold = decision
            self.holds[decision] += 1
            return None
        self.hold = None
        return decision

    def refused(self, change: KnobChange, now: float, hold_off: float) -> None:
        """The change was not taken: its knobs are left alone for `hold_off` seconds."""
        for step in change.steps:
            self._pending = None
            knob = ControlledKnob(step.knob)
            self._set.pop(knob, None)
            self._block(knob, now + hold_off)
            self._log.superseded(step, 0.0)

    def _decide(self, now: float, config: ServerConfig, found: Measurement) -> KnobChange | HoldReason:
        control, values = config.control, values_of(config)
        if control.mode != "on" and (released := self._released(values)) is not None:
            return released
        if control.mode == "off":
            self._blocked = {}
            return HoldReason.OFF
        if self._operator_changed(now, values, control):
            return HoldReason.OPERATOR
        stopped = self._unreadable(now, found, control)
        if stopped is not None:
            return stopped
        if self._pending is not None:
            if now < self._pending.due:
                return HoldReason.PENDING
            undo = self._verify(self._pending, now, found, control)
            if undo is not None:
                return undo
        arm = list(arming(found, values, control))
        if found.finished < FEWEST and not arm:
            return HoldReason.FEW
        measured = proposals(found, values, control) if found.finished >= FEWEST else ()
        return self._take([*arm, *measured], now, values, found, control)

    @staticmethod
    def _unreadable(now: float, found: Measurement, control: ControlConfig) -> HoldReason | None:
        """Without a recent observation there is no traffic, or the measurement is not to be trusted."""
        if now - found.at > _STALE_WINDOWS * control.window_ms / 1000:
            return HoldReason.STALE
        if found.age(now) <= _STALE_WINDOWS * control.window_ms / 1000 and found.finished:
            return None
        return HoldReason.STALE if found.queue.depth or found.arrivals else HoldReason.IDLE

    def _operator_changed(self, now: float, values: Mapping[ControlledKnob, float], control: ControlConfig) -> bool:
        """Another client's value is respected: it is the operator's now, and the knob is left alone for a while."""
        changed = [knob for knob, value in self._set.items() if values[knob] != value]
        for knob in changed:
            del self._set[knob]
            self._operator.pop(knob, None)
            self._block(knob, now + control.hold_off_s)
            pending = self._pending
            if pending is not None and any(step.knob == knob for step in pending.steps):
                self._pending = None
                for step in pending.steps:
                    self._log.superseded(step, now - pending.applied_at)
        return bool(changed)

    def _take(
        self,
        suggested: Sequence[ProposedStep],
        now: float,
        values: Mapping[ControlledKnob, float],
        found: Measurement,
        control: ControlConfig,
    ) -> KnobChange | HoldReason:
        """The first of the suggested steps that is not blocked."""
        if not suggested:
            return HoldReason.IN_BAND
        free = [one for one in suggested if self._is_free(one, now, values)]
        if not free:
            return HoldReason.BLOCKED
        # Admission is armed together with the bound of a batch that fits to it: both follow from the objective.
        together = [one for one in free if one.reason is StepReason.BATCH_TOO_LONG][:1]
        chosen = [free[0], *together] if free[0].reason is StepReason.ARM else free[:1]
        applied = control.mode == "on"
        steps = tuple(
            self._log.add(one.knob, values[one.knob], one.new, one.reason, one.prediction, applied=applied)
            for one in chosen
        )
        if not applied:  # the same again is no news for a while
            for step in steps:
                self._blocked[ControlledKnob(step.knob), step.direction] = now + control.hold_off_s
            return HoldReason.OBSERVING
        for step in steps:
            self._note_turn(step, now, control)
        lag = max(found.p99, found.queue.oldest_age, control.interval_ms / 1000)
        window = control.window_ms / 1000
        self._pending = PendingStep(steps, now, now + min(lag, 2 * window) + window, found)
        return self._change(steps)

    def _is_free(self, one: ProposedStep, now: float, values: Mapping[ControlledKnob, float]) -> bool:
        return now >= self._blocked.get((one.knob, _direction(values[one.knob], one.new)), float("-inf"))

    def _note_turn(self, step: ControlStep, now: float, control: ControlConfig) -> None:
        """Counts changes of direction; a knob that goes to and fro is left alone for a while."""
        knob = ControlledKnob(step.knob)
        turns = [turn for turn in self._turns.get(knob, []) if turn[0] > now - 10 * control.window_ms / 1000]
        reverses = bool(turns) and turns[-1][1] != step.direction
        self.reversals += reverses
        self._turns[knob] = turns = [*(turns if reverses else []), (now, step.direction)]
        if len(turns) > _REVERSALS:
            self._turns[knob] = []
            self._block(knob, now + control.hold_off_s)

    def _verify(
        self, pending: PendingStep, now: float, found: Measurement, control: ControlConfig
    ) -> KnobChange | None:
        """Judges the steps whose effect can be seen; the rollback where they made it worse."""
        self._pending = None
        before = pending.before
        verdict = self._verdict(pending.steps, before, found)
        shares = before.missed / max(1, before.finished), metric_of(Metric.MISSED, found)
        for step in pending.steps:
            metric = step.prediction.metric if step.prediction else Metric.MISSED
            measured = metric_of(metric, found)
            self._log.verified(step, Verification(verdict, measured, now - pending.applied_at, *shares))
        if verdict is not StepVerdict.WORSE:
            return None
        self.reversals += len(pending.steps)
        undone = []
        for step in pending.steps:
            knob = ControlledKnob(step.knob)
            self._blocked[knob, step.direction] = now + control.hold_off_s
            undone.append(self._log.add(knob, step.new, step.old, StepReason.ROLLBACK, None, undoes=step.number))
        return self._change(tuple(undone))

    @staticmethod
    def _verdict(steps: Sequence[ControlStep], before: Measurement, after: Measurement) -> StepVerdict:
        if min(before.finished, after.finished) < FEWEST:
            return StepVerdict.UNKNOWN
        # A longer deadline makes answers late; it never refuses more.
        admits = all(step.knob == ControlledKnob.DEADLINE and step.direction > 0 for step in steps)
        low, high = difference(_bad(after, late_only=admits), _bad(before, late_only=admits), _Z)
        waits = any(step.knob == ControlledKnob.WAIT for step in steps)
        arms = any(step.reason is StepReason.ARM for step in steps)
        if high < 0:
            return StepVerdict.IMPROVED
        if low > 0 or (waits and after.p50 > _WORSE_P50 * before.p50):
            grown = after.token_rate > _LOAD_CHANGED * before.token_rate
            # Without admission an overload gets worse with every second: what was before is then no measure.
            return StepVerdict.UNKNOWN if grown or arms else StepVerdict.WORSE
        return StepVerdict.UNCHANGED

    def _released(self, values: Mapping[ControlledKnob, float]) -> KnobChange | None:
        """The operator's values again, of the knobs that still have the controller's; None where there are none."""
        steps = []
        for knob, value in self._operator.items():
            if knob in self._set and values[knob] == self._set[knob] != value:
                steps.append(self._log.add(knob, values[knob], value, StepReason.RELEASE, None))
        self._operator, self._set, self._turns, self._pending = {}, {}, {}, None
        return KnobChange(_merged(steps), tuple(steps)) if steps else None

    def _change(self, steps: tuple[ControlStep, ...]) -> KnobChange:
        for step in steps:
            knob = ControlledKnob(step.knob)
            self._operator.setdefault(knob, step.old)
            self._set[knob] = step.new
        return KnobChange(_merged(steps), steps)

    def _block(self, knob: ControlledKnob, until: float) -> None:
        self._blocked[knob, 1] = self._blocked[knob, -1] = until


def _bad(found: Measurement, *, late_only: bool) -> Share:
    return Share(found.late, found.answers) if late_only else Share(found.missed, found.finished)


def _direction(old: float, new: float) -> int:
    return 1 if new > old else -1


def _merged(steps: Sequence[ControlStep]) -> dict[str, dict[str, float | int]]:
    patch: dict[str, dict[str, float | int]] = {}
    for step in steps:
        group, _, name = step.knob.partition(".")
        patch.setdefault(group, {})[name] = int(step.new) if step.knob in _INTEGERS else step.new
    return patch
