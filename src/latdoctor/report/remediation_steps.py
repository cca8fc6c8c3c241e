"""What a run did, step by step: folded from its plan, its result and its journal entries, for one screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation import run_history
from latdoctor.remediation.change import Change
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_library import shipped_playbook
from latdoctor.remediation.rollback import manual_commands
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Measure, Outcome, Result
from latdoctor.report.remediation_plan import stage_title


class StepState(StrEnum):
    """How a step of a run ended."""

    NOT_APPLIED = "not applied"
    APPLIED = "applied"
    VERIFIED = "verified"
    SKIPPED = "skipped, not needed"
    ROLLED_BACK = "rolled back"
    LEFT = "left as it is"
    IN_PLACE = "may be in place"


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One stage of a plan: what it changes, how it ended and what was measured when it was verified."""

    title: str
    changes: tuple[Change, ...]
    state: StepState
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run that has ended, or has not. `slo_p99` in seconds; None where no SLO is known."""

    result: Result
    plan: Plan | None = None
    steps: tuple[StepSummary, ...] = ()
    slo_p99: float | None = None
    requested: bool = False  # rolled back by `latdoctor rollback`
    interrupted: bool = False  # by a signal or the kill switch
    unfinished: bool = False
    at_work: bool = False  # held by a run that only has to be waited for

    @property
    def playbook(self) -> Playbook | None:
        """The playbook, where it is one of the shipped."""
        return shipped_playbook(self.plan.playbook if self.plan else self.result.playbook)

    @property
    def verified(self) -> int:
        """How many steps are verified."""
        return sum(step.state is StepState.VERIFIED for step in self.steps)


def of_result(
    result: Result, plan: Plan | None = None, entries: Sequence[JournalEntry] = (), slo_p99: float | None = None
) -> RunSummary:
    """The summary of a run that has just ended; `entries` are the journal entries of the run."""
    if plan is None:
        return RunSummary(result, slo_p99=slo_p99)
    state = next(iter(run_history.runs(entries)), None)
    steps = _steps(plan, state, entries, result.outcome)
    requested, interrupted = _by_operator(state, entries)
    return RunSummary(_with_measures(result, entries), plan, steps, slo_p99, requested, interrupted)


def of_run(state: RunState, entries: Sequence[JournalEntry]) -> RunSummary:
    """The summary of a run in the journal."""
    pending = state.pending if state.proof_open else None
    result = Result(
        state.id,
        state.outcome or (Outcome.PENDING if pending else Outcome.INCOMPLETE),
        pending.text if pending else state.reason,
        next_step=f"latdoctor runs show {state.id}" if pending else "",
        seconds=max(0.0, (state.ended_at or state.opened_at) - state.opened_at),
        target=state.plan.target.name,
        playbook=state.plan.playbook,
        manual=manual_commands(state) if state.rollback and state.outcome in (None, Outcome.INCOMPLETE) else (),
    )
    steps = _steps(state.plan, state, entries, Outcome.PENDING if pending else state.outcome)
    requested, interrupted = _by_operator(state, entries)
    return RunSummary(
        _with_measures(result, entries),
        state.plan,
        steps,
        requested=requested,
        interrupted=interrupted,
        unfinished=state.outcome is None and pending is None,
    )


def _by_operator(state: RunState | None, entries: Iterable[JournalEntry]) -> tuple[bool, bool]:
    """Whether the operator rolled the run back after its end, and whether the operator interrupted it."""
    if state is None or not state.rolled_back_on_request:
        return False, False
    kinds = [entry.kind for entry in entries]
    ended_before = "run.closed" in kinds[: kinds.index("rollback.begun")]
    return ended_before, not ended_before


def _with_measures(result: Result, entries: Iterable[JournalEntry]) -> Result:
    """The result with the last measurements of the journal, where it has none itself."""
    if result.measures:
        return result
    found: tuple[Measure, ...] = ()
    for entry in entries:
        if entry.kind in ("before.measured", "proof.pending", "verify.passed", "verify.failed"):
            found = _measures(_body(entry)) or found
    return msgspec.structs.replace(result, measures=found)


def _steps(
    plan: Plan, state: RunState | None, entries: Sequence[JournalEntry], outcome: Outcome | None
) -> tuple[StepSummary, ...]:
    steps = [
        StepSummary(stage_title(plan, number), stage.changes, _state(number, state, entries, outcome))
        for number, stage in enumerate(plan.stages)
    ]
    for entry in entries:
        if entry.kind not in ("stage.verified", "stage.skipped"):
            continue
        body = _body(entry)
        number = int(body["stage"])
        if entry.kind == "stage.skipped":
            steps[number] = replace(steps[number], state=StepState.SKIPPED)
        elif steps[number].state is StepState.APPLIED:
            steps[number] = replace(steps[number], state=StepState.VERIFIED, measures=_measures(body))
    if outcome is Outcome.VERIFIED:  # recovered: the whole was verified, whatever the last entry is
        steps = [replace(s, state=StepState.VERIFIED) if s.state is StepState.APPLIED else s for s in steps]
    return tuple(steps)


def _state(number: int, state: RunState | None, entries: Iterable[JournalEntry], outcome: Outcome | None) -> StepState:
    """The state of a stage by its changes alone; `verified` and `skipped` are entries of their own."""
    intended = {touched for touched in state.intended if touched.stage == number} if state else set()
    if state is None or not intended:
        return StepState.NOT_APPLIED
    if any(entry.kind == "undo.left" and _body(entry)["stage"] == number for entry in entries):
        return StepState.LEFT
    if any(touched.stage == number for touched in state.in_effect):
        return StepState.IN_PLACE if outcome in (None, Outcome.INCOMPLETE) else StepState.APPLIED
    if intended <= state.undone or state.rollback is not None:
        return StepState.ROLLED_BACK
    return StepState.APPLIED


def _measures(body: Mapping[str, Any]) -> tuple[Measure, ...]:
    return msgspec.convert(body.get("measures", ()), tuple[Measure, ...])


def _body(entry: JournalEntry) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(entry.body)
    return body
