"""From a playbook and a target to a Plan: every change with its old and new values, before anything is done."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.evidence.model import to_json
from latdoctor.remediation.actions import Action, require_action
from latdoctor.remediation.change import Change, Deadline, Field, State, Undo, Value, has_values
from latdoctor.remediation.parameters import filled, typed
from latdoctor.remediation.playbook import Playbook, Scalar, Step
from latdoctor.remediation.playbook_loader import Library
from latdoctor.remediation.target import Access, Target, host_and_port

PATIENCE = 10.0  # seconds for each reading


class Because(Struct, frozen=True):
    """The diagnosis that a plan answers to: of what, and where that was seen."""

    run_id: str
    cause: str
    probability: float
    seen: float  # when its evidence ended, unix seconds
    target: str = ""
    subjects: tuple[str, ...] = ()  # of the cause: replica/0@127.0.0.1:8000
    places: tuple[str, ...] = ()  # `host:port` of every server that it saw, as target.host_and_port has it

    def saw(self, admin: str) -> bool:
        """Whether the server at `admin` is one of those that the diagnosis is of."""
        return host_and_port(admin) in self.places


class StagePlan(Struct, frozen=True):
    """What one playbook changes. A plain playbook has one stage."""

    playbook: str
    parameters: dict[str, Scalar]
    changes: tuple[Change, ...]


class Plan(Struct, frozen=True):
    """What will be done, whole: what is approved is what is executed. `digest` tells one from another."""

    playbook: str
    playbook_digest: str
    title: str
    target: Target
    risk: str
    disruption: str
    effect: str
    stages: tuple[StagePlan, ...]
    made_at: float  # unix seconds
    because: Because | None = None

    @property
    def digest(self) -> str:
        return hashlib.sha256(to_json(self)).hexdigest()

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for stage in self.stages for change in stage.changes)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What somebody wants done: a playbook with some of its parameters set (`--set name=value`)."""

    playbook: Playbook
    given: Mapping[str, str]
    because: Because | None = None


def planned(asked: PlanRequest, library: Library, access: Access, now: float) -> Plan:
    """Reads how the target stands; changes nothing. Raises UsageError, and OperationError where it cannot be read."""
    book = asked.playbook
    if access.target.kind not in book.targets:
        raise UsageError(
            f"{book.id} is for {', '.join(book.targets)}, and {access.target.name} is a {access.target.kind}",
            next_step="latdoctor playbooks list",
        )
    seen = _Seen(access)
    parameters = typed(book, asked.given)
    if book.stages:
        stages = tuple(_stage(inner, filled(stage, book, parameters), seen) for stage, inner in library.stages(book))
    else:
        stages = (_stage(book, asked.given, seen),)
    return Plan(
        playbook=book.id,
        playbook_digest=book.digest,
        title=book.title,
        target=access.target,
        risk=book.risk,
        disruption=book.disruption,
        effect=book.effect,
        stages=stages,
        made_at=now,
        because=asked.because,
    )


def _stage(book: Playbook, given: Mapping[str, str], seen: _Seen) -> StagePlan:
    parameters = typed(book, given)
    changes = (seen.change(step, filled(step, book, parameters)) for step in book.steps)
    return StagePlan(book.id, dict(parameters), tuple(change for change in changes if change.fields))


class _Seen:
    """The target as it stands, and as the steps planned so far will leave it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._states: dict[str, State] = {}

    def change(self, step: Step, given: Mapping[str, str]) -> Change:
        """What `step` changes; without fields where all is so already."""
        act = require_action(step.action)
        where = act.resource_id(self._access.target, given)
        state = self._state(act, where)
        wanted = act.desired_values(given, state)
        fields = tuple(
            Field(name, state.values.get(name), value)
            for name, value in wanted.items()
            if not has_values(state.values, {name: value})
        )
        changed: dict[str, Value] = {field.name: field.after for field in fields}
        self._states[where] = State({**state.values, **changed}, state.version, state.caution)
        return Change(step.id, step.action, where, fields, Undo(step.undo), state.version, state.caution)

    def _state(self, act: Action, where: str) -> State:
        if where not in self._states:
            self._states[where] = act.resource(self._access, where).read(Deadline.after(PATIENCE))
        return self._states[where]
