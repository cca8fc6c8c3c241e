"""What refuses a run before anything is touched. Each guard is a function; the first that objects is the answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from latdoctor.journal.state_dir import STOP
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import Change, Deadline
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.run_history import RunState, unfinished
from latdoctor.remediation.run_result import Outcome
from latdoctor.remediation.target import Access

MAX_AGE = 900.0  # seconds: what a diagnosis saw longer ago may be over
PLAN_MAX_AGE = 3600.0  # seconds from a plan to its execution
FAILURES = 3  # runs in a row that were taken back: whatever is wrong, the playbooks do not mend it
SURE = 0.6  # probability of a cause below which no playbook runs (DESIGN.md, "Answer")
READING = 5.0  # seconds for a look at how a resource stands


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, and what to do."""

    guard: str
    reason: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """What guards look at."""

    plan: Plan
    playbook: Playbook
    access: Access
    runs: Sequence[RunState]
    reset_at: float  # unix seconds: when a human last closed the breaker
    state: Path  # the state folder
    now: float  # unix seconds
    approved: bool
    procedure: Callable[[Plan], Refusal | None] = lambda _: None  # what an SOP does not permit yet


def first(scene: Scene) -> Refusal | None:
    """The first objection, or None."""
    return next((refusal for guard in GUARDS if (refusal := guard(scene))), None)


def stopped(state: Path) -> str:
    """Why nothing may be changed, where somebody has thrown the kill switch; else empty.

    It is a file STOP in the state folder, or LATDOCTOR_STOP in the environment.
    """
    if os.environ.get("LATDOCTOR_STOP"):
        return "LATDOCTOR_STOP is set"
    try:
        (state / STOP).lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{state / STOP} cannot be looked for: {error.strerror}"  # could not look is never "go on"
    return f"{state / STOP} is there"


def _switch(scene: Scene) -> Refusal | None:
    why = stopped(scene.state)
    return Refusal("kill-switch", why, "take it away when runs may go on") if why else None


def _playbook(scene: Scene) -> Refusal | None:
    if scene.playbook.digest == scene.plan.playbook_digest:
        return None
    return Refusal("plan", f"{scene.plan.playbook} has changed since the plan was made", "make the plan again")


def _age(scene: Scene) -> Refusal | None:
    if scene.now - scene.plan.made_at > PLAN_MAX_AGE or scene.plan.made_at > scene.now + 60:
        return Refusal("plan", "the plan was not made within the last hour", "make it again")
    because = scene.plan.because
    if because is None:
        return None
    if because.probability < SURE:
        return Refusal("certainty", f"{because.cause} is not sure enough ({because.probability:.0%})", "look again")
    age = scene.now - because.seen
    if not -60 <= age <= MAX_AGE:
        return Refusal("age", f"what the diagnosis saw ended {age / 60:.0f} min ago", "diagnose again")
    return None


def _approval(scene: Scene) -> Refusal | None:
    if scene.plan.risk == "high" and not scene.approved:
        return Refusal("risk", "this is of high risk", "read the plan, and say --approve")
    return None


def _procedure(scene: Scene) -> Refusal | None:
    return None if scene.approved else scene.procedure(scene.plan)


def _unfinished(scene: Scene) -> Refusal | None:
    run = unfinished(scene.runs, scene.plan.target)
    if run is None:
        return None
    return Refusal("unfinished", f"run {run.id} on this target is not finished", "latdoctor recover")


def _cooldown(scene: Scene) -> Refusal | None:
    guards = scene.playbook.guards
    ended = [run.ended_at for run in _attempts(scene) if run.ended_at is not None]
    rest = max(ended, default=float("-inf")) + guards.cooldown - scene.now
    if rest > 0:
        return Refusal("cooldown", f"it ran on this target less than {guards.cooldown:.0f} s ago", f"wait {rest:.0f} s")
    return None


def _often(scene: Scene) -> Refusal | None:
    guards = scene.playbook.guards
    recent = [run for run in _attempts(scene) if run.opened_at > scene.now - guards.per]
    if len(recent) < guards.attempts:
        return None
    hours = guards.per / 3600
    return Refusal(
        "attempts",
        f"it ran {len(recent)} times on this target within {hours:.0f} h: this treats a symptom",
        "look for what brings it back: latdoctor diagnose",
    )


def _breaker(scene: Scene) -> Refusal | None:
    """What a person stopped or had taken back counts neither for nor against the playbooks."""
    done = [run for run in scene.runs if run.outcome in _TRIED and run.opened_at > scene.reset_at and not run.asked]
    last = done[-FAILURES:]
    if len(last) == FAILURES and all(run.outcome is not Outcome.VERIFIED for run in last):
        return Refusal(
            "circuit-breaker",
            f"the last {FAILURES} runs were taken back ({', '.join(run.id for run in last)})",
            "read them (latdoctor runs show RUN), then latdoctor runs reset",
        )
    return None


def _drift(scene: Scene) -> Refusal | None:
    """Nobody has changed what the plan was made on. A resource that is changed twice is looked at once."""
    first_of: dict[str, Change] = {}
    for change in scene.plan.changes:
        first_of.setdefault(change.resource, change)
    for change in first_of.values():
        state = require_action(change.action).resource(scene.access, change.resource).read(Deadline.after(READING))
        if state.version != change.version:
            return Refusal("drift", f"{change.resource} was changed since the plan was made", "make the plan again")
    return None


def _no_change(scene: Scene) -> Refusal | None:
    if not scene.plan.changes:
        return Refusal(
            "no-change", "all that it would change is so already", "look for another cause: latdoctor diagnose"
        )
    return None


def _same_target(scene: Scene) -> list[RunState]:
    return [run for run in scene.runs if run.plan.target.key == scene.plan.target.key]


def _attempts(scene: Scene) -> list[RunState]:
    """The runs of this playbook on this target that changed something, or may have."""
    return [run for run in _same_target(scene) if run.plan.playbook == scene.plan.playbook and run.intended]


_TRIED = (Outcome.VERIFIED, Outcome.ROLLED_BACK, Outcome.PARTLY, Outcome.INCOMPLETE)

GUARDS: tuple[Callable[[Scene], Refusal | None], ...] = (
    _switch,
    _unfinished,  # before what the plan says: a killed run may have made the very same changes
    _no_change,
    _playbook,
    _age,
    _approval,
    _procedure,
    _cooldown,
    _often,
    _breaker,
    _drift,
)
