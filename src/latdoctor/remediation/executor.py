"""Execution of a plan: guard, observe, change, settle, verify; keep the change or undo it. Journaled before it is done.

The guarantees of a run and their tests: docs/remediation.md.
"""

from __future__ import annotations

import datetime
import os
import secrets
import shlex
from collections.abc import Callable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from latdoctor.conditions.evaluator import FAILS, HOLDS
from latdoctor.errors import LatdoctorError
from latdoctor.journal.locks import LockHeldError, lock
from latdoctor.journal.state_dir import LOCKS, RUNS
from latdoctor.remediation import guards, run_history
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import (
    Change,
    ChangeState,
    Conflict,
    Contended,
    Refused,
    Unreachable,
    WriteOptions,
    ensure,
)
from latdoctor.remediation.changes_in_effect import await_completion, lost_values
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.pending_proof import ProofStarted, Prover
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.playbook import Disruption, OnFailure, Playbook, Trigger
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_context import RunContext, RunJournal, Stopped
from latdoctor.remediation.run_history import (
    ChangeRef,
    RunClosed,
    RunOpened,
    RunState,
    WriteEnded,
    WriteStarted,
    operation_id,
)
from latdoctor.remediation.run_observer import ProofPending, RunFailed, RunObserver
from latdoctor.remediation.run_result import Measure, Outcome, Reason, Result, measures_of
from latdoctor.remediation.standby import too_much_for
from latdoctor.remediation.undo import UndoResult, undo_changes
from latdoctor.remediation.verification import (
    Before,
    already_met,
    cause_absent,
    evaluate_against,
    has_queue,
    stage_verification,
    unverifiable,
)

_CHANGE_TIMEOUT = 60.0  # seconds: a replica completes its requests before it is replaced
_COMPLETION_TIMEOUT = 60.0  # seconds for a rollout, where the playbook names none
_READ_TIMEOUT = 20.0  # seconds for reading all changed resources; one exchange may be lost


def execute(plan: Plan, library: Library, context: RunContext) -> Result:
    """Execute `plan` on its target and leave it as before, or as after and verified, or report what is incomplete.

    Raises JournalError if the journal cannot be written; nothing was changed then.
    """
    run_id = _run_id(context.now())
    context.on_start(run_id)
    journal = RunJournal(context.journal, run_id, context.on_entry)
    playbook = library.find(plan.playbook)
    try:
        with lock(context.state / LOCKS, plan.target.key, run_id) as held:
            refusal = guards.first_refusal(_guard_input(plan, playbook, context))
            if refusal:
                return _refused(journal, refusal)
            journal.append("run.opened", RunOpened(plan, plan.digest, os.getpid(), playbook.before.window))
            return _Run(plan, playbook, library, context, journal, held).execute()
    except LockHeldError as busy:
        return _refused(journal, Refusal(Reason.LOCKED, busy.what, busy.next_step))


def _run_id(now: float) -> str:
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return f"{at:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _guard_input(plan: Plan, playbook: Playbook, context: RunContext) -> guards.GuardInput:
    entries = context.journal.entries()
    return guards.GuardInput(
        plan=plan,
        playbook=playbook,
        access=context.access,
        runs=run_history.runs(entries),
        breaker_reset=run_history.last_breaker_reset(entries),
        state=context.state,
        now=context.journal.clock(),
        approved=context.approved,
        sop_refusal=context.sop_refusal,
    )


def _refused(journal: RunJournal, refusal: Refusal) -> Result:
    journal.append("run.refused", {"guard": refusal.guard, "reason": refusal.reason})
    return Result(journal.run, Outcome.REFUSED, refusal.reason, refusal.next_step, code=refusal.guard)


