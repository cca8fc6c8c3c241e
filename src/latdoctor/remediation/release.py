"""The standby replicas of earlier runs that may be given back: which run, and how many were there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation import run_history
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import Change, Deadline, has_values
from latdoctor.remediation.own_writes import OwnWrites
from latdoctor.remediation.run_history import ChangeRef, RunState
from latdoctor.remediation.run_result import Outcome, Reason, Result
from latdoctor.remediation.standby import ForecastRef
from latdoctor.remediation.target import Access, Target

_READ_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Release:
    """`replicas`: as many as before the first of the runs whose replicas are given back; `run`: the last of them."""

    run: str
    forecast: ForecastRef
    replicas: int


def release_of(
    entries: Sequence[JournalEntry], access: Access, newer: ForecastRef | None, now: float
) -> Release | Result:
    """What may be released on a target, or why nothing is. `newer`: a later forecast, which must need no more.

    Raises OperationError where the target cannot be read.
    """
    standing = _standing(run_history.runs(entries), access.target)
    if not standing:
        return Result("", Outcome.PLANNED, "no standby replicas are to be given back", "latdoctor runs list")
    last, replicas = standing[0], _number(standing[0], before=True)
    for run in standing[1:]:
        forecast = run.plan.forecast
        if forecast is UNSET or now < forecast.released_after or _number(run, before=False) != replicas:
            break
        replicas = _number(run, before=True)
    if objection := _set_since(last, entries, access):
        return objection
    if newer is not None and newer.replicas > replicas:
        reason = f"the newer forecast needs {newer.replicas} replicas, and {replicas} would be left"
        return Result(last.id, Outcome.REFUSED, reason, "after that peak", code=Reason.LOAD_TOO_HIGH)
    assert last.plan.forecast is not UNSET  # by _standing
    return Release(last.id, last.plan.forecast, replicas)


def _standing(runs: Sequence[RunState], target: Target) -> list[RunState]:
    """The standby runs in effect on the target, the latest first, back to another run that set the same fields."""
    mine = [run for run in runs if run.plan.target.key == target.key and run.in_effect]
    found: list[RunState] = []
    for run in reversed(mine):
        shared = bool(found) and bool(run_history.changed_fields(run) & run_history.changed_fields(found[0]))
        if _is_standby(run):
            found += [run] if shared or (not found and not run_history.superseding_run(run, mine)) else []
        elif shared:
            break
    return found


def _is_standby(run: RunState) -> bool:
    return run.verified and run.plan.forecast is not UNSET and run.plan.releases is UNSET


def _change(run: RunState) -> tuple[ChangeRef, Change]:
    ref = run.in_effect[0]
    return ref, run.change(ref)


def _number(run: RunState, *, before: bool) -> int:
    field = _change(run)[1].fields[0]
    return int((field.before if before else field.after) or 0)


def _set_since(run: RunState, entries: Sequence[JournalEntry], access: Access) -> Result | None:
    """The refusal where the number is not ours any more: another client has set it since."""
    ref, change = _change(run)
    state = require_action(change.action).resource(access, change.resource).read(Deadline.after(_READ_TIMEOUT))
    field = change.fields[0]
    if not has_values(state.values, change.after):
        why = f"{field.name} is {state.values.get(field.name)} now, and run {run.id} has set {field.after}"
    elif theirs := OwnWrites.of(entries).by(run.id, ref, change).not_ours(state.snapshot):
        why = f"{field.name} is {field.after}, but {theirs.text}"
    else:
        return None
    step = f"latdoctor runs show {run.id}"
    return Result(run.id, Outcome.REFUSED, f"{why}: left as it is", step, code=Reason.MODIFIED_BY_OTHER_CLIENT)
