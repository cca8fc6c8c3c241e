"""What a run sees: windows before the change, glances while a queue drains, then windows that have to prove it.

A look that shows nothing is no success, and by itself no reason to stop looking; several in a row are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import replace

from latdoctor.detect.quantiles import times_as_many
from latdoctor.errors import LatdoctorError
from latdoctor.evidence.conditions import Condition
from latdoctor.evidence.judging import HOLDS
from latdoctor.remedy import guards
from latdoctor.remedy.deadline import Deadline
from latdoctor.remedy.observation import Observation, signals_judged
from latdoctor.remedy.playbook import Settle, Verify
from latdoctor.remedy.record import Recorder
from latdoctor.remedy.result import Outcome
from latdoctor.remedy.table import ALWAYS
from latdoctor.remedy.verifying import ABORT, FAILURE, INCONCLUSIVE, SUCCESS, Before, Streak, against_each, window_of
from latdoctor.remedy.world import Stopped, World, beside

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
            longer = _long_enough(lasted, usual, times_as_many(looks[-1].evidence, judged))
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
    told = {
        FAILURE: "it has not helped",
        INCONCLUSIVE: "it cannot be told whether it has helped",
        SUCCESS: "it has not been well for long enough",
    }
    return f"{told.get(status, 'it could not be verified')}: {why or 'the time was over'}"
