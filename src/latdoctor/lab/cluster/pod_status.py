"""The status of a Pod, from the state of its containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from latdoctor.lab.cluster.container import Container


def pod_status(
    containers: Sequence[Container],
    address: str,
    node_address: str,
    started: str,
    before: Mapping[str, Any],
    clock: Callable[[], str],
) -> dict[str, Any]:
    """`before`: the status reported last; a condition that stays the same keeps its time. `clock`: that of the node."""
    ready = all(one.ready for one in containers)
    values = {"Initialized": True, "ContainersReady": ready, "Ready": ready, "PodScheduled": True}
    times = {(one["type"], one["status"]): one["lastTransitionTime"] for one in before.get("conditions", ())}
    unready = ", ".join(one.name for one in containers if not one.ready)
    conditions = []
    for kind, holds in values.items():
        status = str(holds)
        condition = {
            "type": kind,
            "status": status,
            "lastTransitionTime": times.get((kind, status), clock()),
            "reason": None if holds else "ContainersNotReady",
            "message": None if holds else f"containers with unready status: [{unready}]",
        }
        conditions.append(condition)
    return {
        "phase": _phase(containers),
        "conditions": conditions,
        "hostIP": node_address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": started,
        "containerStatuses": [one.status() for one in containers],
    }


def _phase(containers: Sequence[Container]) -> str:
    codes = [one.finished for one in containers]
    if all(code is not None for code in codes):
        return "Failed" if any(codes) else "Succeeded"
    return "Running" if any(one.started_once for one in containers) else "Pending"
