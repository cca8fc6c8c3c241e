"""Whether the cluster has room for more Pods of a workload: quotas of the namespace, and free extended resources.

A dry run sees neither. Processors and memory of the nodes are left to the scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from latdoctor.kubernetes_quantity import quantity
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.fields import raw_at
from latdoctor.remediation.actions.kubernetes.workload import read_workload
from latdoctor.remediation.change import Deadline
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_result import Reason

_ENDED = ("Succeeded", "Failed")
Amounts = Mapping[str, float]


def capacity_refusals(connection: Connection, pods: int, deadline: Deadline) -> Iterator[Refusal]:
    """Why `pods` more Pods of the workload would not be created or placed."""
    spec = raw_at(read_workload(connection, deadline), "/spec/template/spec") or {}
    requests, limits = amounts(spec, "requests"), amounts(spec, "limits")
    yield from _quota_refusals(connection, requests, limits, pods, deadline)
    yield from device_refusals(connection, spec, requests, pods, deadline)


def amounts(spec: Mapping[str, Any], part: str) -> Amounts:
    """By resource, what the containers of a Pod request (`part` requests) or may use at most (limits), in base units.

    An extended resource, and any resource without a request, is requested as its limit says.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        chosen = {**(resources.get("limits") or {}), **(resources.get(part) or {})}
        for name, text in chosen.items():
            found[name] += quantity(text) or 0.0
    return found


def _quota_refusals(
    connection: Connection, requests: Amounts, limits: Amounts, pods: int, deadline: Deadline
) -> Iterator[Refusal]:
    namespace = connection.workload.namespace
    needs = {f"requests.{name}": amount for name, amount in requests.items()}
    needs |= {f"limits.{name}": amount for name, amount in limits.items()}
    needs |= {name: requests.get(name, 0.0) for name in ("cpu", "memory")}
    needs |= {"pods": 1.0, "count/pods": 1.0}
    for one in connection.items(f"/api/v1/namespaces/{namespace}/resourcequotas", deadline):
        if raw_at(one, "/spec/scopes") or raw_at(one, "/spec/scopeSelector"):
            continue  # whether it is about these Pods is the API server's matter
        hard, used = raw_at(one, "/status/hard") or {}, raw_at(one, "/status/used") or {}
        for name in hard:
            free = (quantity(hard[name]) or 0.0) - (quantity(used.get(name, "0")) or 0.0)
            if name in needs and needs[name] * pods > free:
                yield Refusal(
                    Reason.NO_CAPACITY,
                    f"the quota {raw_at(one, '/metadata/name')} leaves {free:g} {name}, and {pods} more Pods need "
                    f"{needs[name] * pods:g}",
                    "--playbook infra.kubernetes.quota-raise, or add fewer",
                )


def device_refusals(
    connection: Connection, spec: Mapping[str, Any], requests: Amounts, pods: int, deadline: Deadline
) -> Iterator[Refusal]:
    """Refusals for devices (GPUs, MIG slices), which the nodes offer as extended resources."""
    devices = {name: amount for name, amount in requests.items() if "/" in name and amount > 0}
    if not devices:
        return
    nodes = fitting_nodes(connection, spec, deadline)
    used = _used(connection, deadline)
    for name, amount in devices.items():
        offered = {raw_at(one, "/metadata/name"): raw_at(one, "/status/allocatable") or {} for one in nodes}
        free = (
            (quantity(allocatable.get(name, "0")) or 0.0) - used[node, name] for node, allocatable in offered.items()
        )
        places = sum(int(max(0.0, amount_free) // amount) for amount_free in free)
        if places < pods:
            yield Refusal(
                Reason.NO_CAPACITY,
                f"{places} of {pods} more Pods find {amount:g} free {name} on one of {len(nodes)} fitting nodes",
                "free some, add a node, or add fewer replicas",
            )


def fitting_nodes(connection: Connection, spec: Mapping[str, Any], deadline: Deadline) -> list[Object]:
    """The nodes that a Pod with this specification can be placed on, whether or not they have room."""
    return [one for one in connection.items("/api/v1/nodes", deadline) if _takes(one, spec)]


def _takes(node: Object, spec: Mapping[str, Any]) -> bool:
    """Whether the node is ready, takes Pods, and has the labels and only the taints that the Pods accept."""
    if raw_at(node, "/spec/unschedulable"):
        return False
    conditions = {one["type"]: one["status"] for one in raw_at(node, "/status/conditions") or ()}
    labels = raw_at(node, "/metadata/labels") or {}
    wanted = spec.get("nodeSelector") or {}
    if conditions.get("Ready") != "True" or any(labels.get(name) != value for name, value in wanted.items()):
        return False
    repelling = [one for one in raw_at(node, "/spec/taints") or () if one.get("effect") != "PreferNoSchedule"]
    return all(any(_tolerates(one, taint) for one in spec.get("tolerations") or ()) for taint in repelling)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("key") not in (None, taint.get("key")) or toleration.get("effect") not in (
        None,
        taint.get("effect"),
    ):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _used(connection: Connection, deadline: Deadline) -> Mapping[tuple[str, str], float]:
    """What Pods have requested, by node and resource."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for pod in connection.items("/api/v1/pods", deadline):
        node = raw_at(pod, "/spec/nodeName")
        if node and raw_at(pod, "/status/phase") not in _ENDED:
            for name, amount in amounts(pod["spec"], "requests").items():
                found[node, name] += amount
    return found
