"""What a run sees: a look before the change, glances while a queue drains, then windows that have to prove it.

A look that shows nothing is no success, and by itself no reason to stop looking; several in a row are.
"""

from __future__ import annotations

from latdoctor.errors import LatdoctorError
from latdoctor.evidence.judging import HOLDS
from latdoctor.remedy import guards
from latdoctor.remedy.deadline import Deadline
from latdoctor.remedy.observation import Observation, judged
from latdoctor.remedy.playbook import Settle, Verify
from latdoctor.remedy.record import Recorder
from latdoctor.remedy.result import Outcome
from latdoctor.remedy.verifying import ABORT, FAILURE, INCONCLUSIVE, SUCCESS, Streak, window_of
from latdoctor.remedy.world import Stopped, World, beside

WINDOW = 5.0  # seconds of each look that verifies
GLANCE = 2.0  # seconds of each look while it settles
PATIENCE = 15.0  # seconds that a look may take beyond its window


class Failed(Exception):  # noqa: N818 - what happened; it never leaves this package
    """The run cannot go on; what it has changed is taken back."""

    def __init__(self, reason: str, outcome: Outcome = Outcome.FAILED) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome  # where nothing has been changed yet


class Watch:
    """The looks of one run. `last` is the latest of them that verified something, `streak` what they came to."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        self._world = world
        self._recorder = recorder
        self.last: Observation | None = None
        self.streak = Streak()

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

    def settled(self, settle: Settle, before: Observation) -> None:
        """Waits until the queue of the incident has drained, or no longer than the playbook says."""
        if settle.until is None:
            return
        until, settled = self.deadline(settle.at_most), False
        while until.left > 0 and not settled:
            settled = judged(settle.until, self.look(GLANCE), before.remembered).status == HOLDS
        self._recorder.note("settled", {"settled": settled})

    def verified(self, verify: Verify, before: Observation) -> None:
        """Raises Failed unless the change proves itself."""
        until, self.streak = self.deadline(verify.within), Streak()
        while self.streak.seconds < verify.hold:
            if until.left <= 0:
                raise Failed(_unproven(self.streak))
            try:
                seen = self.last = self.look(WINDOW)
            except LatdoctorError as error:  # a window without sight is no success, and no reason to stop looking
                self._recorder.note("verify.window", {"status": "unknown", "why": str(error)})
                self.streak = Streak()
                self._world.sleep(min(1.0, until.left))
                continue
            window = window_of(verify, seen, before.remembered)
            self._recorder.note("verify.window", window)
            self.streak = self.streak.with_window(window)
            if window.status == ABORT:
                raise Failed(f"stopped at once: {window.why}")

    def _why_stop(self) -> str:
        return self._world.stop() or guards.stopped(self._world.state)


def _unproven(streak: Streak) -> str:
    status, why = (streak.last.status, streak.last.why) if streak.last else (INCONCLUSIVE, "nothing was seen")
    told = {
        FAILURE: "it has not helped",
        INCONCLUSIVE: "it cannot be told whether it has helped",
        SUCCESS: "it has not been well for long enough",
    }
    return f"{told.get(status, 'it could not be verified')}: {why or 'the time was over'}"
