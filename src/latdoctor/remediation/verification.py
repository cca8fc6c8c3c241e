"""Verification of a change: observe window after window until it has succeeded for long enough or the time is over.

A window counts as a success only if all conditions hold. A window with an unknown condition, or under another load, is
inconclusive and no success. Several windows of the same length are observed before the change, and the change must beat
every one of them: a signal that fluctuates, or falls back from a peak, verifies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from latdoctor.conditions.ast import AllOf, AnyOf, Comparison, Condition, Constant, Reference, SignalTerm
from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN
from latdoctor.detectors.quantiles import observation_shortfall
from latdoctor.errors import LatdoctorError
from latdoctor.remediation import guards
from latdoctor.remediation.change import Deadline
from latdoctor.remediation.observation import (
    ConditionResult,
    Observation,
    SignalValues,
    evaluate_all,
    evaluate_any,
    evaluate_cleared,
    evaluate_mechanism,
    left_signals,
)
from latdoctor.remediation.playbook import Settle, Verify
from latdoctor.remediation.run_context import RunContext, RunJournal, Stopped, call_with_timeout
from latdoctor.remediation.run_result import PAIN_SIGNALS, Outcome, Reason, WindowStatus

# A service that completes so much more than arrives is draining its queue: P99 falls whatever is changed. Both rates
# count the same requests, so that chance affects them alike.
_DRAINING = Comparison(
    SignalTerm("completion.rate"), ">", Reference("arrival.rate", 1.2), "completion.rate > 1.2 x arrival.rate"
)
Before = Sequence[Observation]  # the windows before the change, oldest first; at least one
Evaluate = Callable[[Condition, Observation, SignalValues], ConditionResult]
_STRICTEST = (FAILS, UNKNOWN, HOLDS)
_STAGE_HOLD = 2.5  # seconds: half of a window, so that one window suffices
_NOT_WORSE = 1.2  # the factor by which P99 of 5 s windows differs under one load; a stage may raise it by that much
_QUEUE, _DRAINS = 10.0, 1.05  # waiting requests that make a queue; completion rate factor that drains it
_SAME_COMPLETIONS = 0.8  # the factor by which the completion rate of 5 s windows differs under one load


class WindowResult(Struct, frozen=True):
    """One window and its result. `started` and `ended` in unix seconds."""

    started: float
    ended: float
    status: WindowStatus
    conditions: tuple[ConditionResult, ...]

    @property
    def reason(self) -> str:
        """The conditions because of which it is not a success."""
        aborted = self.status == WindowStatus.ABORT
        return "; ".join(one.summary for one in self.conditions if (one.status == HOLDS) is aborted)


class Streak(Struct, frozen=True):
    """Consecutive successes: the start of the first one in unix seconds, and the last window."""

    since: float | None = None  # None: the last window was no success
    last: WindowResult | None = None

    def with_window(self, window: WindowResult) -> Streak:
        if window.status != WindowStatus.SUCCESS:
            return Streak(last=window)
        return Streak(window.started if self.since is None else self.since, window)

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None or self.last is None else self.last.ended - self.since


def evaluate_window(verify: Verify, observation: Observation, before: Before) -> WindowResult:
    """Compare an observation after the change with the windows before it."""
    aborts = [evaluate_against(condition, observation, before, evaluate_any) for condition in verify.abort]
    aborting = tuple(one for one in aborts if one.status == HOLDS)
    if aborting:
        return WindowResult(observation.started, observation.ended, WindowStatus.ABORT, aborting)
    load = _load_results(verify, observation, before)
    success = [*_success_results(verify, observation, before)]
    if any(one.status != HOLDS for one in load) or any(one.status == UNKNOWN for one in success):
        status = WindowStatus.INCONCLUSIVE
    else:
        status = WindowStatus.SUCCESS if all(one.status == HOLDS for one in success) else WindowStatus.FAILURE
    return WindowResult(observation.started, observation.ended, status, (*load, *success))


def unverifiable(verify: Verify, before: Before) -> tuple[str, ...]:
    """The conditions that are unknown before the change and would be unknown after it, with reasons of the evidence."""
    last = before[-1]
    results = (*_load_results(verify, last, before), *_success_results(verify, last, before))
    unknown = [one.summary for one in results if one.status == UNKNOWN]
    signals = {*left_signals(verify.succeed if verify.load is None else (*verify.succeed, verify.load))}
    length = f"observed for {last.ended - last.started:.0f} s"
    why = [f"{gap.message} ({length})" for gap in last.evidence.gaps if unknown and signals.intersection(gap.signals)]
    return tuple(dict.fromkeys((*unknown, *why)))


def already_met(verify: Verify, before: Before) -> str:
    """The conditions of success if all of them hold before the change, which could then not be verified. Else empty."""
    results = list(_success_results(verify, before[-1], before))
    return "; ".join(one.summary for one in results) if all(one.status == HOLDS for one in results) else ""


def recovering(before: Before) -> str:
    """The rates if the service drains its queue already: a change could not be verified. Else empty.

    Empty too if the rates are unknown; load and findings still decide.
    """
    result = evaluate_any(_DRAINING, before[-1], {})
    return result.shown if result.status == HOLDS else ""


def cause_absent(verify: Verify, observations: Sequence[Observation]) -> bool:
    """Whether each finding that the change should clear was evaluated and is clear already."""
    found = [evaluate_cleared(finding, one) for finding in verify.cleared_findings for one in observations]
    return bool(found) and all(one.status == HOLDS for one in found)


def has_queue(observation: Observation) -> bool:
    """Whether requests queue. A window just after a change then consists of the requests that it released first."""
    return evaluate_any(_above("queue.depth", _QUEUE), observation, {}).status == HOLDS


def stage_verification(verify: Verify) -> Verify:
    """The verification of one of several stages: one window in which it has not made things worse.

    The whole must then succeed for as long as the playbook requires; waiting longer for a stage would extend the
    incident.

    While requests queue, P99 is the waiting time: it reacts late, and rises with the age of the queue whatever is
    changed. A stage is then judged by the completion rate, the service's capacity: it must rise, or stay while the
    queue does not grow.
    """
    stays = AllOf(
        (
            _versus_before("completion.rate", ">", _SAME_COMPLETIONS),
            _versus_before("queue.depth", "<", _NOT_WORSE),
        )
    )
    rises = _versus_before("completion.rate", ">", _DRAINS)
    queueing = AllOf((_above("queue.depth", _QUEUE), AnyOf((rises, stays))))
    condition = AnyOf((_versus_before("latency.p99", "<", _NOT_WORSE), queueing))
    return replace(verify, succeed=(condition,), mechanism=(), hold=min(verify.hold, _STAGE_HOLD))


def _versus_before(signal: str, operator: str, factor: float) -> Comparison:
    text = f"{signal} {operator} {factor:g} x before"
    return Comparison(SignalTerm(signal), operator, Reference("before", factor), text)


def _above(signal: str, limit: float) -> Comparison:
    return Comparison(SignalTerm(signal), ">", Constant((limit,), f"{limit:g}"), f"{signal} > {limit:g}")


def evaluate_against(
    condition: Condition, observation: Observation, before: Before, evaluate: Evaluate = evaluate_all
) -> ConditionResult:
    """Holds only if it holds in comparison with every window before the change."""
    return _first(_STRICTEST, (evaluate(condition, observation, one.values) for one in before))


def _load_results(verify: Verify, observation: Observation, before: Before) -> list[ConditionResult]:
    """The load is unchanged if it is like that of one window before: load fluctuates too."""
    if verify.load is None:
        return []
    found = (evaluate_all(verify.load, observation, one.values) for one in before)
    return [_first((HOLDS, UNKNOWN, FAILS), found)]


def _success_results(verify: Verify, observation: Observation, before: Before) -> Iterator[ConditionResult]:
    yield from (evaluate_against(condition, observation, before) for condition in verify.succeed)
    for item in verify.mechanism:
        yield _first(_STRICTEST, (evaluate_mechanism(item, observation, one.values) for one in before))


def _first(precedence: Sequence[str], results: Iterable[ConditionResult]) -> ConditionResult:
    """The result whose status comes first in `precedence`."""
    return min(results, key=lambda one: precedence.index(one.status))


WINDOW = 5.0  # seconds of an observation, if enough requests are answered in it
MAX_WINDOW = 20.0  # seconds otherwise: a P99 needs a hundred answers, and a slow service gives few
_MARGIN = 1.25  # factor on the answers that a window needs: they do not arrive evenly
_SETTLE_WINDOW = 2.0  # seconds
_OBSERVATION_GRACE = 15.0  # seconds that an observation may take beyond its window
_MAX_EMPTY = 3  # consecutive observations without data, over as many windows, end the run


class RunFailed(Exception):  # noqa: N818 - an event; it never leaves this package
    """The run cannot continue; its changes are undone. `outcome` and `next_step` apply if nothing was changed."""

    def __init__(self, code: Reason, reason: str, outcome: Outcome = Outcome.FAILED, next_step: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.outcome = outcome
        self.next_step = next_step


class RunObserver:
    """The observations of one run. `last` is the latest that verified something, `streak` their successes, `window`
    the length of each in seconds.
    """

    def __init__(self, context: RunContext, journal: RunJournal) -> None:
        self._context = context
        self._journal = journal
        self.last: Observation | None = None
        self.streak = Streak()
        self.window = WINDOW
        self._empty_since: list[float] = []  # starts of the observations without data since the last one with data

    def observe(self, seconds: float) -> Observation:
        """Raises Stopped, and LatdoctorError if no source can be read."""
        self.check_stop()
        found = call_with_timeout(
            lambda: self._context.observe(seconds), seconds + _OBSERVATION_GRACE, self._stop_reason
        )
        self.check_stop()
        return found

    def check_stop(self) -> None:
        """Raises Stopped."""
        if why := self._stop_reason():
            raise Stopped(why)

    def deadline(self, seconds: float) -> Deadline:
        return Deadline.after(seconds, self._context.clock, self._context.sleep)

    def stoppable_deadline(self, seconds: float) -> Deadline:
        """A deadline that passes at once if the run must stop."""
        deadline = self.deadline(seconds)
        return Deadline(deadline.at, deadline.clock, deadline.sleep, self._stop_reason)

    def observe_before(self, seconds: float, verify: Verify) -> Before:
        """As many windows before the change as fit into `seconds`, at least one. Raises as `observe` does.

        If too few requests are answered for the quantiles of `verify`, all windows are made longer, those after the
        change too, and again if the rate falls further. A quantile that needs more than MAX_WINDOW stays unknown.
        """
        count, signals = max(1, int(seconds // WINDOW)), left_signals(verify.succeed)
        usual = length = min(WINDOW, seconds)
        windows: list[Observation] = []
        while len(windows) < count:
            windows.append(self.observe(length))
            longer = _required_length(length, usual, observation_shortfall(windows[-1].evidence, signals))
            if longer > length:
                self._journal.append("before.longer", {"seconds": longer, "usual": usual})
                self.window = length = longer
                windows.clear()
        return windows

    def settle(self, settle: Settle, before: Before) -> None:
        """Wait until the queue of the incident has drained, at most as long as the playbook allows."""
        if settle.until is None:
            return
        deadline, settled, signals = self.deadline(settle.at_most), False, _known_signals([settle.until], before)
        while deadline.left > 0 and not settled:
            found = self._observe_data(_SETTLE_WINDOW, deadline, signals)
            settled = found is not None and evaluate_against(settle.until, found, before).status == HOLDS
        self._journal.append("settled", {"settled": settled})

    def verify(self, verify: Verify, before: Before) -> None:
        """Raises RunFailed unless the change verifies."""
        deadline, self.streak = self.deadline(verify.within), Streak()
        signals = _known_signals(verify.succeed if verify.load is None else (*verify.succeed, verify.load), before)
        while self.streak.seconds < verify.hold:
            if deadline.left <= 0:
                raise RunFailed(*_unverified(self.streak))
            found = self._observe_data(self.window, deadline, signals)
            if found is None:
                self.streak = Streak()
                continue
            self.last = found
            window = evaluate_window(verify, found, before)
            self._journal.append("verify.window", window)
            self.streak = self.streak.with_window(window)
            if window.status == WindowStatus.ABORT:
                raise RunFailed(Reason.ABORT_CONDITION, f"abort condition: {window.reason}")

    def _observe_data(self, seconds: float, deadline: Deadline, signals: Set[str]) -> Observation | None:
        """An observation; None without any of `signals`. Raises RunFailed after too many of these."""
        started = self._context.clock()
        try:
            found = self.observe(seconds)
            why = "" if signals & _signals(found) else _no_data_reason(found)
        except LatdoctorError as error:
            why = str(error)
        if not why:
            self._empty_since.clear()
            return found
        self._journal.append("verify.window", {"status": WindowStatus.UNKNOWN, "why": why})
        self._context.sleep(min(1.0, deadline.left))
        self._empty_since.append(started)
        count = len(self._empty_since)
        if count >= _MAX_EMPTY and self._context.clock() - self._empty_since[0] >= _MAX_EMPTY * WINDOW:
            raise RunFailed(Reason.NOT_OBSERVED, f"{count} consecutive observations without data: {why}")
        return None

    def _stop_reason(self) -> str:
        return self._context.stop_reason() or guards.kill_switch_reason(self._context.state)


def _required_length(length: float, usual: float, shortfall: float) -> float:
    """The length in seconds of a window with enough answers, if one of `length` needs `shortfall` times as many.

    `length` if it suffices, or if even MAX_WINDOW would not.
    """
    needed = math.ceil(length * shortfall * _MARGIN)
    if length > usual:
        return min(needed, MAX_WINDOW) if shortfall > 1 else length
    return max(WINDOW, needed) if length < needed <= MAX_WINDOW else length


def _known_signals(conditions: Iterable[Condition], before: Before) -> Set[str]:
    """The signals of the conditions and PAIN_SIGNALS in the last window before; an observation without any is empty."""
    return _signals(before[-1]) & {*PAIN_SIGNALS, *left_signals(conditions)}


def _signals(observation: Observation) -> Set[str]:
    return {signal for signal, _ in observation.values}


def _no_data_reason(observation: Observation) -> str:
    gaps = observation.evidence.gaps
    return gaps[0].message if gaps else "none of the signals from before the change is present"


def _unverified(streak: Streak) -> tuple[Reason, str]:
    if streak.last is None:
        return Reason.NOT_OBSERVED, "not verified: no data after the change"
    code, text = {
        WindowStatus.FAILURE: (Reason.NO_IMPROVEMENT, "no improvement"),
        WindowStatus.INCONCLUSIVE: (Reason.INCONCLUSIVE, "inconclusive"),
        WindowStatus.SUCCESS: (Reason.NOT_SUSTAINED, "the improvement was not sustained for long enough"),
    }[streak.last.status]
    return code, f"{text}: {streak.last.reason or 'the time is over'}"
