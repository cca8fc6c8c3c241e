"""Replicas that are ready ahead of a peak, and given back after it: by whatever decides the number of a workload.

That is its ScaledObject of KEDA or its HorizontalPodAutoscaler, whose minimum is raised, or nothing but the workload
itself, whose replicas are set. What is ready counts: a Pod that waits for a node is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes.capacity import capacity_refusals
from latdoctor.remediation.actions.kubernetes.cluster_object import MANAGER, ClusterObject
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.field_action import (
    Arguments,
    FieldsAction,
    path_in,
    present_number,
    whole_number,
)
from latdoctor.remediation.actions.kubernetes.fields import raw_at
from latdoctor.remediation.actions.kubernetes.keda import GROUP, scaled_object
from latdoctor.remediation.actions.kubernetes.owners import autoscaler_of, owner_refusals
from latdoctor.remediation.actions.kubernetes.rights import WORKLOAD, Right
from latdoctor.remediation.actions.kubernetes.scaling import MAXIMUM, MINIMUM, MOST, REPLICAS
from latdoctor.remediation.actions.kubernetes.workload import incomplete, is_observed, read_workload, workload_path
from latdoctor.remediation.change import Change, Deadline, State, Values
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_result import Reason

_KEDA_MINIMUM, _KEDA_MAXIMUM = "/spec/minReplicaCount", "/spec/maxReplicaCount"
_AUTOSCALERS, _BUDGETS = "horizontalpodautoscalers", "poddisruptionbudgets"
_UNSCHEDULABLE = "Unschedulable"
# Who sets replicas by hand: the other writers of the scale subresource are controllers.
_BY_HAND = ("kubectl", MANAGER)
_WAITING_SHOWN = 120  # characters of why a Pod waits


@dataclass(frozen=True, slots=True)
class _Decider:
    """The fields of a kind of object that decide the number of replicas, with their defaults."""

    least: str
    most: str = ""
    least_default: int | None = None
    most_default: int | None = None


_OF_KIND = {
    "ScaledObject": _Decider(_KEDA_MINIMUM, _KEDA_MAXIMUM, 0, 100),
    "HorizontalPodAutoscaler": _Decider(MINIMUM, MAXIMUM, 1),
}
_OF_WORKLOAD = _Decider(REPLICAS)
_DECIDERS = (*_OF_KIND.values(), _OF_WORKLOAD)


def _select(found: Object) -> tuple[str, ...]:
    one = _OF_KIND.get(str(found.get("kind")), _OF_WORKLOAD)
    return tuple(filter(None, (one.least, one.most)))


def _locate(connection: Connection, arguments: Arguments, deadline: Deadline) -> str:
    if path := scaled_object(connection, deadline):
        return path
    found = autoscaler_of(connection, deadline)
    return found[0] if found else workload_path(connection.workload)


def _chosen(choose: Callable[[int, int], int]) -> Callable[[Arguments, State], Values]:
    def desired(arguments: Arguments, state: State) -> Values:
        """Raises UsageError beyond the maximum of an autoscaler."""
        one = next(one for one in _DECIDERS if one.least in state.values)
        wanted = choose(
            present_number(state, one.least, one.least_default), whole_number("replicas", arguments, 0, MOST)
        )
        if one.most and wanted > (most := present_number(state, one.most, one.most_default)):
            raise UsageError(
                f"the autoscaler may have at most {most} replicas, and {wanted} are needed",
                next_step="first --playbook app.scale.hpa-raise-maximum, or --set replicas=N",
            )
        return {one.least: wanted}

    return desired


class ReadyReplicas(ClusterObject):
    """The object that decides the number of replicas; complete once as many are ready as it is set to."""

    __slots__ = ()

    def incomplete(self, deadline: Deadline) -> str:
        workload = read_workload(self.connection, deadline)
        if self.path == workload_path(self.connection.workload):
            waiting = incomplete(workload)
        else:
            found = self.connection.get(self.path, deadline)
            least = next((raw_at(found, one.least) for one in _DECIDERS if raw_at(found, one.least) is not None), 0)
            ready = int(raw_at(workload, "/status/readyReplicas") or 0)
            waiting = "" if is_observed(workload) and ready >= least else f"{ready} of {least} ready"
        if not waiting:
            return ""
        return "; ".join((waiting, *_unscheduled(self.connection, workload, deadline)))


def _unscheduled(connection: Connection, workload: Object, deadline: Deadline) -> Iterator[str]:
    """The Pods of the workload that no node takes, and why, in one text."""
    labels = raw_at(workload, "/spec/selector/matchLabels") or {}
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    path = f"/api/v1/namespaces/{connection.workload.namespace}/pods"
    waits = [
        str(condition.get("message", ""))
        for pod in connection.items(path, deadline, labelSelector=selector)
        for condition in raw_at(pod, "/status/conditions") or ()
        if condition.get("reason") == _UNSCHEDULABLE and condition.get("status") == "False"
    ]
    if waits:
        yield f"no node takes {len(waits)} of its Pods: {waits[0][:_WAITING_SHOWN]}"


def _objections_to_start(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    workload = read_workload(connection, deadline)
    yield from owner_refusals(workload)
    if path_in(change.resource, connection) == workload_path(connection.workload):
        yield from _scaled_by_another(workload)
    for waiting in _unscheduled(connection, workload, deadline):
        yield Refusal(Reason.NO_CAPACITY, f"{waiting}; more would wait too", "free resources, or add a node")
    wanted = max(int(one.after or 0) for one in change.fields)
    if (more := wanted - int(raw_at(workload, "/spec/replicas") or 0)) > 0:
        yield from capacity_refusals(connection, more, deadline)


def _scaled_by_another(workload: Object) -> Iterator[Refusal]:
    """A controller without an object that is known here (an operator's planner) sets the scale of the workload."""
    for entry in raw_at(workload, "/metadata/managedFields") or ():
        name = str(entry.get("manager", ""))
        if entry.get("subresource") == "scale" and _owns(entry, REPLICAS) and not name.startswith(_BY_HAND):
            yield Refusal(
                Reason.OWNED,
                f"{name} scales the workload and would put the number back",
                f"raise the least number of replicas in what {name} reads",
            )


def _objections_to_release(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    found = connection.get(path_in(change.resource, connection), deadline)
    yield from _set_by_another(found, change)
    yield from _budget_refusals(connection, change, deadline)


def _set_by_another(found: Object, change: Change) -> Iterator[Refusal]:
    """The refusal where another field manager has set the number since the standby replicas were started."""
    entries = raw_at(found, "/metadata/managedFields") or ()
    for one in change.fields:
        owners = {str(entry.get("manager")) for entry in entries if _owns(entry, one.name)}
        if others := sorted(owners - {MANAGER}):
            yield Refusal(
                Reason.OWNED,
                f"{', '.join(others)} has set {one.name} to {one.before} since",
                "if it may be lowered, do it by hand: kubectl scale, or the autoscaler's minimum",
            )


def _owns(entry: Any, pointer: str) -> bool:
    """Whether an entry of managedFields names the field at `pointer`."""
    fields = "".join(f"/f:{part}" for part in pointer.split("/")[1:])
    return raw_at(entry.get("fieldsV1") or {}, fields) is not None


def _budget_refusals(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    """A disruption budget that asks for more Pods than would be left."""
    left = min(int(one.after or 0) for one in change.fields)
    labels = raw_at(read_workload(connection, deadline), "/spec/template/metadata/labels") or {}
    versions = connection.versions("policy", deadline)
    version = next((one for one in ("v1", "v1beta1") if one in versions), "v1")
    path = f"/apis/policy/{version}/namespaces/{connection.workload.namespace}/{_BUDGETS}"
    for one in connection.items(path, deadline):
        selected = raw_at(one, "/spec/selector/matchLabels") or {}
        least = raw_at(one, "/spec/minAvailable")
        chosen = bool(selected) and all(labels.get(name) == value for name, value in selected.items())
        if chosen and isinstance(least, int) and least > left:
            name = raw_at(one, "/metadata/name")
            yield Refusal(
                Reason.OWNED,
                f"the disruption budget {name} wants {least} Pods available, and {left} would be left",
                f"lower it first: kubectl -n {connection.workload.namespace} edit pdb {name}",
            )


_RIGHTS = (
    Right("get", "apps", WORKLOAD),
    Right("patch", "apps", WORKLOAD),
    Right("list", "autoscaling", _AUTOSCALERS),
    Right("get", "autoscaling", _AUTOSCALERS),
    Right("patch", "autoscaling", _AUTOSCALERS),
    Right("list", GROUP, "scaledobjects"),
    Right("get", GROUP, "scaledobjects"),
    Right("patch", GROUP, "scaledobjects"),
    Right("list", "", "pods"),
)
AT_LEAST = FieldsAction(
    name="kubernetes.replicas.at-least",
    aspect="replicas",
    arguments={"replicas": "4"},
    locate=_locate,
    select=_select,
    desired=_chosen(max),
    rights=(
        *_RIGHTS,
        Right("list", "", "pods", cluster=True),
        Right("list", "", "nodes", cluster=True),
        Right("list", "", "resourcequotas"),
    ),
    objections=_objections_to_start,
    object_type=ReadyReplicas,
)
RELEASE = FieldsAction(
    name="kubernetes.replicas.release",
    aspect="replicas",
    arguments={"replicas": "2"},
    locate=_locate,
    select=_select,
    desired=_chosen(min),
    rights=(*_RIGHTS, Right("list", "policy", _BUDGETS)),
    objections=_objections_to_release,
    object_type=ReadyReplicas,
)
