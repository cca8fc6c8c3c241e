"""What Pods may use: memory, MIG slices and GPUs, their priority, and the quota of the namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from latdoctor.errors import UsageError
from latdoctor.kubernetes_quantity import quantity
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.actions.kubernetes.capacity import device_refusals, fitting_nodes
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.field_action import Arguments, FieldsAction, whole_number
from latdoctor.remediation.actions.kubernetes.fields import escaped, raw_at
from latdoctor.remediation.actions.kubernetes.rights import Right
from latdoctor.remediation.actions.kubernetes.rollout import WORKLOAD_RIGHTS
from latdoctor.remediation.actions.kubernetes.scaling import REPLICAS, locate_workload
from latdoctor.remediation.actions.kubernetes.workload import (
    chosen_container,
    container_pointers,
    read_workload,
)
from latdoctor.remediation.change import Change, Deadline, State, Value, Values
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_result import Reason

_LIMIT, _REQUEST = "resources/limits/memory", "resources/requests/memory"
_PRIORITY = "/spec/template/spec/priorityClassName"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_DEVICES = ("nvidia.com/", "amd.com/", "intel.com/", "gpu.intel.com/")  # resources of which a container has one kind
_GROWTH = (1.05, 8.0)
_SIZES = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10), ("", 1))
_READ_NODES = (Right("list", "", "nodes", cluster=True), Right("list", "", "pods", cluster=True))


def bytes_text(number: float) -> str:
    """A number of bytes as the API server writes it: in the largest binary unit without a fraction."""
    whole = round(number)
    return next(f"{whole // size}{unit}" for unit, size in _SIZES if whole % size == 0)


def _more_memory(arguments: Arguments, state: State) -> Values:
    """The limit times a factor, and a request that equals it, so that the class of service stays."""
    container = chosen_container(arguments, state, _LIMIT)
    factor = field_values.parse_number("factor", arguments.get("factor", ""))
    if not _GROWTH[0] <= factor <= _GROWTH[1]:
        raise UsageError(f"factor must be from {_GROWTH[0]:g} to {_GROWTH[1]:g} (got {arguments.get('factor')!r})")
    limit, request = state.values[f"{container}/{_LIMIT}"], state.values[f"{container}/{_REQUEST}"]
    size = quantity(limit) if limit is not None else None
    if size is None:
        raise UsageError(f"{container.rpartition('/')[2]} has no memory limit", next_step="find another cause")
    raised = bytes_text(round(size * factor / 2**20) * 2**20 if size >= 2**20 else size * factor)
    values: dict[str, Value] = {f"{container}/{_LIMIT}": raised}
    if request is not None and quantity(request) == size:
        values[f"{container}/{_REQUEST}"] = raised
    return values


def _no_node_has_that_memory(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    """A Pod that requests more than any node has is never placed."""
    wanted = max((quantity(one.after) or 0.0 for one in change.fields if one.name.endswith(_REQUEST)), default=0.0)
    spec = raw_at(read_workload(connection, deadline), "/spec/template/spec") or {}
    nodes = fitting_nodes(connection, spec, deadline)
    largest = max((quantity(raw_at(one, "/status/allocatable/memory")) or 0.0 for one in nodes), default=0.0)
    if wanted > largest:
        reason = (
            f"the request of {bytes_text(wanted)} is more than the {bytes_text(largest)} of the largest fitting node"
        )
        yield Refusal(Reason.NO_CAPACITY, reason, "a smaller factor, or a larger node")


def _device_pointers(found: Object) -> Sequence[str]:
    """The limits and requests of devices, and the number of replicas that need them."""
    pointers = [REPLICAS]
    for container in container_pointers(found, "resources"):
        for part in ("limits", "requests"):
            held = raw_at(found, f"{container}/{part}") or {}
            pointers += [f"{container}/{part}/{escaped(name)}" for name in held if name.startswith(_DEVICES)]
    return pointers


def _other_device(arguments: Arguments, state: State) -> Values:
    """So many of another resource in place of the GPUs or slices that the container has now."""
    resource, count = arguments.get("resource", ""), whole_number("count", arguments, 1, 64)
    if not resource.startswith(_DEVICES):
        raise UsageError(f"resource must be one of a device, such as nvidia.com/mig-1g.5gb (got {resource!r})")
    holders = {one.partition("/resources/")[0] for one in state.values if "/resources/" in one}
    names = {one.rpartition("/")[2]: one for one in holders}
    container = names.get(arguments.get("container", "") or (next(iter(names)) if len(names) == 1 else ""))
    if container is None:
        known = ", ".join(sorted(names)) or "none"
        raise UsageError(f"name the container whose devices are replaced (with devices: {known})")
    held = [one for one in state.values if one.startswith(f"{container}/resources/")]
    values: dict[str, Value] = dict.fromkeys(held)
    parts = {one.removeprefix(f"{container}/resources/").partition("/")[0] for one in held}
    return {**values, **{f"{container}/resources/{part}/{escaped(resource)}": str(count) for part in sorted(parts)}}


def _no_free_device(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    """Each replica needs the new resource before the rollout ends its predecessor."""
    spec = raw_at(read_workload(connection, deadline), "/spec/template/spec") or {}
    wanted = {
        one.name.rpartition("/")[2].replace("~1", "/"): quantity(one.after) or 0.0
        for one in change.fields
        if one.after is not None
    }
    yield from device_refusals(connection, spec, wanted, 1, deadline)


def _priority(arguments: Arguments, state: State) -> Values:
    return {_PRIORITY: arguments.get("class", "")}


def _unknown_class(connection: Connection, change: Change, deadline: Deadline) -> Iterator[Refusal]:
    names = [str(raw_at(one, "/metadata/name")) for one in connection.items(_CLASSES, deadline)]
    wanted = next(str(one.after) for one in change.fields)
    if wanted not in names:
        yield Refusal(Reason.NO_CAPACITY, f"there is no PriorityClass {wanted}", f"one of {', '.join(sorted(names))}")


def _locate_quota(connection: Connection, arguments: Arguments, deadline: Deadline) -> str:
    """Raises UsageError where the namespace has no such quota."""
    path = f"/api/v1/namespaces/{connection.workload.namespace}/resourcequotas"
    names = [str(raw_at(one, "/metadata/name")) for one in connection.items(path, deadline)]
    if arguments.get("quota") not in names:
        known = ", ".join(sorted(names)) or "none"
        raise UsageError(f"there is no quota {arguments.get('quota')!r} in {connection.workload.namespace} ({known})")
    return f"{path}/{arguments['quota']}"


def _hard(found: Object) -> Sequence[str]:
    return [f"/spec/hard/{escaped(name)}" for name in raw_at(found, "/spec/hard") or {}]


def _more_quota(arguments: Arguments, state: State) -> Values:
    """The hard limit of one resource plus `add`, in the unit of that resource."""
    resource = arguments.get("resource", "")
    pointer = f"/spec/hard/{escaped(resource)}"
    present = state.values.get(pointer)
    if present is None:
        known = ", ".join(one.rpartition("/")[2].replace("~1", "/") for one in state.values)
        raise UsageError(f"the quota does not limit {resource!r}", next_step=f"one of {known}")
    now, more = quantity(present), quantity(arguments.get("add", ""))
    if now is None or more is None or more <= 0:
        raise UsageError(f"add must be a quantity greater than 0, such as 2 or 16Gi (got {arguments.get('add')!r})")
    total = now + more
    memory = resource.endswith(("memory", "storage"))
    return {pointer: bytes_text(total) if memory else f"{total:g}" if total.is_integer() else f"{total * 1000:.0f}m"}


def _containers(*fields: str) -> Callable[[Object], Sequence[str]]:
    return lambda found: container_pointers(found, *fields)


RAISE_MEMORY = FieldsAction(
    name="kubernetes.memory.raise",
    aspect="memory",
    arguments={"container": "server", "factor": "1.5"},
    optional=frozenset({"container"}),
    locate=locate_workload,
    select=_containers(_LIMIT, _REQUEST),
    desired=_more_memory,
    rights=(*WORKLOAD_RIGHTS, Right("list", "", "nodes", cluster=True)),
    objections=_no_node_has_that_memory,
)
SET_DEVICE = FieldsAction(
    name="kubernetes.device.set",
    aspect="devices",
    arguments={"container": "server", "resource": "nvidia.com/mig-1g.5gb", "count": "1"},
    optional=frozenset({"container"}),
    locate=locate_workload,
    select=_device_pointers,
    desired=_other_device,
    rights=(*WORKLOAD_RIGHTS, *_READ_NODES),
    objections=_no_free_device,
)
SET_PRIORITY = FieldsAction(
    name="kubernetes.priority.set",
    aspect="priority",
    arguments={"class": "inference"},
    locate=locate_workload,
    select=lambda _: (_PRIORITY,),
    desired=_priority,
    rights=(*WORKLOAD_RIGHTS, Right("list", "scheduling.k8s.io", "priorityclasses", cluster=True)),
    objections=_unknown_class,
)
RAISE_QUOTA = FieldsAction(
    name="kubernetes.quota.raise",
    aspect="quota",
    arguments={"quota": "team", "resource": "requests.nvidia.com/gpu", "add": "2"},
    locate=_locate_quota,
    select=_hard,
    desired=_more_quota,
    rights=(
        Right("list", "", "resourcequotas"),
        Right("get", "", "resourcequotas"),
        Right("patch", "", "resourcequotas"),
    ),
)
