"""A rollout: undone, paused, slowed down, or made safe for the requests in progress."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.actions.kubernetes.cluster_object import ClusterObject
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.field_action import Arguments, FieldsAction, whole_number
from latdoctor.remediation.actions.kubernetes.fields import compact, raw_at, to_raw, without
from latdoctor.remediation.actions.kubernetes.rights import WORKLOAD, Right
from latdoctor.remediation.actions.kubernetes.scaling import REPLICAS, locate_workload
from latdoctor.remediation.actions.kubernetes.workload import (
    UNSEEN,
    chosen_container,
    container_pointers,
    is_observed,
    workload_path,
)
from latdoctor.remediation.change import Deadline, State, Value, Values

TEMPLATE = "/spec/template"
PAUSED = "/spec/paused"
GRACE = "/spec/template/spec/terminationGracePeriodSeconds"
_STRATEGY = "/spec/strategy/rollingUpdate/"
_LIMITS = (f"{_STRATEGY}maxUnavailable", f"{_STRATEGY}maxSurge")
_MIN_READY = "/spec/minReadySeconds"
_REVISION = "revision "  # field: the template of an earlier revision, which is read and never written
_NUMBER = "/metadata/annotations/deployment.kubernetes.io~1revision"
_HASH = "/metadata/labels/pod-template-hash"
LONGEST = 3600  # seconds
WORKLOAD_RIGHTS = (Right("get", "apps", WORKLOAD), Right("patch", "apps", WORKLOAD))


class RevisionedTemplate(ClusterObject):
    """The template of a Deployment, and those of its earlier revisions."""

    __slots__ = ()

    def read(self, deadline: Deadline) -> State:
        found = self.connection.get(self.path, deadline)
        state = self.state(found)
        earlier: dict[str, Value] = dict(_revisions(self.connection, found, deadline))
        return State(
            {**state.values, **earlier},
            state.version,
            state.caution,
            rest=state.rest,
            instance=state.instance,
        )


class RolloutStrategy(ClusterObject):
    """How a Deployment replaces its Pods: in effect as soon as its controller has seen it."""

    __slots__ = ()

    def incomplete(self, deadline: Deadline) -> str:
        return "" if is_observed(self.connection.get(self.path, deadline)) else UNSEEN


def _revisions(connection: Connection, deployment: Object, deadline: Deadline) -> Iterator[tuple[str, str]]:
    """The templates of the ReplicaSets of a Deployment, without the label that tells their Pods apart."""
    path = f"/apis/apps/v1/namespaces/{connection.workload.namespace}/replicasets"
    for one in connection.items(path, deadline):
        owners = {owner.get("uid") for owner in raw_at(one, "/metadata/ownerReferences") or ()}
        number = str(raw_at(one, _NUMBER) or "")
        if raw_at(deployment, "/metadata/uid") in owners and number.isdecimal():
            yield f"{_REVISION}{number}", compact(without(raw_at(one, TEMPLATE), [_HASH]))


def locate_deployment(connection: Connection, arguments: Arguments, deadline: Deadline) -> str:
    workload = connection.workload
    if workload.kind != "deployments":
        raise UsageError(f"{workload} is no Deployment", next_step="kubectl rollout undo does it for a StatefulSet")
    return workload_path(workload)


def _previous_template(arguments: Arguments, state: State) -> Values:
    """The template of the requested revision; by default of the latest one that differs from the present template."""
    revisions = {
        int(name.removeprefix(_REVISION)): value
        for name, value in state.values.items()
        if name.startswith(_REVISION) and value != state.values[TEMPLATE]
    }
    wanted = arguments.get("revision", "previous")
    if not revisions:
        raise UsageError("there is no earlier revision with another template", next_step="kubectl rollout history")
    if wanted == "previous":
        return {TEMPLATE: revisions[max(revisions)]}
    if not wanted.isdecimal() or int(wanted) not in revisions:
        known = ", ".join(map(str, sorted(revisions)))
        raise UsageError(f"there is no earlier revision {wanted!r}", next_step=f"previous, or one of {known}")
    return {TEMPLATE: revisions[int(wanted)]}


def _paused(arguments: Arguments, state: State) -> Values:
    return {PAUSED: True if field_values.parse("paused", arguments.get("paused", ""), True) else None}


def _slower(arguments: Arguments, state: State) -> Values:
    """At most that share of the Pods at once, where it is more now."""
    share = field_values.parse_number("share", arguments.get("share", ""))
    if not 0.01 <= share <= 1 / 3:
        raise UsageError(f"share must be from 1% to 33% (got {arguments.get('share')!r})")
    count = int(state.values[REPLICAS] or 0)
    if any(state.values[one] is None for one in _LIMITS):
        raise UsageError("the strategy is not RollingUpdate", next_step="kubectl explain deployment.spec.strategy")
    text = f"{math.floor(share * 100)}%"
    values: dict[str, Value] = {one: text for one in _LIMITS if _share_of(state.values[one], count) > share}
    pause = whole_number("min_ready_seconds", arguments, 0, LONGEST) if "min_ready_seconds" in arguments else 0
    if pause > int(state.values[_MIN_READY] or 0):
        values[_MIN_READY] = pause
    return values


def _share_of(value: Value, count: int) -> float:
    """The share of `count` Pods that `maxSurge: 25%` or `maxSurge: 1` stands for."""
    if isinstance(value, str) and value.endswith("%"):
        return float(value[:-1]) / 100
    return int(value or 0) / max(1, count)


def _drain_safe(arguments: Arguments, state: State) -> Values:
    """A pause between the end of routing and the end of the process, and time for the requests in progress."""
    container = chosen_container(arguments, state, "lifecycle")
    pause = whole_number("pre_stop_seconds", arguments, 1, LONGEST)
    grace = whole_number("grace_seconds", arguments, 2, LONGEST)
    if grace <= pause:
        raise UsageError(f"grace_seconds ({grace}) must be more than pre_stop_seconds ({pause})")
    lifecycle = to_raw("", state.values[f"{container}/lifecycle"]) or {}
    values: dict[str, Value] = {}
    if "preStop" not in lifecycle:
        hook = {"exec": {"command": ["sleep", str(pause)]}}
        values[f"{container}/lifecycle"] = compact({**lifecycle, "preStop": hook})
    if int(state.values[GRACE] or 0) < grace:
        values[GRACE] = grace
    return values


def _selects(*pointers: str, containers: tuple[str, ...] = ()) -> Any:
    return lambda found: (*pointers, *container_pointers(found, *containers))


UNDO = FieldsAction(
    name="kubernetes.rollout.undo",
    aspect="template",
    arguments={"revision": "previous"},
    optional=frozenset({"revision"}),
    locate=locate_deployment,
    select=lambda _: (TEMPLATE,),
    desired=_previous_template,
    rights=(
        Right("get", "apps", "deployments"),
        Right("patch", "apps", "deployments"),
        Right("list", "apps", "replicasets"),
    ),
    object_type=RevisionedTemplate,
)
PAUSE = FieldsAction(
    name="kubernetes.rollout.pause",
    aspect="rollout",
    arguments={"paused": "true"},
    locate=locate_deployment,
    select=lambda _: (PAUSED,),
    desired=_paused,
    rights=(Right("get", "apps", "deployments"), Right("patch", "apps", "deployments")),
)
SLOW_DOWN = FieldsAction(
    name="kubernetes.rollout.slow-down",
    aspect="strategy",
    arguments={"share": "33%", "min_ready_seconds": "10s"},
    optional=frozenset({"min_ready_seconds"}),
    locate=locate_deployment,
    select=lambda _: (REPLICAS, _MIN_READY, *_LIMITS),
    desired=_slower,
    rights=(Right("get", "apps", "deployments"), Right("patch", "apps", "deployments")),
    object_type=RolloutStrategy,
)
DRAIN_SAFE = FieldsAction(
    name="kubernetes.rollout.drain-safe",
    aspect="lifecycle",
    arguments={"container": "server", "pre_stop_seconds": "10s", "grace_seconds": "60s"},
    optional=frozenset({"container"}),
    locate=locate_workload,
    select=_selects(GRACE, containers=("lifecycle",)),
    desired=_drain_safe,
    rights=WORKLOAD_RIGHTS,
)
