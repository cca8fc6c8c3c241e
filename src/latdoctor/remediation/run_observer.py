"""Observations during a run: before a change, while it settles, and until it is proven or the time is over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

import msgspec

from latdoctor.conditions.ast import Condition, signals_of
from latdoctor.conditions.evaluator import HOLDS
from latdoctor.detectors.quantiles import observation_shortfall
from latdoctor.errors import LatdoctorError
from latdoctor.remediation import guards
from latdoctor.remediation.change import Deadline
from latdoctor.remediation.history import History
from latdoctor.remediation.levels import levels_before
from latdoctor.remediation.observation import Observation, left_signals
from latdoctor.remediation.playbook import Settle, Verify
from latdoctor.remediation.proof import FEW, Proof, Schedule, signals_compared
from latdoctor.remediation.repair import broken_before
from latdoctor.remediation.run_context import RunContext, RunJournal, Stopped, call_with_timeout
from latdoctor.remediation.run_result import PAIN_SIGNALS, Outcome, Reason, WindowResult, WindowStatus
from latdoctor.remediation.verification import (
    Before,
    draining,
    evaluate_against,
    evaluate_window,
    falling,
    find_abort,
    recovering,
)

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


class ProofPending(Exception):  # noqa: N818 - an event; it never leaves this package
    """A change looks as good as demanded, and the run has no time left to prove it."""

    def __init__(self, proof: Proof, reason: str, windows: Sequence[Observation]) -> None:
        super().__init__(reason)
        self.proof = proof
        self.windows = windows  # since the change
        self.reason = reason


class RunObserver:
    """The observations of one run. `last` is the latest that verified something, `result` what it showed, `window` the
    length of each in seconds, `history` what a source remembers of the time before.
    """

    def __init__(self, context: RunContext, journal: RunJournal, window: float = WINDOW) -> None:
        self._context = context
        self._journal = journal
        self.last: Observation | None = None
        self.result: WindowResult | None = None
        self.window = window
        self.history = History()
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
        self.history = self._context.history(length).named_as(windows[-1].values)
        self._journal.append("before.history", {"seconds": self.history.seconds, "source": self.history.source})
        self.window = max(self.window, self.history.step)
        if not self.remembers:  # a level that falls by itself is none to compare with
            for _ in range(count):
                if not self.recovering(verify, windows[-count:]):
                    break
                windows.append(self.observe(length))
        return windows[-count:]

    @property
    def remembers(self) -> bool:
        """Whether the history is long enough to tell a change of level from what a service does by itself."""
        return self.history.seconds >= FEW

    def recovering(self, verify: Verify, before: Before) -> str:
        """Why the service is recovering without a change, so that none could be verified. Else empty."""
        if self.remembers:
            return recovering(before)
        return recovering(before) or draining(before) or falling(verify, before)

    def settle(self, settle: Settle, before: Before) -> None:
        """Wait until the queue of the incident has drained, at most as long as the playbook allows."""
        if settle.until is None:
            return
        deadline, settled, signals = self.deadline(settle.at_most), False, _known_signals([settle.until], before)
        while deadline.left > 0 and not settled:
            found = self._observe_data(_SETTLE_WINDOW, deadline, signals)
            settled = found is not None and evaluate_against(settle.until, found, before).status == HOLDS
        self._journal.append("settled", {"settled": settled})

    def verify_stage(self, verify: Verify, before: Before) -> None:
        """Wait for one window that succeeds. Raises RunFailed without one in time."""
        deadline, signals = self.deadline(verify.within), _needed_signals(verify, before)
        while True:
            if deadline.left <= 0:
                raise RunFailed(*_unverified(self.result))
            found = self._observe_data(self.window, deadline, signals)
            if found is None:
                continue
            self._record(found, evaluate_window(verify, found, before), deadline)
            if self._succeeded:
                return

    def hold(self, verify: Verify, before: Before) -> None:
        """Observe until nothing has been worse than before for all of `hold`. Raises RunFailed where that is not so.

        For a change that prepares: there is nothing yet that it could improve, and the load may rise meanwhile.
        """
        deadline, signals = self.deadline(verify.within), _needed_signals(verify, before)
        since: float | None = None  # start of the first of the latest windows, all of which succeeded
        while since is None or self.last is None or self.last.ended - since < verify.hold:
            if deadline.left <= 0:
                raise RunFailed(*_not_as_before(self.result))
            found = self._observe_data(self.window, deadline, signals)
            if found is None:
                since = None
                continue
            self._record(found, evaluate_window(verify, found, before), deadline)
            since = None if not self._succeeded else found.started if since is None else since

    def prove(self, verify: Verify, before: Before, *, replaces_process: bool) -> None:
        """Observe until the change is proven. Raises RunFailed, and ProofPending where that needs more time."""
        load = () if verify.load is None else signals_of(verify.load)
        levels = levels_before(before, self.history, signals_compared(verify), self.window, load)
        pages = None if replaces_process else before[-1].pages
        now, later = Schedule.of_run(verify, levels, self.window)
        proof = Proof(verify, levels, now, pages, broken_before(verify.repair, before))
        windows = self._until_proven(proof, self.deadline(verify.within), before, ())
        if self.result is not None and self.result.status == WindowStatus.UNPROVEN:
            raise ProofPending(replace(proof, schedule=later), self.result.reason, windows)
        if not self._succeeded:
            raise RunFailed(*_unverified(self.result))

    def prove_later(self, proof: Proof, before: Before, seconds: float, windows: Sequence[Observation] = ()) -> None:
        """Go on with a pending proof for so many seconds. Raises RunFailed unless the change is proven.

        `windows`: those since the change, where this process has observed them.
        """
        self.result = None
        self._until_proven(proof, self.deadline(seconds), before, windows)
        if not self._succeeded:
            raise RunFailed(*_unverified(self.result))

    @property
    def _succeeded(self) -> bool:
        return self.result is not None and self.result.status == WindowStatus.SUCCESS

    def _until_proven(
        self, proof: Proof, deadline: Deadline, before: Before, earlier: Sequence[Observation]
    ) -> Sequence[Observation]:
        """Look window after window until the change is proven or the deadline, and return the windows.

        After a window without data they begin anew.
        """
        windows = list(earlier)
        signals = _needed_signals(proof.verify, before)
        while deadline.left > 0:
            found = self._observe_data(self.window, deadline, signals)
            if found is None:
                windows.clear()
                continue
            windows.append(found)
            self._record(found, find_abort(proof.verify, found, before) or proof.look(windows), deadline)
            if self._succeeded:
                break
        return windows

    def _record(self, found: Observation, result: WindowResult, deadline: Deadline) -> None:
        """Raises RunFailed for one that aborts."""
        self.last, self.result = found, result
        until = self._context.now() + deadline.left  # when the run decides without a proof
        self._journal.append("verify.window", {**msgspec.to_builtins(result), "until": until})
        if result.status == WindowStatus.ABORT:
            raise RunFailed(Reason.ABORT_CONDITION, f"abort condition: {result.reason}")

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


def _needed_signals(verify: Verify, before: Before) -> Set[str]:
    return _known_signals(verify.succeed if verify.load is None else (*verify.succeed, verify.load), before)


def _not_as_before(result: WindowResult | None) -> tuple[Reason, str]:
    if result is None or result.status != WindowStatus.FAILURE:
        return _unverified(result)
    return Reason.WORSE, f"worse than before: {result.reason}"


def _unverified(result: WindowResult | None) -> tuple[Reason, str]:
    if result is None:
        return Reason.NOT_OBSERVED, "not verified: no data after the change"
    code, text = {
        WindowStatus.FAILURE: (Reason.NO_IMPROVEMENT, "no improvement"),
        WindowStatus.UNPROVEN: (Reason.UNPROVEN, "improved, but not beyond chance"),
    }.get(result.status, (Reason.INCONCLUSIVE, "inconclusive"))
    return code, f"{text}: {result.reason or 'the time is over'}"
