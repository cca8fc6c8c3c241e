"""From a playbook and a target to a plan: every change with its old and new values, before anything is changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import UNSET, Struct, UnsetType, field

from latdoctor.errors import UsageError
from latdoctor.evidence.model import to_json
from latdoctor.journal.entry import Moment
from latdoctor.remediation.actions import Action, require_action
from latdoctor.remediation.change import Change, Deadline, Field, State, Value, has_values
from latdoctor.remediation.parameters import parameter_values, substituted
from latdoctor.remediation.playbook import Disruption, Playbook, Risk, Scalar, Step
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.standby import ForecastRef
from latdoctor.remediation.target import Access, Target, host_and_port

READ_TIMEOUT = 10.0  # seconds for each resource


class DiagnosisRef(Struct, frozen=True):
    """The diagnosis behind a plan: its cause, and the servers it was made of."""

    run_id: str
    cause: str
    probability: float
    evidence_end: float = field(name="seen")  # unix seconds
    target: str = ""
    subjects: tuple[str, ...] = ()  # of the cause: replica/0@127.0.0.1:8000
    servers: tuple[str, ...] = field(default=(), name="places")  # `host:port`, as target.host_and_port spells it
    named: tuple[str, ...] = ()  # the subjects, and what the evidence was read on: node/gpu-7@CLUSTER
    workloads: tuple[str, ...] = ()  # on Kubernetes: `prod/deployment/chat@CLUSTER`

    def covers(self, admin: str) -> bool:
        """Whether the server at `admin` is one of those that were diagnosed."""
        return host_and_port(admin) in self.servers


class StagePlan(Struct, frozen=True):
    """The changes of one playbook. A plain playbook has one stage."""

    playbook: str
    parameters: dict[str, Scalar]
    changes: tuple[Change, ...]


class Plan(Struct, frozen=True):
    """The whole of what a run will do: the approved plan is executed unchanged, which `digest` verifies."""

    playbook: str
    playbook_digest: str
    title: str
    target: Target
    risk: Risk
    disruption: Disruption
    effect: str
    stages: tuple[StagePlan, ...]
    created_at: float = field(name="made_at")  # unix seconds
    diagnosis: DiagnosisRef | None = field(default=None, name="because")
    moment: Moment | UnsetType = UNSET  # `created_at` by the clock that is never set; version 0.1 did not record it
    forecast: ForecastRef | UnsetType = UNSET  # what replicas are started ahead of
    releases: str | UnsetType = UNSET  # the run whose standby replicas are given back

    @property
    def digest(self) -> str:
        return hashlib.sha256(to_json(self)).hexdigest()

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for stage in self.stages for change in stage.changes)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A playbook with some of its parameters set (`--set name=value`), and what justifies it: the diagnosis or the
    forecast behind it, and the run that it `releases`."""

    playbook: Playbook
    settings: Mapping[str, str]
    diagnosis: DiagnosisRef | None = None
    forecast: ForecastRef | UnsetType = UNSET
    releases: str | UnsetType = UNSET


def build_plan(
    request: PlanRequest, library: Library, access: Access, now: float, moment: Moment | UnsetType = UNSET
) -> Plan:
    """Read the target and plan the changes; write nothing. `moment` is `now` with its monotonic clock.

    Raises UsageError, OperationError if the target cannot be read.
    """
    playbook = request.playbook
    if access.target.kind not in playbook.targets:
        raise UsageError(
            f"{playbook.id} supports {', '.join(playbook.targets)}; {access.target.name} is of kind"
            f" {access.target.kind}",
            next_step="latdoctor playbooks list",
        )
    state = _PlannedState(access)
    values = parameter_values(playbook, request.settings)
    if playbook.stages:
        stages = tuple(
            _plan_stage(other, substituted(stage, playbook, values), state) for stage, other in library.stages(playbook)
        )
    else:
        stages = (_plan_stage(playbook, request.settings, state),)
    return Plan(
        playbook=playbook.id,
        playbook_digest=playbook.digest,
        title=playbook.title,
        target=access.target,
        risk=playbook.risk,
        disruption=playbook.disruption,
        effect=str(playbook.effect),
        stages=stages,
        created_at=now,
        diagnosis=request.diagnosis,
        moment=moment,
        forecast=request.forecast,
        releases=request.releases,
    )


def _plan_stage(playbook: Playbook, settings: Mapping[str, str], state: _PlannedState) -> StagePlan:
    values = parameter_values(playbook, settings)
    changes = (state.plan(step, substituted(step, playbook, values)) for step in playbook.steps)
    return StagePlan(playbook.id, dict(values), tuple(change for change in changes if change.fields))


class _PlannedState:
    """The target's state after the steps planned so far."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._states: dict[str, State] = {}

    def plan(self, step: Step, arguments: Mapping[str, str]) -> Change:
        """The change that `step` makes; without fields if the target already has all values."""
        action = require_action(step.action)
        resource = action.resource_id(self._access.target, arguments)
        state = self._read(action, resource)
        desired = action.desired_values(arguments, state)
        fields = tuple(
            Field(name, state.values.get(name), value)
            for name, value in desired.items()
            if not has_values(state.values, {name: value})
        )
        changed: dict[str, Value] = {field.name: field.after for field in fields}
        self._states[resource] = State({**state.values, **changed}, state.version, state.caution)
        return Change(step.id, step.action, resource, fields, step.undo, state.version, state.caution)

    def _read(self, action: Action, resource: str) -> State:
        if resource not in self._states:
            self._states[resource] = action.resource(self._access, resource).read(Deadline.after(READ_TIMEOUT))
        return self._states[resource]
