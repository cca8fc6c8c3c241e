"""The number of replicas: set by hand, or by the minimum and the maximum of an autoscaler."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes.capacity import capacity_refusals
from latdoctor.remediation.actions.kubernetes.cluster_object import ClusterObject
from latdoctor.remediation.actions.kubernetes.connection import Connection
from latdoctor.remediation.actions.kubernetes.field_action import (
    Arguments,
    FieldsAction,
    present_number,
    whole_number,
)
from latdoctor.remediation.actions.kubernetes.owners import autoscaler_of, autoscaler_refusals, owner_refusals
from latdoctor.remediation.actions.kubernetes.rights import WORKLOAD, Right
from latdoctor.remediation.actions.kubernetes.workload import incomplete, read_workload, workload_path
from latdoctor.remediation.change import Change, Deadline, State, Values
from latdoctor.remediation.refusal import Refusal

REPLICAS = "/spec/replicas"
MINIMUM, MAXIMUM = "/spec/minReplicas", "/spec/maxReplicas"
MOST = 1000  # replicas that are added at once
_AUTOSCALERS = "horizontalpodautoscalers"
_READ = (
    Right("list", "autoscaling", _AUTOSCALERS),
    Right("list", "", "pods", cluster=True),
    Right("list", "", "nodes", cluster=True),
    Right("list", "", "resourcequotas"),
)


class Autoscaler(ClusterObject):
    """A HorizontalPodAutoscaler; complete once it does not ask for more than it may, and its workload is complete."""

    __slots__ = ()

    def incomplete(self, deadline: Deadline) -> str:
        found = self.connection.get(self.path, deadline)
        status, spec = found.get("status") or {}, found["spec"]
        desired, current = int(status.get("desiredReplicas") or 0), int(status.get("currentReplicas") or 0)
        if desired < int(spec.get("minReplicas") or 1):
            return f"the autoscaler asks for {desired} replicas and has not seen the change yet"
        limited = any(one.get("reason") == "TooManyReplicas" for one in status.get("conditions") or ())
        if limited and desired < int(spec["maxReplicas"]):
            return f"the autoscaler asks for {desired} replicas, its former maximum"
        return (
            f"{current} of {desired} replicas"
            if current != desired
            else incomplete(read_workload(self.connection, deadline))
        )


def locate_workload(connection: Connection, arguments: Arguments, deadline: Deadline) -> str:
    return workload_path(connection.workload)


def _locate_autoscaler(connection: Connection, arguments: Arguments, deadline: Deadline) -> str:
    found = autoscaler_of(connection, deadline)
    if found is None:
        raise UsageError(
            f"no HorizontalPodAutoscaler scales {connection.workload}",
            next_step="--playbook app.scale.out adds replicas",
        )
    return found[0]


def _raised(pointer: str, default: int | None = None) -> Callable[[Arguments, State], Values]:
    def desired(arguments: Arguments, state: State) -> Values:
        return {pointer: present_number(state, pointer, default) + whole_number("add", arguments, 1, MOST)}

    return desired


def _raised_minimum(arguments: Arguments, state: State) -> Values:
    """Raises UsageError beyond the maximum."""
    values = _raised(MINIMUM, 1)(arguments, state)
    if present_number(state, MAXIMUM) < int(values[MINIMUM] or 0):
        raise UsageError(
            f"the minimum cannot be {values[MINIMUM]}: the maximum is {state.values[MAXIMUM]}",
            next_step="first --playbook app.scale.hpa-raise-maximum",
        )
    return values


def _added(change: Change) -> int:
    return sum(int(one.after or 0) - int(one.before or 0) for one in change.fields)


def _objections_to_replicas(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    yield from autoscaler_refusals(connection, deadline)
    yield from capacity_refusals(connection, _added(change), deadline)


def _objections_to_bounds(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    yield from owner_refusals(read_workload(connection, deadline))
    yield from capacity_refusals(connection, 1, deadline)


ADD_REPLICAS = FieldsAction(
    name="kubernetes.replicas.add",
    aspect="replicas",
    arguments={"add": "2"},
    locate=locate_workload,
    select=lambda _: (REPLICAS,),
    desired=_raised(REPLICAS),
    rights=(Right("get", "apps", WORKLOAD), Right("patch", "apps", WORKLOAD), *_READ),
    objections=_objections_to_replicas,
)
_HPA_RIGHTS = (
    Right("get", "autoscaling", _AUTOSCALERS),
    Right("patch", "autoscaling", _AUTOSCALERS),
    Right("get", "apps", WORKLOAD),
    *_READ,
)
RAISE_MAXIMUM = FieldsAction(
    name="kubernetes.autoscaler.maximum.raise",
    aspect="bounds",
    arguments={"add": "2"},
    locate=_locate_autoscaler,
    select=lambda _: (MINIMUM, MAXIMUM),
    desired=_raised(MAXIMUM),
    rights=_HPA_RIGHTS,
    objections=_objections_to_bounds,
    object_type=Autoscaler,
)
RAISE_MINIMUM = FieldsAction(
    name="kubernetes.autoscaler.minimum.raise",
    aspect="bounds",
    arguments={"add": "2"},
    locate=_locate_autoscaler,
    select=lambda _: (MINIMUM, MAXIMUM),
    desired=_raised_minimum,
    rights=_HPA_RIGHTS,
    objections=_objections_to_bounds,
    object_type=Autoscaler,
)
