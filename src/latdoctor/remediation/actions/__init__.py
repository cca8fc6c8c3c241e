"""The actions that a step of a playbook can use: one module per kind of resource, all actions listed in `ACTIONS`.

An action knows its resource and the fields that its arguments request. Planning, applying, undoing and recovering are
the same for all actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import (
    config_endpoint,
    http_json,
    operations,
    process,
    process_scheduling,
    router_scale,
)
from latdoctor.remediation.actions.kubernetes import arguments, eviction, keda, resources, rollout, scaling, standby
from latdoctor.remediation.change import Resource, State, Undo, Values
from latdoctor.remediation.target import Access, Target, TargetKind


class Action(Protocol):
    """What every action implements."""

    @property
    def name(self) -> str:
        """The name in playbooks: `server.config.set`."""

    @property
    def kinds(self) -> frozenset[TargetKind]:
        """The kinds of target that it supports."""

    @property
    def undos(self) -> frozenset[Undo]:
        """How a step with this action may be undone."""

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        """Yield the problems of a step's arguments, without a target. `$name` may stand for any value."""

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        """Return the id of the resource that a step with these arguments changes. Raises UsageError."""

    def resource(self, access: Access, resource_id: str) -> Resource:
        """Return the resource with an id from `resource_id`: now, or after a crash, from the journal."""

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        """Return the fields that the arguments request, with the types that they have in `state`.

        Raises UsageError for an unknown field and for a value of the wrong type.
        """


ACTIONS: tuple[Action, ...] = (
    config_endpoint.SERVER_CONFIG,
    config_endpoint.ROUTER_CONFIG,
    operations.WARM_UP,
    operations.RESTART_WORKER,
    operations.RELOAD,
    operations.SET_DRAINING,
    operations.REPLACE_REPLICA,
    router_scale.AT_LEAST,
    router_scale.RELEASE,
    process_scheduling.AFFINITY,
    process_scheduling.NICE,
    process.SIGNAL,
    process.STOP,
    http_json.SET_JSON,
    scaling.ADD_REPLICAS,
    scaling.RAISE_MAXIMUM,
    scaling.RAISE_MINIMUM,
    standby.AT_LEAST,
    standby.RELEASE,
    rollout.UNDO,
    rollout.PAUSE,
    rollout.SLOW_DOWN,
    rollout.DRAIN_SAFE,
    arguments.SET_ARGUMENT,
    resources.RAISE_MEMORY,
    resources.SET_DEVICE,
    resources.SET_PRIORITY,
    resources.RAISE_QUOTA,
    eviction.EVICT_POD,
    eviction.CORDON,
    eviction.DRAIN,
    keda.PAUSE,
)


def find_action(name: str) -> Action | None:
    """The action with this name in playbooks."""
    return next((one for one in ACTIONS if one.name == name), None)


def require_action(name: str) -> Action:
    """The action with this name. Raises UsageError if this version does not have it."""
    found = find_action(name)
    if found is None:
        raise UsageError(f"unknown action {name!r}", next_step="latdoctor playbooks lint")
    return found
