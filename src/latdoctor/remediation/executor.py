"""A run: guard, watch, change, settle, verify; keep it, or take it back. Everything is journaled before it is done.

What a run promises, and which test holds it to that: docs/remediation.md.
"""

from __future__ import annotations

import datetime
import os
import secrets
import shlex

from latdoctor.conditions.evaluator import FAILS, HOLDS
from latdoctor.errors import LatdoctorError
from latdoctor.journal.locks import LockHeldError, lock
from latdoctor.journal.state_dir import LOCKS, RUNS
from latdoctor.remediation import guards, run_history
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import ChangeState, Conflict, Contended, Refused, Unreachable, ensure
from latdoctor.remediation.drift_check import READING, lost
from latdoctor.remediation.measures import measures
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_loader import Library
from latdoctor.remediation.rollback import Back, take_back
from latdoctor.remediation.run_context import Recorder, Stopped, World
from latdoctor.remediation.run_history import Closed, Opened, Touched
from latdoctor.remediation.run_result import Measure, Outcome, Result
from latdoctor.remediation.verification import (
    Before,
    Failed,
    Watch,
    against_each,
    holds_already,
    mended,
    not_worse,
    queued,
    untold,
    well_by_itself,
)

STEP = 60.0  # seconds for one change: a replica that is replaced first ends what it has begun


def carry_out(plan: Plan, library: Library, world: World) -> Result:
    """Executes `plan` on its target. Every way out leaves the target as before, or as after and verified, or says so.

    Raises JournalError where nothing could be journaled; then nothing was changed.
    """
    name = _name(world.now())
    world.begun(name)
    recorder = Recorder(world.journal, name, world.tell)
    playbook = library.find(plan.playbook)
    try:
        with lock(world.state / LOCKS, plan.target.key, name):
            refusal = guards.first(_scene(plan, playbook, world))
            if refusal:
                return _refused(recorder, refusal.guard, refusal.reason, refusal.next_step)
            recorder.note("run.opened", Opened(plan, plan.digest, os.getpid()))
            return _Run(plan, playbook, library, world, recorder).whole()
    except LockHeldError as busy:
        return _refused(recorder, "lock", busy.what, busy.next_step)


def _name(now: float) -> str:
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return f"{at:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _scene(plan: Plan, playbook: Playbook, world: World) -> guards.Scene:
    entries = world.journal.entries()
    return guards.Scene(
        plan=plan,
        playbook=playbook,
        access=world.access,
        runs=run_history.runs(entries),
        reset_at=run_history.last_reset(entries),
        state=world.state,
        now=world.now(),
        approved=world.approved,
        procedure=world.procedure,
    )


def _refused(recorder: Recorder, guard: str, reason: str, next_step: str) -> Result:
    recorder.note("run.refused", {"guard": guard, "reason": reason})
    return Result(recorder.run, Outcome.REFUSED, reason, next_step)


