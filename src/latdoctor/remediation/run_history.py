"""The runs so far, reconstructed from the journal, and each of their entries as one line of text."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from latdoctor.conditions.evaluator import HOLDS, show
from latdoctor.journal.entry import JournalEntry, Moment, unix_seconds
from latdoctor.remediation.change import Change, Undo
from latdoctor.remediation.observation import ConditionResult
from latdoctor.remediation.ownership import NotOurs, Write
from latdoctor.remediation.pending_proof import ProofStarted, ProofStopped, Prover
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.run_result import Measure, Outcome, Reason, WindowStatus
from latdoctor.remediation.target import Target, canonical_url

Body = TypeVar("Body")
FieldKey = tuple[str, str]  # canonical id of the resource, name of the field


class RunOpened(Struct, frozen=True):
    """Entry `run.opened`."""

    plan: Plan
    digest: str
    pid: int
    before: float = 0.0  # seconds that are observed before the change, longer at a low request rate


class ChangeRef(Struct, frozen=True):
    """A change of the plan: the index of its stage, and its index in the stage."""

    stage: int
    index: int


class WriteStarted(Struct, frozen=True):
    """Entries `change.intended` and `undo.intended`. `operation` is the id of the write; version 0.1 had none."""

    stage: int
    index: int
    operation: str = ""


class WriteEnded(Struct, frozen=True, omit_defaults=True):
    """Entries `change.made` and `undo.made`. Without `write` nothing was written; version 0.1 did not record it."""

    stage: int
    index: int
    write: Write | None = None


def operation_id(run: str, ref: ChangeRef, undo: str = "") -> str:
    """The id of a write, the same for its retries. `undo`: the id of the rollback."""
    return f"{run}-{ref.stage}-{ref.index}" + (f"-undo-{undo}" if undo else "")


class RollbackStarted(Struct, frozen=True):
    """Entry `rollback.begun`. `requested`: by the operator, not because of a failed verification."""

    reason: str
    requested: bool = msgspec.field(default=False, name="asked")
    code: Reason | None = None


class ChangeLeft(Struct, frozen=True):
    """Entry `undo.left`: a change that is not undone, because another client has modified it or it is irreversible."""

    stage: int
    index: int
    step: str
    why: str
    code: NotOurs | None = None


class RunClosed(Struct, frozen=True):
    """Entry `run.closed`."""

    outcome: Outcome
    reason: str = ""
    code: Reason | None = None


@dataclass(slots=True)
class RunState:
    """The state of one run after all its entries."""

    id: str
    plan: Plan
    opened: Moment
    order: int  # number of its first entry in the journal
    ended: Moment | None = None
    intended: list[ChangeRef] = field(default_factory=list)
    undone: set[ChangeRef] = field(default_factory=set)  # or left, because another client has modified it
    verified: bool = False
    pending: ProofStarted | None = None  # a proof that goes on after its run
    prover: Prover | None = None  # the last process that went on with it
    rollback: RollbackStarted | None = None  # the first one; later ones continue it
    outcome: Outcome | None = None
    reason: str = ""
    code: Reason | None = None

    @property
    def opened_at(self) -> float:
        """Unix seconds."""
        return unix_seconds(self.opened.at)

    @property
    def ended_at(self) -> float | None:
        """Unix seconds."""
        return unix_seconds(self.ended.at) if self.ended else None

    @property
    def open(self) -> bool:
        """Whether `recover` must end it: it was killed, or its rollback is incomplete and can be continued."""
        return self.outcome is None or (self.outcome is Outcome.INCOMPLETE and bool(self.in_effect))

    @property
    def proof_open(self) -> bool:
        """Whether its proof is pending, and its changes have to stay until that is complete."""
        return self.pending is not None and not self.verified and self.rollback is None and self.outcome is None

    @property
    def live_prover(self) -> Prover | None:
        """The other process that goes on with the proof, or undoes the changes since."""
        return self.prover if self.prover and self.outcome is None and self.prover.lives else None

    @property
    def rolled_back_on_request(self) -> bool:
        """Whether the operator stopped it or rolled it back: that is no result of the playbook."""
        return self.rollback is not None and self.rollback.requested

    @property
    def in_effect(self) -> tuple[ChangeRef, ...]:
        """The changes that may be in effect and would have to be undone, the latest first."""
        remaining = (ref for ref in reversed(self.intended) if ref not in self.undone)
        return tuple(ref for ref in remaining if self.change(ref).undo != Undo.NONE_NEEDED)

    def change(self, ref: ChangeRef) -> Change:
        return self.plan.stages[ref.stage].changes[ref.index]


def runs(entries: Iterable[JournalEntry]) -> tuple[RunState, ...]:
    """Every opened run, oldest first."""
    found: dict[str, RunState] = {}
    for entry in entries:
        if entry.kind == "run.opened":
            found[entry.run] = RunState(entry.run, _body(entry, RunOpened).plan, entry.moment, entry.seq)
        elif entry.run in found:
            _add(found[entry.run], entry)
    return tuple(found.values())


def _add(run: RunState, entry: JournalEntry) -> None:
    match entry.kind:
        case "change.intended":
            ref = _body(entry, ChangeRef)
            if ref not in run.intended:
                run.intended.append(ref)
            run.undone.discard(ref)
        case "undo.made" | "undo.left":
            run.undone.add(_body(entry, ChangeRef))
        case "proof.pending":
            run.pending = _body(entry, ProofStarted)
        case "proof.prover":
            run.prover = _body(entry, Prover)
        case "proof.stopped":
            run.reason = _body(entry, ProofStopped).reason
        case "verify.passed":
            run.verified = True
        case "rollback.begun":
            run.rollback = run.rollback or _body(entry, RollbackStarted)
            run.verified, run.outcome = False, None
        case "run.closed":
            closed = _body(entry, RunClosed)
            run.outcome, run.reason, run.code = closed.outcome, closed.reason, closed.code
            run.ended = entry.moment


def changed_instances(made: Iterable[JournalEntry]) -> dict[ChangeRef, str]:
    """The server process that each change was made on, from entries `change.made`; empty where it is not known."""
    ended = [_body(entry, WriteEnded) for entry in made]
    return {ChangeRef(one.stage, one.index): one.write.after.instance if one.write else "" for one in ended}


def unfinished(known: Iterable[RunState], target: Target) -> RunState | None:
    """The first run on `target` that must be recovered before another one may start there."""
    return next((run for run in known if run.open and run.plan.target.key == target.key), None)


def superseded_fields(runs: Sequence[RunState]) -> Mapping[str, frozenset[FieldKey]]:
    """By run: the fields that a later one of `runs` (oldest first) has changed too and that are still in effect."""
    later: frozenset[FieldKey] = frozenset()
    found: dict[str, frozenset[FieldKey]] = {}
    for run in reversed(runs):
        found[run.id] = later
        later |= changed_fields(run)
    return found


def superseding_run(run: RunState, others: Iterable[RunState]) -> RunState | None:
    """The latest run after `run` with a change in effect on a field that `run` has changed too."""
    mine = changed_fields(run)
    later = (one for one in others if one.order > run.order)
    return next((one for one in reversed(tuple(later)) if mine & changed_fields(one)), None)


def changed_fields(run: RunState) -> set[FieldKey]:
    """The fields that its changes in effect have set."""
    changes = (run.change(ref) for ref in run.in_effect)
    return {field_key(change.resource, field.name) for change in changes for field in change.fields}


def field_key(resource: str, name: str) -> FieldKey:
    """The key of a field, the same for every spelling of its resource."""
    return resource_key(resource), name


def resource_key(resource: str) -> str:
    """The key of a resource, the same for every spelling of its URL and every method that writes it."""
    url = resource.rpartition(" ")[2]
    return canonical_url(url) if "://" in url else resource


def last_breaker_reset(entries: Iterable[JournalEntry]) -> int:
    """The number of the entry by which the operator last reset the circuit breaker; 0 for never."""
    return max((entry.seq for entry in entries if entry.kind == "breaker.reset"), default=0)


def _body(entry: JournalEntry, kind: type[Body]) -> Body:
    return msgspec.json.decode(entry.body, type=kind)


_TEXTS = {
    "evidence.kept": "evidence saved: {path}",
    "before.longer": "few requests are answered: observations last {seconds:g} s instead of {usual:g} s",
    "proof.prover": "process {pid} goes on with the proof",
    "proof.stopped": "the proof cannot go on, nor can it be rolled back from here: {reason}",
    "stage.skipped": "stage {playbook} skipped: its cause is not present",
    "stage.verified": "stage {playbook} verified",
    "verify.passed": "verified",
    "verify.failed": "not verified: {reason}",
    "rollback.begun": "rolling back: {reason}",
    "undo.failed": "NOT rolled back: {step}: {why}",
    "undo.left": "left as it is: {step}: {why}",
    "run.refused": "refused: {reason} (guard {guard})",
    "run.closed": "ended: {outcome}",
}
_CHANGE_TEXTS = {
    "change.intended": "changing",
    "change.made": "changed",
    "undo.intended": "undoing",
    "undo.made": "undone",
}


def entry_text(entry: JournalEntry, plan: Plan | None = None) -> str:
    """The text of `entry`; its kind if this version does not know it.

    Raises KeyError, msgspec.ValidationError for an entry with the body of another version.
    """
    body: dict[str, Any] = msgspec.json.decode(entry.body)
    if entry.kind in _CHANGE_TEXTS:
        return _change_text(entry.kind, body, plan)
    if entry.kind == "run.opened":
        lasts = f" for {body['before']:.0f} s" if body.get("before") else ""
        return f"run {entry.run}: observing before the change{lasts}"
    if entry.kind == "proof.pending":
        return f"improved, but not beyond chance yet: the proof goes on, until {_clock(body['deadline'])} at the latest"
    if entry.kind == "before.measured":
        return "before: " + ", ".join(_measure_text(msgspec.convert(one, Measure)) for one in body["measures"][:4])
    if entry.kind == "before.history":
        return _history_text(body)
    if entry.kind == "settled":
        return "settled" if body["settled"] else "did not settle in time; verifying anyway"
    if entry.kind == "verify.window":
        return _window_text(body)
    return _TEXTS.get(entry.kind, entry.kind).format(**{**body, "run": entry.run})


def _history_text(body: dict[str, Any]) -> str:
    if not body["seconds"]:
        return "no history before the change, so the proof takes longer; a history: --prometheus URL"
    return f"history before the change: {body['seconds']:g} s from {body['source']}"


def _measure_text(one: Measure) -> str:
    return f"{one.signal} {show(one.signal, one.before)}"


def _change_text(kind: str, body: dict[str, Any], plan: Plan | None) -> str:
    step = f"change {body['index'] + 1}"
    if plan is not None:
        step = plan.stages[body["stage"]].changes[body["index"]].step
    return f"{_CHANGE_TEXTS[kind]} {step}"


def _window_text(body: dict[str, Any]) -> str:
    """With the reason, and until when the run waits for a better one."""
    why = _window_reason(body)
    waits = "until" in body and body["status"] not in (WindowStatus.SUCCESS, WindowStatus.ABORT)
    until = f", until {_clock(body['until'])}" if waits else ""
    return f"window: {body['status']}{f' ({why})' if why else ''}{until}"


def _clock(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%H:%M:%S} UTC"


def _window_reason(body: dict[str, Any]) -> str:
    if "why" in body:
        return str(body["why"])
    conditions = msgspec.convert(body.get("conditions", ()), tuple[ConditionResult, ...])
    aborted = body["status"] == WindowStatus.ABORT
    return "; ".join(one.summary for one in conditions if (one.status == HOLDS) is aborted)
