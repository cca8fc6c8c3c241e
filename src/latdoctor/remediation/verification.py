"""Whether a change has helped: window after window, until it has for long enough, or the time is over.

Three outcomes of one window. It speaks for the change only where all of it holds; a window in which something is
unknown, or in which the load moved, tells nothing and is no success.

Before the change several windows are seen, as long as each of those that verify, and the change has to beat every one
of them: what swings by itself was seen low as well as high, and its falling back from a peak proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace

from msgspec import Struct

from latdoctor.conditions.ast import AllOf, AnyOf, Comparison, Condition, Constant, Reference, SignalTerm
from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN
from latdoctor.detectors.quantiles import observation_shortfall
from latdoctor.errors import LatdoctorError
from latdoctor.remediation import guards
from latdoctor.remediation.change import Deadline
from latdoctor.remediation.measures import ALWAYS
from latdoctor.remediation.observation import (
    Judged,
    Observation,
    Remembered,
    any_holds,
    cleared,
    judged,
    signals_judged,
)
from latdoctor.remediation.playbook import Settle, Verify
from latdoctor.remediation.run_context import Recorder, Stopped, World, beside
from latdoctor.remediation.run_result import ABORT, FAILURE, INCONCLUSIVE, SUCCESS, Outcome

# A service that completes so many times as much as comes is working off what waits: it gets well without anybody's
# help, and P99 falls whatever is changed. Both count the same requests, so that chance moves the two alike.
_DRAINING = Comparison(
    SignalTerm("completion.rate"), ">", Reference("arrival.rate", 1.2), "completion.rate > 1.2 x arrival.rate"
)
Before = Sequence[Observation]  # the windows seen before the change, oldest first; at least one
Judge = Callable[[Condition, Observation, Remembered], Judged]
ONE_LOOK = 2.5  # seconds: half of a window, so that one is enough
NOT_WORSE = 1.2  # a stage may leave P99 at most this many times as high: what 5 s windows of one load differ by
STANDING, DRAINS = 10.0, 1.05  # so many that wait are a queue; completing that many times as much works it off
AS_MUCH = 0.8  # of what was completed before: the same, as far as 5 s windows of one load tell


class WindowSeen(Struct, frozen=True):
    """One window and what it says of the change. `started` and `ended` are unix seconds."""

    started: float
    ended: float
    status: str
    conditions: tuple[Judged, ...]

    @property
    def why(self) -> str:
        """What kept it from being a success."""
        return "; ".join(c.told for c in self.conditions if _against(c, self.status))


class Streak(Struct, frozen=True):
    """Successes without a break: since when they were watched, unix seconds; and the last window."""

    since: float | None = None  # None: the last window was no success
    last: WindowSeen | None = None

    def with_window(self, window: WindowSeen) -> Streak:
        if window.status != SUCCESS:
            return Streak(last=window)
        return Streak(window.started if self.since is None else self.since, window)

    @property
    def seconds(self) -> float:
        """How long it has been well."""
        return 0.0 if self.since is None or self.last is None else self.last.ended - self.since


def window_of(verify: Verify, observation: Observation, before: Before) -> WindowSeen:
    """What this look says of the change, next to the windows before it."""
    aborts = [against_each(condition, observation, before, any_holds) for condition in verify.abort]
    hit = tuple(one for one in aborts if one.status == HOLDS)
    if hit:
        return WindowSeen(observation.started, observation.ended, ABORT, hit)
    load = _load(verify, observation, before)
    wanted = [*_wanted(verify, observation, before)]
    if any(one.status != HOLDS for one in load) or any(one.status == UNKNOWN for one in wanted):
        status = INCONCLUSIVE
    else:
        status = SUCCESS if all(one.status == HOLDS for one in wanted) else FAILURE
    return WindowSeen(observation.started, observation.ended, status, (*load, *wanted))


def untold(verify: Verify, before: Before) -> tuple[str, ...]:
    """What could not be verified, as seen before anything is changed: what is unknown now would be afterwards. And why,
    where the evidence says so.
    """
    last = before[-1]
    judgements = (*_load(verify, last, before), *_wanted(verify, last, before))
    unknown = [one.told for one in judgements if one.status == UNKNOWN]
    wanted = {*signals_judged(verify.succeed if verify.load is None else (*verify.succeed, verify.load))}
    lasted = f"in a look of {last.ended - last.started:.0f} s"
    why = [f"{gap.message} ({lasted})" for gap in last.evidence.gaps if unknown and wanted.intersection(gap.signals)]
    return tuple(dict.fromkeys((*unknown, *why)))


def holds_already(verify: Verify, before: Before) -> str:
    """Why nothing could be proved: all that shall prove the change holds before it. Else empty."""
    wanted = list(_wanted(verify, before[-1], before))
    return "; ".join(one.told for one in wanted) if all(one.status == HOLDS for one in wanted) else ""


def well_by_itself(before: Before) -> str:
    """Why a change made now could not prove itself: what waited is being worked off already. Else empty.

    Where the page does not show it nothing is said: the load and the findings still judge.
    """
    found = any_holds(_DRAINING, before[-1], {})
    return found.shown if found.status == HOLDS else ""


def mended(verify: Verify, seen: Sequence[Observation]) -> bool:
    """Whether what a stage mends is not there: each finding that it would clear was looked for and always clear."""
    found = [cleared(finding, one) for finding in verify.mechanism for one in seen]
    return bool(found) and all(one.status == HOLDS for one in found)


def queued(seen: Observation) -> bool:
    """Whether a queue stands. Then a look of a few seconds just after a change is of what the change took out first."""
    return any_holds(_above("queue.depth", STANDING), seen, {}).status == HOLDS


def not_worse(verify: Verify) -> Verify:
    """How a stage of several proves itself: one look in which it has not made things worse.

    The whole must then succeed, and hold for as long as it says; what a stage waited longer for would be time in which
    the incident goes on.

    While a queue stands P99 is that of whoever has waited in it: it follows late, and rises with the queue's age
    whatever is changed. Then a stage is judged by what is completed, which is all that the service can: more than
    before, or as much where the queue has not grown.
    """
    as_much = AllOf(
        (
            _against_before("completion.rate", ">", AS_MUCH),
            _against_before("queue.depth", "<", NOT_WORSE),
        )
    )
    behind = AnyOf((_against_before("completion.rate", ">", DRAINS), as_much))
    standing = AllOf((_above("queue.depth", STANDING), behind))
    condition = AnyOf((_against_before("latency.p99", "<", NOT_WORSE), standing))
    return replace(verify, succeed=(condition,), mechanism=(), hold=min(verify.hold, ONE_LOOK))


def _against_before(signal: str, operator: str, times: float) -> Comparison:
    return Comparison(
        SignalTerm(signal), operator, Reference("before", times), f"{signal} {operator} {times:g} x before"
    )


def _above(signal: str, limit: float) -> Comparison:
    return Comparison(SignalTerm(signal), ">", Constant((limit,), f"{limit:g}"), f"{signal} > {limit:g}")


def against_each(condition: Condition, observation: Observation, before: Before, judge: Judge = judged) -> Judged:
    """It holds only where it does next to every window before: a change has to beat the best of them."""
    return _first((FAILS, UNKNOWN, HOLDS), (judge(condition, observation, one.remembered) for one in before))


def _load(verify: Verify, observation: Observation, before: Before) -> list[Judged]:
    """The load is like before where it is like one of the windows before: it swings by chance as well."""
    if verify.load is None:
        return []
    found = (judged(verify.load, observation, one.remembered) for one in before)
    return [_first((HOLDS, UNKNOWN, FAILS), found)]


def _wanted(verify: Verify, observation: Observation, before: Before) -> Iterator[Judged]:
    yield from (against_each(condition, observation, before) for condition in verify.succeed)
    yield from (cleared(finding, observation) for finding in verify.mechanism)


def _first(statuses: Sequence[str], found: Iterable[Judged]) -> Judged:
    """The judgement whose status comes first in `statuses`."""
    return min(found, key=lambda one: statuses.index(one.status))


def _against(judgement: Judged, status: str) -> bool:
    return (judgement.status == HOLDS) is (status == ABORT)


WINDOW = 5.0  # seconds of each look that verifies, where so many are answered that it tells what has to be proved
LONGEST = 20.0  # seconds of each where fewer are: a P99 needs a hundred answers, and a slow service gives few
SPARE = 1.25  # times as many answers as are needed: they do not come evenly, and each look has to have enough
GLANCE = 2.0  # seconds of each look while it settles
PATIENCE = 15.0  # seconds that a look may take beyond its window
BLIND = 3  # looks in a row that show nothing, and as long as so many windows: then there is nothing to wait for


class Failed(Exception):  # noqa: N818 - what happened; it never leaves this package
    """The run cannot go on; what it has changed is taken back."""

    def __init__(self, reason: str, outcome: Outcome = Outcome.FAILED, next_step: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome  # where nothing has been changed yet
        self.next_step = next_step  # likewise


class Watch:
    """The looks of one run. `last` is the latest of them that verified something, `streak` what they came to, `window`
    how many seconds each of them lasts.
    """

    def __init__(self, world: World, recorder: Recorder) -> None:
        self._world = world
        self._recorder = recorder
        self.last: Observation | None = None
        self.streak = Streak()
        self.window = WINDOW
        self._blind: list[float] = []  # when the looks began that have shown nothing since one did

    def look(self, seconds: float) -> Observation:
        """Raises Stopped, and LatdoctorError where nothing can be seen."""
        self.must_go_on()
        seen = beside(lambda: self._world.observe(seconds), seconds + PATIENCE, self._why_stop)
        self.must_go_on()
        return seen

    def must_go_on(self) -> None:
        """Raises Stopped."""
        if why := self._why_stop():
            raise Stopped(why)

    def deadline(self, seconds: float) -> Deadline:
        return Deadline.after(seconds, self._world.clock, self._world.sleep)

    def deadline_unless_stopped(self, seconds: float) -> Deadline:
        """One that is over at once where the run shall end: whoever keeps to it need not be left behind."""
        return replace(self.deadline(seconds), stop=self._why_stop)

    def before(self, seconds: float, verify: Verify) -> Before:
        """As many windows before the change as fit into `seconds`, at least one. Raises as a look does.

        Where so few are answered that they would not tell what has to be proved, all are longer, and so are those that
        verify; and longer again where still fewer are, as a queue grows. What no window would tell is left unknown.
        """
        many, judged = max(1, int(seconds // WINDOW)), signals_judged(verify.succeed)
        usual = lasted = min(WINDOW, seconds)
        looks: list[Observation] = []
        while len(looks) < many:
            looks.append(self.look(lasted))
            longer = _long_enough(lasted, usual, observation_shortfall(looks[-1].evidence, judged))
            if longer > lasted:
                self._recorder.note("before.longer", {"seconds": longer, "usual": usual})
                self.window = lasted = longer
                looks.clear()
        return looks

    def settled(self, settle: Settle, before: Before) -> None:
        """Waits until the queue of the incident has drained, or no longer than the playbook says."""
        if settle.until is None:
            return
        until, settled, wanted = self.deadline(settle.at_most), False, _pains([settle.until], before)
        while until.left > 0 and not settled:
            seen = self._seen(GLANCE, until, wanted)
            settled = seen is not None and against_each(settle.until, seen, before).status == HOLDS
        self._recorder.note("settled", {"settled": settled})

    def verified(self, verify: Verify, before: Before) -> None:
        """Raises Failed unless the change proves itself."""
        until, self.streak = self.deadline(verify.within), Streak()
        wanted = _pains(verify.succeed if verify.load is None else (*verify.succeed, verify.load), before)
        while self.streak.seconds < verify.hold:
            if until.left <= 0:
                raise Failed(_unproven(self.streak))
            seen = self._seen(self.window, until, wanted)
            if seen is None:
                self.streak = Streak()
                continue
            self.last = seen
            window = window_of(verify, seen, before)
            self._recorder.note("verify.window", window)
            self.streak = self.streak.with_window(window)
            if window.status == ABORT:
                raise Failed(f"stopped at once: {window.why}")

    def _seen(self, seconds: float, until: Deadline, wanted: Set[str]) -> Observation | None:
        """A look; None where it shows nothing of `wanted`. Raises Failed once that has gone on for too long."""
        began = self._world.clock()
        try:
            seen = self.look(seconds)
            why = "" if wanted & _signals(seen) else _why_nothing(seen)
        except LatdoctorError as error:
            why = str(error)
        if not why:
            self._blind.clear()
            return seen
        self._recorder.note("verify.window", {"status": "unknown", "why": why})
        self._world.sleep(min(1.0, until.left))
        self._blind.append(began)
        if len(self._blind) >= BLIND and self._world.clock() - self._blind[0] >= BLIND * WINDOW:
            raise Failed(f"nothing was seen {len(self._blind)} times in a row: {why}")
        return None

    def _why_stop(self) -> str:
        return self._world.stop() or guards.stopped(self._world.state)


def _long_enough(lasted: float, usual: float, times: float) -> float:
    """How many seconds a look has to take, where one of `lasted` would have told all with `times` as many answers.

    `lasted` where longer ones are not needed or would not tell it either.
    """
    spared = math.ceil(lasted * times * SPARE)
    if lasted > usual:
        return min(spared, LONGEST) if times > 1 else lasted
    return max(WINDOW, spared) if lasted < spared <= LONGEST else lasted


def _pains(conditions: Iterable[Condition], before: Before) -> Set[str]:
    """What the last look before has shown of the conditions and of the usual pains: a page without it is none."""
    return _signals(before[-1]) & {*ALWAYS, *signals_judged(conditions)}


def _signals(seen: Observation) -> Set[str]:
    return {signal for signal, _ in seen.remembered}


def _why_nothing(seen: Observation) -> str:
    gaps = seen.evidence.gaps
    return gaps[0].reason if gaps else "nothing is shown of what was seen before"


def _unproven(streak: Streak) -> str:
    status, why = (streak.last.status, streak.last.why) if streak.last else (INCONCLUSIVE, "nothing was seen")
    known = {
        FAILURE: "it has not helped",
        INCONCLUSIVE: "it cannot be told whether it has helped",
        SUCCESS: "it has not been well for long enough",
    }
    return f"{known.get(status, 'it could not be verified')}: {why or 'the time was over'}"