class _Run:
    """One run on one target, under its lock."""

    def __init__(
        self,
        plan: Plan,
        playbook: Playbook,
        library: Library,
        context: RunContext,
        journal: RunJournal,
        held: int = -1,
    ) -> None:
        self._plan = plan
        self._held = held  # the descriptor of the lock
        self._playbook = playbook
        self._library = library
        self._context = context
        self._journal = journal
        self._started = context.clock()
        self._changed: list[ChangeRef] = []
        self._kept: list[ChangeRef] = []  # changes of verified stages, which stay if a later stage fails
        self._instances: dict[ChangeRef, str] = {}  # the processes that the changes were made on
        self._before: Before = ()
        self._observer = RunObserver(context, journal)

    def execute(self) -> Result:
        return self._finished(self._change_and_prove)

    def resume(self, pending: ProofStarted, seconds: float) -> Result:
        """Go on with a pending proof for so many seconds."""
        return self._finished(lambda: self._prove_later(pending, seconds))

    def take_over(self, run: RunState) -> None:
        """The changes in effect were made by another process of this run."""
        self._changed = list(reversed(run.in_effect))
        made = self._context.journal.entries(run.id, kinds=("change.made",))
        self._instances = run_history.changed_instances(made)

    def _finished(self, work: Callable[[], None]) -> Result:
        """The result of `work`, whose changes are undone unless it verifies them."""
        try:
            work()
            self._journal.append("verify.passed", {"measures": self._measures()})
        except _HandedOver as handed:
            return self._result(Outcome.PENDING, Reason.UNPROVEN, handed.reason)
        except RunFailed as failed:
            return self._give_up(failed)
        except Stopped as stopped:
            self._kept.clear()
            return self._give_up(RunFailed(Reason.STOPPED, f"stopped: {stopped}"), requested=True)
        except LatdoctorError as error:
            self._kept.clear()
            return self._give_up(RunFailed(Reason.ERROR, str(error)))
        except Exception as error:  # a defect: undo the changes, then raise it
            self._kept.clear()
            self._give_up(RunFailed(Reason.DEFECT, f"a defect in latdoctor: {type(error).__name__}"))
            raise
        return self._close(Outcome.VERIFIED, Reason.VERIFIED, "verified")

    def _change_and_prove(self) -> None:
        before = self._observe_before()
        for number, stage in enumerate(self._plan.stages):
            self._run_stage(number, self._library.find(stage.playbook))
        if self._playbook.stages:
            self._kept.clear()
            self._prove(before)

    def _prove(self, before: Before) -> None:
        """Wait for the queue to drain, then prove the effect; at the end the changes must still be in effect."""
        playbook = self._playbook
        self._await_completion(playbook)
        self._observer.settle(playbook.settle, before)
        if playbook.trigger is not Trigger.INCIDENT:
            self._observer.hold(playbook.verify, before)
            self._require_in_effect()
            return
        replaces = playbook.disruption is Disruption.RESTARTS
        try:
            self._observer.prove(playbook.verify, before, replaces_process=replaces)
        except ProofPending as pending:
            self._require_in_effect()
            context = self._context
            started = ProofStarted.of(pending.proof, before[-1], self._observer.window, context.sources, context.now())
            self._journal.append("proof.pending", replace(started, measures=self._measures()))
            if context.hand_over is not None:
                if pid := context.hand_over(self._journal.run, self._held):
                    self._journal.try_append("proof.prover", Prover.of(pid))
                raise _HandedOver(started.text) from pending
            self._prove_later(started, pending.proof.schedule.until, pending.windows)
        else:
            self._require_in_effect()

    def _await_completion(self, playbook: Playbook) -> None:
        changes = [self._change(ref) for ref in self._changed]
        seconds, forecast = playbook.settle.at_most or _COMPLETION_TIMEOUT, self._plan.forecast
        if playbook.trigger is Trigger.FORECAST and forecast is not UNSET:
            seconds = max(0.0, min(seconds, forecast.at - self._context.now()))  # later than the peak is not in time
        deadline = self._observer.stoppable_deadline(seconds)
        await_completion(changes, self._context.access, deadline)
        self._observer.check_stop()

    def _prove_later(self, pending: ProofStarted, seconds: float, windows: Sequence[Observation] = ()) -> None:
        self._before = (pending.observation,)
        self._observer.window = pending.window
        self._observer.prove_later(pending.proof(self._playbook.verify), self._before, seconds, windows)
        self._require_in_effect()

    def _observe_before(self) -> Before:
        """The windows before the change, the last one saved as a bundle. Raises RunFailed if nothing may be changed."""
        before = self._before = self._observer.observe_before(self._playbook.before.window, self._playbook.verify)
        last, next_step = before[-1], ""
        if last.bundle is not None:
            path = self._context.state / RUNS / self._journal.run / "before.tar.zst"
            self._context.save_bundle(last.bundle, path)
            self._journal.append("evidence.kept", {"path": str(path)})
            next_step = f"latdoctor diagnose {shlex.quote(str(path))}"
        self._journal.append("before.measured", {"measures": measures_of(self._playbook, last)})
        if objection := self._objection(before):
            code, reason = objection
            raise RunFailed(code, reason, Outcome.REFUSED, next_step)
        return before

    def _objection(self, before: Before) -> tuple[Reason, str] | None:
        """Why nothing may be changed, or why a change could not be verified; None if neither applies."""
        playbook, last = self._playbook, before[-1]
        for condition in playbook.preconditions:
            found = evaluate_against(condition, last, before)
            if found.status != HOLDS:
                status = "does not hold" if found.status == FAILS else "is unknown"
                return Reason.PRECONDITION, f"precondition {found.text} {status}: {found.shown}"
        if unknown := unverifiable(playbook.verify, before):
            return Reason.NOT_VERIFIABLE, f"the change could not be verified: {'; '.join(unknown)}"
        if playbook.trigger is not Trigger.INCIDENT:  # nothing is slow, so nothing has to become better
            return self._load_objection(before)
        if met := already_met(playbook.verify, before):
            return Reason.ALREADY_MET, f"the conditions of success already hold: {met}"
        if cause_absent(playbook.verify, before):
            return Reason.CAUSE_ABSENT, f"the cause is not present: {', '.join(playbook.verify.cleared_findings)} clear"
        if rates := self._observer.recovering(playbook.verify, before):
            return (
                Reason.RECOVERING,
                f"the service is recovering on its own, so a change could not be verified: {rates}",
            )
        return None

    def _load_objection(self, before: Before) -> tuple[Reason, str] | None:
        """Why the replicas of a forecast must stay: fewer could not carry the load that there is."""
        forecast = self._plan.forecast
        if self._playbook.trigger is not Trigger.PEAK_PASSED or forecast is UNSET:
            return None
        left = [int(one.after or 0) for change in self._plan.changes for one in change.fields]
        objection = next((why for replicas in left if (why := too_much_for(forecast, replicas, before))), "")
        return (Reason.LOAD_TOO_HIGH, f"fewer replicas could not carry the load: {objection}") if objection else None

    def _run_stage(self, number: int, playbook: Playbook) -> None:
        """Apply and verify one stage. One of several stages is skipped if its cause is not present."""
        single, last = not self._playbook.stages, self._observer.last
        earlier = self._before if last is None else [last]
        if not single and cause_absent(playbook.verify, earlier):
            self._journal.append("stage.skipped", {"stage": number, "playbook": playbook.id})
            return
        for index in range(len(self._plan.stages[number].changes)):
            self._apply(ChangeRef(number, index))
        if single:  # of several stages, only the whole waits for the queue to drain
            self._prove(earlier)
        else:
            self._await_completion(playbook)
            reference = self._before if has_queue(earlier[-1]) else earlier
            self._observer.verify_stage(stage_verification(playbook.verify, reference), reference)
            self._require_in_effect()
        body = {"stage": number, "playbook": playbook.id, "measures": self._measures()}
        self._journal.append("stage.verified", body)
        if self._playbook.on_failure != OnFailure.UNDO_ALL:
            self._kept = list(self._changed)

    def _apply(self, ref: ChangeRef) -> None:
        self._observer.check_stop()
        change = self._change(ref)
        operation = operation_id(self._journal.run, ref)
        self._journal.append("change.intended", WriteStarted(ref.stage, ref.index, operation))
        self._changed.append(ref)
        resource = require_action(change.action).resource(self._context.access, change.resource)
        try:
            deadline = self._observer.stoppable_deadline(_CHANGE_TIMEOUT)
            write = ensure(change, ChangeState.AFTER, resource, deadline, WriteOptions(operation))
        except Conflict as conflict:
            if not conflict.written:
                self._disown(ref)
            raise RunFailed(Reason.MODIFIED_BY_OTHER_CLIENT, str(conflict), Outcome.REFUSED) from conflict
        except (Unreachable, Contended):
            self._observer.check_stop()  # a stop ends the deadline early
            raise
        except Refused as refused:
            raise RunFailed(Reason.TARGET_REJECTED, f"the target rejected {change.step}: {refused}") from refused
        if write is None:
            self._disown(ref)
            reason = f"{change.step}: another client has already set these values"
            raise RunFailed(Reason.MODIFIED_BY_OTHER_CLIENT, reason, Outcome.REFUSED)
        self._instances[ref] = write.after.instance
        self._journal.append("change.made", WriteEnded(ref.stage, ref.index, write))

    def _change(self, ref: ChangeRef) -> Change:
        return self._plan.stages[ref.stage].changes[ref.index]

    def _disown(self, ref: ChangeRef) -> None:
        """Record that this run has written nothing and has nothing to undo."""
        self._changed.remove(ref)
        self._journal.append("undo.made", ref)

    def _require_in_effect(self) -> None:
        """Raises RunFailed if a change is no longer in effect; earlier verifications are then void."""
        changes = [(self._change(ref), self._instances.get(ref, "")) for ref in self._changed]
        if lost := lost_values(changes, self._context.access, self._observer.deadline(_READ_TIMEOUT)):
            self._kept.clear()
            raise RunFailed(Reason.CHANGE_LOST, f"the change is no longer in effect: {lost}")

    def _give_up(self, failed: RunFailed, *, requested: bool = False) -> Result:
        """Undo the changes that must not stay, and close the run."""
        undo = [ref for ref in reversed(self._changed) if ref not in self._kept]
        if not self._changed:
            return self._close(failed.outcome, failed.code, failed.reason, next_step=failed.next_step)
        body = {"reason": failed.reason, "code": failed.code, "measures": self._measures()}
        self._journal.try_append("verify.failed", body)
        started = run_history.RollbackStarted(failed.reason, requested, failed.code)
        undone = undo_changes([(ref, self._change(ref)) for ref in undo], started, self._context, self._journal)
        kept = ", ".join(dict.fromkeys(self._plan.stages[ref.stage].playbook for ref in self._kept))
        if not kept:
            return self._close(undone.outcome, failed.code, undone.reason, undone)
        partly = Outcome.PARTLY_ROLLED_BACK if undone.outcome is Outcome.ROLLED_BACK else undone.outcome
        return self._close(partly, failed.code, f"{undone.reason}; verified before and kept: {kept}", undone)

    def _close(
        self, outcome: Outcome, code: Reason, reason: str, undone: UndoResult | None = None, next_step: str = ""
    ) -> Result:
        note = self._journal.try_append("run.closed", RunClosed(outcome, reason, code))
        return replace(self._result(outcome, code, reason, undone, next_step), note=note)

    def _result(
        self, outcome: Outcome, code: Reason, reason: str, undone: UndoResult | None = None, next_step: str = ""
    ) -> Result:
        run, shown = self._journal.run, self._observer.result
        if outcome is Outcome.PENDING:
            next_step = f"latdoctor runs show {run}"
        fallback = f"latdoctor rollback {run}" if outcome is Outcome.PARTLY_ROLLED_BACK else next_step
        return Result(
            run=run,
            outcome=outcome,
            reason=reason,
            next_step=(undone.next_step(run) if undone else "") or fallback,
            manual=undone.manual if undone else (),
            overwrite=undone.overwrite if undone else (),
            last=shown.conditions if shown else (),
            measures=self._measures(),
            seconds=self._context.clock() - self._started,
            code=code,
        )

    def _measures(self) -> tuple[Measure, ...]:
        return measures_of(self._playbook, self._before[-1] if self._before else None, self._observer.last)


class _HandedOver(Exception):  # noqa: N818 - an event
    """Another process goes on with the proof; it has the lock."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def resume(run: RunState, library: Library, context: RunContext) -> Result:
    """Go on with the pending proof of `run`, whose target is locked: the end is verified, or rolled back.

    After its deadline, or with another playbook than that of the run, the changes are undone.
    """
    pending = run.pending
    if pending is None:
        raise ValueError(f"the proof of {run.id} is not pending")
    journal = RunJournal(context.journal, run.id, context.on_entry)
    playbook = library.find(run.plan.playbook)
    work = _Run(run.plan, playbook, library, context, journal)
    journal.append("proof.prover", Prover.of(os.getpid()))
    work.take_over(run)
    seconds = pending.deadline - context.now() if playbook.digest == run.plan.playbook_digest else 0.0
    return work.resume(pending, min(seconds, pending.schedule.until))