class _Run:
    """One run on one target, under its lock."""

    def __init__(self, plan: Plan, playbook: Playbook, library: Library, world: World, recorder: Recorder) -> None:
        self._plan = plan
        self._playbook = playbook
        self._library = library
        self._world = world
        self._recorder = recorder
        self._began = world.clock()
        self._touched: list[Touched] = []
        self._stays: list[Touched] = []  # changes of verified stages, which stay where a later stage fails
        self._before: Before = ()
        self._watch = Watch(world, recorder)

    def whole(self) -> Result:
        try:
            before = self._watched_before()
            for number, stage in enumerate(self._plan.stages):
                self._stage(number, self._library.find(stage.playbook))
            if self._playbook.stages:
                self._stays.clear()
                self._watch.settled(self._playbook.settle, before)
                self._watch.verified(self._playbook.verify, before)
                self._must_have_lasted()
            self._recorder.note("verify.passed", {"measures": self._measures()})
        except Failed as failed:
            return self._given_up(failed.reason, failed.outcome, failed.next_step)
        except Stopped as stopped:
            self._stays.clear()
            return self._given_up(f"stopped: {stopped}", Outcome.FAILED, asked=True)
        except LatdoctorError as error:
            self._stays.clear()
            return self._given_up(str(error), Outcome.FAILED)
        except Exception as error:  # a mistake of ours: nothing stays half done for it, and it is still told
            self._stays.clear()
            self._given_up(f"a defect in latdoctor: {type(error).__name__}", Outcome.FAILED)
            raise
        return self._closed(Outcome.VERIFIED, "verified")

    def _watched_before(self) -> Before:
        """The windows before the change, the last kept as a bundle. What is unknown in it refuses the run."""
        before = self._before = self._watch.before(self._playbook.before, self._playbook.verify)
        last, look = before[-1], ""
        if last.bundle is not None:
            path = self._world.state / RUNS / self._recorder.run / "before.tar.zst"
            self._world.keep(last.bundle, path)
            self._recorder.note("evidence.kept", {"path": str(path)})
            look = f"latdoctor diagnose {shlex.quote(str(path))}"
        self._recorder.note("before.measured", {"measures": measures(self._playbook, last)})
        if why := self._forbidden(before):
            raise Failed(why, Outcome.REFUSED, look)
        return before

    def _forbidden(self, before: Before) -> str:
        """Why nothing may be changed, or nothing would be proved by it, as things are; empty where something may."""
        playbook, last = self._playbook, before[-1]
        for condition in playbook.preconditions:
            found = against_each(condition, last, before)
            if found.status != HOLDS:
                unmet = "does not hold" if found.status == FAILS else "is not known"
                return f"precondition {found.text} {unmet}: {found.shown}"
        if unknown := untold(playbook.verify, before):
            return f"nothing would tell whether it has helped: {'; '.join(unknown)}"
        if why := holds_already(playbook.verify, before):
            return f"nothing would be proved, for it holds already: {why}"
        if mended(playbook.verify, before):
            return f"what it mends is not to be seen: {', '.join(playbook.verify.mechanism)} clear"
        if why := well_by_itself(before):
            return f"it gets well by itself, and nothing would be proved: {why}"
        return ""

    def _stage(self, number: int, playbook: Playbook) -> None:
        """One stage, made and verified; a stage of several is skipped where what it mends is not to be seen."""
        alone, last = not self._playbook.stages, self._watch.last
        earlier = self._before if last is None else [last]
        if not alone and mended(playbook.verify, earlier):
            self._recorder.note("stage.skipped", {"stage": number, "playbook": playbook.id})
            return
        for index in range(len(self._plan.stages[number].changes)):
            self._make(Touched(number, index))
        if alone:  # of several stages none waits for the queue to drain: the whole does, once all are made
            self._watch.settled(playbook.settle, earlier)
            self._watch.verified(playbook.verify, earlier)
        else:
            self._watch.verified(not_worse(playbook.verify), self._before if queued(earlier[-1]) else earlier)
        self._must_have_lasted()
        body = {"stage": number, "playbook": playbook.id, "measures": self._measures()}
        self._recorder.note("stage.verified", body)
        if self._playbook.on_failure == "undo-stage":
            self._stays = list(self._touched)

    def _make(self, touched: Touched) -> None:
        self._watch.must_go_on()
        change = self._plan.stages[touched.stage].changes[touched.index]
        self._recorder.note("change.intended", touched)
        self._touched.append(touched)
        resource = require_action(change.action).resource(self._world.access, change.resource)
        try:
            ours = ensure(change, ChangeState.AFTER, resource, self._watch.deadline_unless_stopped(STEP))
        except Conflict as conflict:
            if not conflict.written:
                self._is_theirs(touched)
            raise Failed(str(conflict), Outcome.REFUSED) from conflict
        except (Unreachable, Contended):
            self._watch.must_go_on()  # it may have ended for that alone
            raise
        except Refused as refused:
            raise Failed(f"the target refused {change.step}: {refused}") from refused
        if not ours:
            self._is_theirs(touched)
            raise Failed(f"{change.step}: somebody else has set it already", Outcome.REFUSED)
        self._recorder.note("change.made", touched)

    def _is_theirs(self, touched: Touched) -> None:
        """Nothing of ours is there, and so nothing is to be put back."""
        self._touched.remove(touched)
        self._recorder.note("undo.made", touched)

    def _must_have_lasted(self) -> None:
        """Verified means that it stands. Where it does not, nothing that was verified before counts any more."""
        made = [self._plan.stages[touched.stage].changes[touched.index] for touched in self._touched]
        if gone := lost(made, self._world.access, self._watch.deadline(READING)):
            self._stays.clear()
            raise Failed(f"it no longer stands: {gone}")

    def _given_up(self, reason: str, outcome: Outcome, next_step: str = "", *, asked: bool = False) -> Result:
        """Takes back what has to be; `outcome` and `next_step` are for where nothing had been changed."""
        undo = [touched for touched in reversed(self._touched) if touched not in self._stays]
        if not self._touched:
            return self._closed(outcome, reason, next_step=next_step)
        self._recorder.note_if_possible("verify.failed", {"reason": reason, "measures": self._measures()})
        changes = [(touched, self._plan.stages[touched.stage].changes[touched.index]) for touched in undo]
        back = take_back(changes, reason, self._world, self._recorder, asked=asked)
        stays = ", ".join(dict.fromkeys(self._plan.stages[touched.stage].playbook for touched in self._stays))
        if not stays:
            return self._closed(back.outcome, back.reason, back)
        partly = Outcome.PARTLY if back.outcome is Outcome.ROLLED_BACK else back.outcome
        return self._closed(partly, f"{back.reason}; verified before and left as they are: {stays}", back)

    def _closed(self, outcome: Outcome, reason: str, back: Back | None = None, next_step: str = "") -> Result:
        note = self._recorder.note_if_possible("run.closed", Closed(outcome, reason))
        run, streak = self._recorder.run, self._watch.streak
        rest = f"latdoctor rollback {run}" if outcome is Outcome.PARTLY else next_step
        return Result(
            run=run,
            outcome=outcome,
            reason=reason,
            next_step=(back.next_step(run) if back else "") or rest,
            manual=back.manual if back else (),
            theirs=back.theirs if back else (),
            last=streak.last.conditions if streak.last else (),
            measures=self._measures(),
            seconds=self._world.clock() - self._began,
            note=note,
        )

    def _measures(self) -> tuple[Measure, ...]:
        """What the run is judged by, before it and as it was seen last."""
        return measures(self._playbook, self._before[-1] if self._before else None, self._watch.last)
