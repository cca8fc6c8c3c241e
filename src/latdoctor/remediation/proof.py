"""The proof that a change has helped, with a stated share of errors.

The level of each signal over the last windows is compared with its level before the change. A condition that demands
an improvement (`latency.p99 < 0.5 x before`) holds where the shift is beyond chance and not smaller than demanded; it
fails where the shift is smaller for certain, and is open in between. All looks together take ERROR: each one its part
(Bonferroni). Few windows before the change do not show by how much a service varies, so these need more windows after
it, and a higher certainty, as an incident is looked at when it is at its worst.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from latdoctor.conditions.ast import Comparison, Condition, Prefer, Reference, SignalTerm, comparisons, signals_of
from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN, Facts, Truth, evaluate, show
from latdoctor.evidence.model import Origin, Reading
from latdoctor.evidence.page_state import PageState, other_process
from latdoctor.remediation.chance import Samples, Shift, shift
from latdoctor.remediation.levels import Levels, pooled, values_of
from latdoctor.remediation.observation import (
    ConditionResult,
    Observation,
    SignalValues,
    evaluate_all,
    evaluate_mechanism,
)
from latdoctor.remediation.playbook import Verify
from latdoctor.remediation.repair import whole_in_all
from latdoctor.remediation.run_result import WindowResult, WindowStatus

ERROR = 0.01  # share of changes without effect that are verified, at most
WORST = 0.1  # of the windows of a service: as bad as that is what an incident is looked at for
# Seconds observed before the change, and how many windows after it are then needed, in seconds: together they last
# longer than what a service's latency wanders by itself.
FEW = 60.0
_NEEDED = ((300.0, 30.0), (FEW, 90.0), (0.0, 120.0))
PENDING = 300.0  # seconds in which a proof that is not complete in time goes on
_LOOK_EVERY = 30.0  # seconds between two looks of a pending proof
_ROUNDING = 1e-3  # of a look: windows are a little longer than asked for
_LATEST_PART = 2 / 3  # of the windows after the change, from which on its effect is judged
# What kind of requests arrive, the most telling first: of a subject the first that is known is held.
LOAD_KIND = ("input.length.mean", "input.rows.mean", "input.token_rate")
_ORDERED = frozenset(("<", "<=", ">", ">="))
_FALLS, _FALLS_FEW = 0.1, 0.05  # share by which the load may fall; less where little was observed before
_ANSWERED = {"arrival.rate": "completion.rate", "router.arrival_rate": "router.completion_rate"}  # of what arrives
ANSWERED = _ANSWERED["arrival.rate"]
_OTHERWISE = ("fallback.rate", "standby.rate")  # answers, but not of the model
_OTHERWISE_RISES = 0.05  # of all answers, by which they may rise, unless the playbook has a condition on them
_ANSWERS_FALL = 0.2  # share by which the answered requests may fall, unless the playbook has a condition on them
_SAME_KIND = 0.25  # the share by which the mean length of requests may differ
_BEST_FIRST = (WindowStatus.UNPROVEN, WindowStatus.INCONCLUSIVE, WindowStatus.FAILURE)


class Schedule(Struct, frozen=True):
    """When a proof looks: from `hold` until `until` seconds after the change, every `every` seconds.

    `error`: the share of changes without effect that all looks together may verify.
    """

    hold: float
    until: float
    every: float
    error: float
    load_falls: float  # by which share the load may fall

    @classmethod
    def of_run(cls, verify: Verify, before: Levels, window: float) -> tuple[Schedule, Schedule]:
        """The looks within the run, and those of a proof that is pending after it; both share the error."""
        observed = min((one.observed for key, one in before.items() if key[0] in improved_signals(verify)), default=0.0)
        hold = max(verify.hold, next(needed for least, needed in _NEEDED if observed >= least))
        error = ERROR if observed >= FEW else ERROR * WORST
        falls = _FALLS if observed >= FEW else _FALLS_FEW
        share = error / 2 if hold <= verify.within else error
        return cls(hold, verify.within, window, share, falls), cls(hold, PENDING, _LOOK_EVERY, share, falls)

    @property
    def looks(self) -> int:
        return max(0, math.floor((self.until - self.hold) / self.every + _ROUNDING) + 1)

    def chance(self, elapsed: float, window: float) -> float:
        """The probability of chance that is accepted after so many seconds, where the last window lasts `window`.

        0 between two looks.
        """
        due = math.floor((elapsed - self.hold) / self.every + _ROUNDING)
        before = math.floor((elapsed - window - self.hold) / self.every + _ROUNDING)
        return self.error / max(1, self.looks) if due >= 0 and due > before else 0.0


@dataclass(frozen=True, slots=True)
class Proof:
    """What a change is compared with: the levels before it, and the processes that showed them.

    `pages` is None where the change replaces the process. `broken`: the findings of a broken workload.
    """

    verify: Verify
    before: Levels
    schedule: Schedule
    pages: tuple[PageState, ...] | None = ()
    broken: tuple[str, ...] = ()

    def look(self, windows: Sequence[Observation]) -> WindowResult:
        """The result after `windows`, which follow the change without a pause."""
        elapsed = math.fsum(one.ended - one.started for one in windows)
        step = elapsed / len(windows)
        latest = windows[-max(1, round(max(self.schedule.hold, elapsed * _LATEST_PART) / step)) :]
        found, levels = pooled(latest), values_of(self.before)
        after = {key: Samples(tuple(one.values.get(key, math.nan) for one in latest), step) for key in self.before}
        shifts = {key: moved for key, one in self.before.items() if (moved := shift(one.samples, after[key]))}
        load = tuple(self._same_load(found, levels, windows[-1]))
        chance = self.schedule.chance(elapsed, step)
        effect = tuple(self._effect(found, levels))
        improved = tuple(self._improved(found, _Comparer(levels, shifts, chance)))
        repaired = tuple(self._repaired(latest, found, levels))
        shown = repaired if repaired and _all_hold(repaired) and not _all_hold(improved) else (*improved, *repaired)
        if chance and _all_hold((*load, *effect)) and (_all_hold(improved) or (repaired and _all_hold(repaired))):
            status = WindowStatus.SUCCESS
        else:
            at_best = tuple(self._improved(found, _Comparer(levels, shifts)))
            ways = (at_best, repaired) if repaired else (at_best,)
            status = min((_status_at_best(load, (*way, *effect)) for way in ways), key=_BEST_FIRST.index)
        return WindowResult(windows[-1].started, windows[-1].ended, status, (*load, *shown, *effect))

    def _same_load(self, found: Observation, levels: SignalValues, last: Observation) -> Iterator[ConditionResult]:
        """Whether the same process gets as many requests of the same kind as before."""
        if self.verify.load is not None:
            yield evaluate_all(self.verify.load, found, levels, _Comparer(levels))
            held = _held(self.verify.load, {signal for signal, _ in levels})
            for key in (key for key in levels if key[0] in held):
                # Near saturation a little less load is much faster, whatever is changed; so are shorter requests.
                yield _not_less(key, levels, found.values, self.schedule.load_falls)
                if kind := self._kind_of(key[1]):
                    yield _same_kind(kind, levels, found.values)
        if self.pages is not None and (why := other_process(self.pages, last.pages)):
            yield ConditionResult("the same process", FAILS, why)

    def _kind_of(self, subject: str) -> tuple[str, str] | None:
        keys = [(signal, subject) for signal in LOAD_KIND if signal not in self.verify.alters]
        return next((key for key in keys if key in self.before), None)

    def _improved(self, found: Observation, compare: _Comparer) -> Iterator[ConditionResult]:
        for condition in self.verify.succeed:
            yield evaluate_all(condition, found, compare.levels, compare)

    def _repaired(
        self, latest: Sequence[Observation], found: Observation, levels: SignalValues
    ) -> Iterator[ConditionResult]:
        """Whether what was broken is whole in all of the latest windows, and nothing is worse; none if nothing was."""
        if self.verify.repair is None or not self.broken:
            return
        yield from whole_in_all(self.verify.repair, latest)
        for condition in self.verify.repair.not_worse:
            yield evaluate_all(condition, found, levels, _Comparer(levels))

    def _effect(self, found: Observation, levels: SignalValues) -> Iterator[ConditionResult]:
        """What must be so beside success: requests are answered by the model, and the change does what it does."""
        yield from self._answered(found, levels)
        yield from self._by_the_model(found, levels)
        for item in self.verify.mechanism:
            yield evaluate_mechanism(item, found, levels, _Comparer(levels))

    def _answered(self, found: Observation, levels: SignalValues) -> Iterator[ConditionResult]:
        """Whether about as many requests are answered: one that never is has no latency, and P99 falls without it.

        Asked of what the load is held for: a replica that traffic is routed away from answers less. Fewer answers are
        enough where nearly all that arrives gets one: then they were answers to retries.
        """
        if self.verify.load is None or self.verify.signals & set(_ANSWERED.values()):
            return
        held = _held(self.verify.load, {signal for signal, _ in levels})
        for key in [key for key in levels if key[0] in held]:
            answered, arrived = (_ANSWERED.get(key[0], ANSWERED), key[1]), found.values.get(key, math.inf)
            if answered in levels and answered in found.values:
                least = (1 - _ANSWERS_FALL) * min(levels[answered], arrived)
                expected = f"{answered[0]} > {1 - _ANSWERS_FALL:.2g} x before, or of {key[0]}"
                yield _compared(answered, levels, found.values, expected, partial(operator.lt, least))

    def _by_the_model(self, found: Observation, levels: SignalValues) -> Iterator[ConditionResult]:
        """Whether no more answers than before come from elsewhere: those are fast whatever the model does."""
        for key in [key for key in levels if key[0] in _OTHERWISE and key[0] not in self.verify.signals]:
            most = levels[key] + _OTHERWISE_RISES * levels.get((ANSWERED, key[1]), 0.0)
            expected = f"{key[0]} <= {show(key[0], most)}"
            yield _compared(key, levels, found.values, expected, partial(operator.ge, most))


def signals_compared(verify: Verify) -> frozenset[str]:
    """The signals whose levels before the change a proof needs."""
    repair = verify.repair.signals if verify.repair else frozenset[str]()
    return frozenset((*LOAD_KIND, *_ANSWERED.values(), *_OTHERWISE, *verify.signals, *repair))


@dataclass(frozen=True, slots=True)
class _Comparer:
    """Compares levels. A demanded improvement must be beyond chance, where there is a `shift` of the signal.

    A signal is compared with that of the same subject before: another one's value says nothing about the change.
    """

    levels: SignalValues
    shifts: Mapping[tuple[str, str], Shift] = field(default_factory=dict)
    chance: float = 1.0

    def __call__(self, comparison: Comparison, subject: str, facts: Facts) -> Truth:
        plain = evaluate(comparison, subject, facts)
        right = comparison.right
        if not (isinstance(right, Reference) and right.of == "before" and isinstance(comparison.left, SignalTerm)):
            return self._within_limit(comparison, subject, facts, plain)
        signal = comparison.left.signal
        owner = next((one for one in facts.evidence.lineage(subject) if (signal, one) in self.levels), None)
        if owner is None:
            return replace_fields(plain, status=UNKNOWN, unsettled=(f"{signal} of {subject} was not measured before",))
        moved = self.shifts.get((signal, owner))
        if plain.status == UNKNOWN or moved is None or not _demands_improvement(comparison):
            return plain
        return self._beyond_chance(plain, right.factor, moved)

    def _within_limit(self, comparison: Comparison, subject: str, facts: Facts, plain: Truth) -> Truth:
        """A level that is within a limit, such as the SLO, and was not before, has to have moved beyond chance too."""
        if plain.status != HOLDS or not isinstance(comparison.left, SignalTerm) or comparison.operator not in _ORDERED:
            return plain
        moved = self.shifts.get((comparison.left.signal, plain.atoms[0].subject))
        if moved is None or moved.p < self.chance:
            return plain
        origin = Origin("before")
        levels = tuple(Reading(*key, value, origin) for key, value in self.levels.items())
        then = replace(facts, evidence=replace_fields(facts.evidence, readings=levels))
        return plain if evaluate(comparison, subject, then).status == HOLDS else self._open(plain, moved)

    def _beyond_chance(self, plain: Truth, factor: float, moved: Shift) -> Truth:
        better = moved.factor < 1 if factor < 1 else moved.factor > 1
        enough = moved.least < factor if factor < 1 else moved.most > factor
        if not (better and enough):
            return replace_fields(plain, status=FAILS)
        return replace_fields(plain, status=HOLDS) if moved.p < self.chance else self._open(plain, moved)

    def _open(self, plain: Truth, moved: Shift) -> Truth:
        needed = f"p = {moved.p:.1g}, " + (
            f"required: below {self.chance:.1g}" if self.chance else "not decided in this window"
        )
        why = f"{plain.atoms[0].signal} is {moved.factor:.2g} x before, not yet beyond chance ({needed})"
        return replace_fields(plain, status=UNKNOWN, unsettled=(why,))


def _all_hold(results: Iterable[ConditionResult]) -> bool:
    return all(one.status == HOLDS for one in results)


def _demands_improvement(comparison: Comparison) -> bool:
    right = comparison.right
    if not (isinstance(right, Reference) and right.of == "before"):
        return False
    below = comparison.operator in ("<", "<=") and right.factor < 1
    return below or (comparison.operator in (">", ">=") and right.factor > 1)


def improved_signals(verify: Verify) -> frozenset[str]:
    """The signals that the change must improve; without one, all that its success depends on."""
    every = [one for condition in verify.succeed for one in comparisons(condition)]
    return frozenset(one.left.signal for one in ([one for one in every if _demands_improvement(one)] or every))


def _held(load: Condition, known: Set[str]) -> frozenset[str]:
    """The signals that say how much arrives: of alternatives the first that is known."""
    if isinstance(load, Prefer):
        first = frozenset(signals_of(load.first))
        return first if first <= known else _held(load.otherwise, known)
    return frozenset(signals_of(load))


def _not_less(key: tuple[str, str], before: SignalValues, after: SignalValues, share: float) -> ConditionResult:
    limit = (1 - share) * before[key]
    return _compared(key, before, after, f"{key[0]} > {1 - share:.2g} x before", lambda value: value > limit)


def _same_kind(key: tuple[str, str], before: SignalValues, after: SignalValues) -> ConditionResult:
    tolerance = _SAME_KIND * before[key]
    expected = f"{key[0]} within {_SAME_KIND:.0%} of before"
    return _compared(key, before, after, expected, lambda value: abs(value - before[key]) <= tolerance)


def _compared(
    key: tuple[str, str],
    before: SignalValues,
    after: SignalValues,
    expected: str,
    holds: Callable[[float], bool],
) -> ConditionResult:
    signal, subject = key
    value = after.get(key, math.nan)
    if not math.isfinite(value):
        return ConditionResult(expected, UNKNOWN, f"{signal} of {subject} was not measured")
    shown = f"{signal} is {show(signal, value)}, {show(signal, before[key])} before"
    if holds(value):
        return ConditionResult(expected, HOLDS, shown)
    return ConditionResult(expected, FAILS, f"{shown}, expected {expected.removeprefix(signal).lstrip()}")


def _status_at_best(load: Iterable[ConditionResult], success: Iterable[ConditionResult]) -> WindowStatus:
    """The status if nothing of `success` were open by chance: what is open then is unknown for another reason."""
    statuses = {one.status for one in success}
    if any(one.status != HOLDS for one in load) or UNKNOWN in statuses:
        return WindowStatus.INCONCLUSIVE
    return WindowStatus.FAILURE if FAILS in statuses else WindowStatus.UNPROVEN
