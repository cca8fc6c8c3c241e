"""What the journal says of the runs so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from latdoctor.conditions.evaluator import HOLDS, show
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.remediation.change import Change
from latdoctor.remediation.observation import Judged
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.run_result import ABORT, Measure, Outcome
from latdoctor.remediation.target import Target, canonical_url

Body = TypeVar("Body")
FieldAt = tuple[str, str]  # the resource, as `canonical` spells it, and the name


class Opened(Struct, frozen=True):
    plan: Plan
    digest: str
    pid: int


class Touched(Struct, frozen=True):
    """A change of the plan: the stage, and which of its changes."""

    stage: int
    index: int


class Begun(Struct, frozen=True):
    """Why a run is taken back; `asked` where a person wanted it, and not because it had not proved itself."""

    reason: str
    asked: bool = False


class Left(Struct, frozen=True):
    """A change that is left as it is, for good: somebody else has set it since, or it has no way back."""

    stage: int
    index: int
    step: str
    why: str


class Closed(Struct, frozen=True):
    outcome: Outcome
    reason: str = ""


@dataclass(slots=True)
class RunState:
    """One run, as its entries add up."""

    id: str
    plan: Plan
    opened_at: float  # unix seconds
    ended_at: float | None = None
    intended: list[Touched] = field(default_factory=list)
    undone: set[Touched] = field(default_factory=set)  # or left to whoever has set it since
    verified: bool = False
    begun: Begun | None = None  # the first taking back: the later ones go on with it
    outcome: Outcome | None = None
    reason: str = ""

    @property
    def open(self) -> bool:
        """Whether it has to be brought to an end: it was killed, or could not take everything back and still may."""
        return self.outcome is None or (self.outcome is Outcome.INCOMPLETE and bool(self.standing))

    @property
    def asked(self) -> bool:
        """Whether a person has stopped it or had it taken back: that says nothing of the playbook."""
        return self.begun is not None and self.begun.asked

    @property
    def standing(self) -> tuple[Touched, ...]:
        """The changes that may stand, the latest first: what has to be taken back."""
        may = (touched for touched in reversed(self.intended) if touched not in self.undone)
        return tuple(touched for touched in may if self.change(touched).undo != "none-needed")

    def change(self, touched: Touched) -> Change:
        return self.plan.stages[touched.stage].changes[touched.index]


def runs(entries: Iterable[JournalEntry]) -> tuple[RunState, ...]:
    """Every run that was opened, oldest first."""
    found: dict[str, RunState] = {}
    for entry in entries:
        if entry.kind == "run.opened":
            found[entry.run] = RunState(entry.run, _body(entry, Opened).plan, unix_seconds(entry.at))
        elif entry.run in found:
            _add(found[entry.run], entry)
    return tuple(found.values())


def _add(run: RunState, entry: JournalEntry) -> None:
    match entry.kind:
        case "change.intended":
            touched = _body(entry, Touched)
            if touched not in run.intended:
                run.intended.append(touched)
            run.undone.discard(touched)
        case "undo.made" | "undo.left":
            run.undone.add(_body(entry, Touched))
        case "verify.passed":
            run.verified = True
        case "rollback.begun":
            run.begun = run.begun or _body(entry, Begun)
            run.verified, run.outcome = False, None
        case "run.closed":
            closed = _body(entry, Closed)
            run.outcome, run.reason, run.ended_at = closed.outcome, closed.reason, unix_seconds(entry.at)


def unfinished(known: Iterable[RunState], target: Target) -> RunState | None:
    """The first of the runs on `target` that has to be brought to an end before another may begin there."""
    return next((run for run in known if run.open and run.plan.target.key == target.key), None)


def overset(runs: Sequence[RunState]) -> Mapping[str, frozenset[FieldAt]]:
    """By run: the fields that a later one of `runs` (oldest first) has set too, and that stand as that one set them."""
    later: frozenset[FieldAt] = frozenset()
    found: dict[str, frozenset[FieldAt]] = {}
    for run in reversed(runs):
        found[run.id] = later
        later |= _fields(run)
    return found


def changed_after(run: RunState, others: Iterable[RunState]) -> RunState | None:
    """The latest run after `run` whose changes stand on a field that `run` has set too; None where there is none."""
    mine = _fields(run)
    later = (one for one in others if one.opened_at >= run.opened_at and one.id != run.id)
    return next((one for one in reversed(tuple(later)) if mine & _fields(one)), None)


def _fields(run: RunState) -> set[FieldAt]:
    standing = (run.change(touched) for touched in run.standing)
    return {field_at(change.resource, field.name) for change in standing for field in change.fields}


def field_at(resource: str, name: str) -> FieldAt:
    """A field, however its resource is spelled."""
    return canonical_url(resource), name


def last_reset(entries: Iterable[JournalEntry]) -> float:
    """When a human last closed the circuit breaker, unix seconds; 0 where nobody did."""
    return max((unix_seconds(entry.at) for entry in entries if entry.kind == "breaker.reset"), default=0.0)


def _body(entry: JournalEntry, kind: type[Body]) -> Body:
    return msgspec.json.decode(entry.body, type=kind)


_LINES = {
    "run.opened": "run {run}: watching before anything is changed",
    "evidence.kept": "evidence kept: {path}",
    "before.longer": "few are answered: each look takes {seconds:g} s instead of {usual:g} s, so that it tells enough",
    "stage.skipped": "stage {playbook} skipped: what it mends is not to be seen",
    "stage.verified": "stage {playbook} verified",
    "verify.passed": "verified",
    "verify.failed": "not verified: {reason}",
    "rollback.begun": "taking back: {reason}",
    "undo.failed": "NOT taken back: {step}: {why}",
    "undo.left": "left as it is: {step}: {why}",
    "run.refused": "refused: {reason} (guard {guard})",
    "run.closed": "ended: {outcome}",
}
_TOUCHED = {
    "change.intended": "changing",
    "change.made": "changed",
    "undo.intended": "putting back",
    "undo.made": "put back",
}


def line_of(entry: JournalEntry, plan: Plan | None = None) -> str:
    """What `entry` says; its kind where this version does not know it.

    Raises KeyError, msgspec.ValidationError for an entry that another version wrote otherwise.
    """
    body: dict[str, Any] = msgspec.json.decode(entry.body)
    if entry.kind in _TOUCHED:
        return _touched(entry.kind, body, plan)
    if entry.kind == "before.measured":
        return "before: " + ", ".join(_measured(msgspec.convert(one, Measure)) for one in body["measures"][:4])
    if entry.kind == "settled":
        return "settled" if body["settled"] else "not settled in time; judging it as it is"
    if entry.kind == "verify.window":
        return f"window: {body['status']}" + (f" ({_why(body)})" if _why(body) else "")
    return _LINES.get(entry.kind, entry.kind).format(**{**body, "run": entry.run})


def _measured(one: Measure) -> str:
    return f"{one.signal} {show(one.signal, one.before)}"


def _touched(kind: str, body: dict[str, Any], plan: Plan | None) -> str:
    step = f"change {body['index'] + 1}"
    if plan is not None:
        step = plan.stages[body["stage"]].changes[body["index"]].step
    return f"{_TOUCHED[kind]} {step}"


def _why(body: dict[str, Any]) -> str:
    if "why" in body:
        return str(body["why"])
    conditions = msgspec.convert(body.get("conditions", ()), tuple[Judged, ...])
    return "; ".join(one.told for one in conditions if (one.status == HOLDS) is (body["status"] == ABORT))
