"""Guards refuse a run before anything is touched. Each guard is a function; the first refusal is the answer.

Times are compared by the monotonic clock within one boot, and the order of runs by the journal: a wall clock that was
set neither opens nor closes a guard.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from latdoctor.journal.entry import CLOCK_TOLERANCE, Moment, seconds_between, unix_seconds
from latdoctor.journal.state_dir import STOP
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import Change, Deadline
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.playbook import Playbook, Risk, Trigger
from latdoctor.remediation.refusal import GuardedAction, Refusal
from latdoctor.remediation.run_history import RunState, unfinished
from latdoctor.remediation.run_result import Outcome, Reason
from latdoctor.remediation.standby import clock
from latdoctor.remediation.target import Access

MAX_EVIDENCE_AGE = 900.0  # seconds from the end of a diagnosis's evidence to the run
MAX_PLAN_AGE = 3600.0  # seconds from a plan to its execution
MAX_FAILURES = 3  # consecutive runs that were rolled back
MIN_PROBABILITY = 0.6  # of the cause that the playbook addresses
_READ_TIMEOUT = 5.0  # seconds
_ACTION_TIMEOUT = 15.0  # seconds for the objections of all changes


@dataclass(frozen=True, slots=True)
class GuardInput:
    """The facts that guards check."""

    plan: Plan
    playbook: Playbook
    access: Access
    runs: Sequence[RunState]
    breaker_reset: int  # number of the journal entry that last reset the circuit breaker; 0: none
    state: Path  # the state folder
    now: Moment
    approved: bool
    sop_refusal: Callable[[Plan], Refusal | None] = lambda _: None  # what the SOP does not permit yet


def first_refusal(facts: GuardInput) -> Refusal | None:
    """The first refusal, or None."""
    return next((refusal for guard in GUARDS if (refusal := guard(facts))), None)


def kill_switch_reason(state: Path) -> str:
    """Why the kill switch is on; empty if it is off.

    The kill switch is a file STOP in the state folder, or LATDOCTOR_STOP in the environment.
    """
    if os.environ.get("LATDOCTOR_STOP"):
        return "LATDOCTOR_STOP is set"
    try:
        (state / STOP).lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{state / STOP} cannot be checked: {error.strerror}"  # fail safe: on
    return f"{state / STOP} exists"


def _kill_switch(facts: GuardInput) -> Refusal | None:
    why = kill_switch_reason(facts.state)
    return Refusal(Reason.KILL_SWITCH, why, "remove it to allow runs again") if why else None


def _playbook_unchanged(facts: GuardInput) -> Refusal | None:
    if facts.playbook.digest == facts.plan.playbook_digest:
        return None
    return Refusal(Reason.PLAN_OUTDATED, f"{facts.plan.playbook} has changed since the plan was made", "plan again")


def _plan_age(facts: GuardInput) -> Refusal | None:
    if -CLOCK_TOLERANCE <= _plan_seconds(facts) <= MAX_PLAN_AGE:
        return None
    return Refusal(Reason.PLAN_OUTDATED, f"the plan is not from the last {MAX_PLAN_AGE / 60:.0f} min", "plan again")


def _plan_seconds(facts: GuardInput) -> float:
    """The age of the plan: monotonic within one boot, else by the wall clock; negative if that was set back."""
    moment = facts.plan.moment
    if moment is not UNSET and moment.boot and moment.boot == facts.now.boot:
        return seconds_between(moment, facts.now)
    return unix_seconds(facts.now.at) - facts.plan.created_at


def _diagnosis(facts: GuardInput) -> Refusal | None:
    diagnosis = facts.plan.diagnosis
    if diagnosis is None:
        return None
    if diagnosis.probability < MIN_PROBABILITY:
        probability = f"the probability of {diagnosis.cause} is {diagnosis.probability:.0%}"
        reason = f"{probability}, at least {MIN_PROBABILITY:.0%} is required"
        return Refusal(Reason.LOW_CERTAINTY, reason, "diagnose again with more evidence")
    age = unix_seconds(facts.now.at) - diagnosis.evidence_end
    if not -CLOCK_TOLERANCE <= age <= MAX_EVIDENCE_AGE:
        reason = f"the evidence of the diagnosis is {age / 60:.0f} min old, at most {MAX_EVIDENCE_AGE / 60:.0f} min"
        return Refusal(Reason.EVIDENCE_OUTDATED, reason, "diagnose again")
    return None


def _forecast(facts: GuardInput) -> Refusal | None:
    """Replicas are started before the time of their forecast, and released after it."""
    forecast, now = facts.plan.forecast, unix_seconds(facts.now.at)
    if facts.playbook.trigger is Trigger.INCIDENT:
        return None
    if forecast is UNSET:
        return Refusal(Reason.NO_FORECAST, f"{facts.playbook.id} needs a forecast", "--from FILE of latdoctor forecast")
    if facts.playbook.trigger is Trigger.FORECAST and now >= forecast.at:
        return Refusal(
            Reason.EVIDENCE_OUTDATED, f"the forecast is for {clock(forecast.at)}, which is past", "forecast again"
        )
    if facts.playbook.trigger is Trigger.PEAK_PASSED and now < forecast.released_after:
        reason = f"the replicas are kept for the peak at {clock(forecast.at)}, until {clock(forecast.released_after)}"
        return Refusal(Reason.NOT_YET, reason, f"the same command after {clock(forecast.released_after)}")
    return None


def _approval(facts: GuardInput) -> Refusal | None:
    if facts.plan.risk == Risk.HIGH and not facts.approved:
        return Refusal(Reason.HIGH_RISK, "the playbook has high risk", "read the plan, then use --approve")
    return None


def _sop(facts: GuardInput) -> Refusal | None:
    return None if facts.approved else facts.sop_refusal(facts.plan)


def _unfinished_run(facts: GuardInput) -> Refusal | None:
    run = unfinished(facts.runs, facts.plan.target)
    if run is None:
        return None
    return Refusal(Reason.UNFINISHED_RUN, f"run {run.id} on this target is not finished", "latdoctor recover")


def _cooldown(facts: GuardInput) -> Refusal | None:
    """Runs that the operator stopped or rolled back are ignored; `_max_attempts` counts them."""
    cooldown = facts.playbook.guards.cooldown
    counted = [run for run in _attempts(facts) if not run.rolled_back_on_request]
    ended = [seconds_between(run.ended, facts.now) for run in counted if run.ended is not None]
    rest = cooldown - min(ended, default=float("inf"))
    if rest > 0:
        reason = f"the playbook ran on this target less than {cooldown:.0f} s ago"
        return Refusal(Reason.COOLDOWN, reason, f"wait {rest:.0f} s")
    return None


def _max_attempts(facts: GuardInput) -> Refusal | None:
    limit = facts.playbook.guards.attempts
    recent = [run for run in _attempts(facts) if seconds_between(run.opened, facts.now) < limit.per]
    if len(recent) < limit.count:
        return None
    return Refusal(
        Reason.ATTEMPTS,
        f"the playbook ran {len(recent)} times on this target within {limit.per / 3600:.0f} h: the cause returns",
        "find what causes it: latdoctor diagnose",
    )


def _circuit_breaker(facts: GuardInput) -> Refusal | None:
    """Runs that the operator stopped or rolled back are ignored."""
    counted = [
        run
        for run in facts.runs
        if run.outcome in _TRIED and run.order > facts.breaker_reset and not run.rolled_back_on_request
    ]
    last = counted[-MAX_FAILURES:]
    if len(last) == MAX_FAILURES and all(run.outcome is not Outcome.VERIFIED for run in last):
        return Refusal(
            Reason.CIRCUIT_BREAKER,
            f"the last {MAX_FAILURES} runs were rolled back ({', '.join(run.id for run in last)})",
            "read them (latdoctor runs show RUN), then latdoctor runs reset",
        )
    return None


def _target_unmodified(facts: GuardInput) -> Refusal | None:
    """Each resource is read once, even if several steps change it."""
    first_changes: dict[str, Change] = {}
    for change in facts.plan.changes:
        first_changes.setdefault(change.resource, change)
    for change in first_changes.values():
        resource = require_action(change.action).resource(facts.access, change.resource)
        if resource.read(Deadline.after(_READ_TIMEOUT)).version != change.version:
            reason = f"{change.resource} was modified after the plan was made"
            return Refusal(Reason.TARGET_MODIFIED, reason, "plan again")
    return None


def _action_permitted(facts: GuardInput) -> Refusal | None:
    """What the actions themselves object to: an owner of the fields, missing rights, no capacity."""
    deadline = Deadline.after(_ACTION_TIMEOUT)
    for change in facts.plan.changes:
        action = require_action(change.action)
        if isinstance(action, GuardedAction):
            for refusal in action.refusals(facts.access, change, deadline):
                return refusal
    return None


def _has_changes(facts: GuardInput) -> Refusal | None:
    if facts.plan.changes:
        return None
    reason = "the target already has all values of the plan"
    return Refusal(Reason.NO_CHANGE, reason, "find another cause: latdoctor diagnose")


def _attempts(facts: GuardInput) -> list[RunState]:
    """The runs of this playbook on this target that changed something, or may have."""
    return [
        run
        for run in facts.runs
        if run.plan.target.key == facts.plan.target.key and run.plan.playbook == facts.plan.playbook and run.intended
    ]


_TRIED = (Outcome.VERIFIED, Outcome.ROLLED_BACK, Outcome.PARTLY_ROLLED_BACK, Outcome.INCOMPLETE)

GUARDS: tuple[Callable[[GuardInput], Refusal | None], ...] = (
    _kill_switch,
    _unfinished_run,  # before the guards on the plan: a killed run may have made the very same changes
    _has_changes,
    _playbook_unchanged,
    _plan_age,
    _diagnosis,
    _forecast,
    _approval,
    _sop,
    _cooldown,
    _max_attempts,
    _circuit_breaker,
    _action_permitted,  # before the target is read: without the right to read it that would be an error
    _target_unmodified,
)
