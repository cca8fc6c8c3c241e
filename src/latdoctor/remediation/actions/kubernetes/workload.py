"""The workload of a target: where it is, and whether a rollout of it is complete."""

from __future__ import annotations

from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.fields import raw_at
from latdoctor.remediation.change import Deadline, Refused
from latdoctor.remediation.target import Workload

CONTAINERS = "/spec/template/spec/containers"
_OVERDUE = "ProgressDeadlineExceeded"


def workload_path(workload: Workload) -> str:
    return f"/apis/apps/v1/namespaces/{workload.namespace}/{workload.kind}/{workload.name}"


def read_workload(connection: Connection, deadline: Deadline) -> Object:
    return connection.get(workload_path(connection.workload), deadline)


def container_names(found: Object) -> list[str]:
    return [str(one["name"]) for one in raw_at(found, CONTAINERS) or ()]


def incomplete(found: Object) -> str:
    """What a rollout of the workload still waits for; empty once it is complete.

    Raises Refused where its controller has given it up.
    """
    metadata, status = found["metadata"], found.get("status") or {}
    desired = int(raw_at(found, "/spec/replicas") or 0)
    if int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 0):
        return "the controller has not seen the change yet"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("reason") == _OVERDUE:
            raise Refused(f"the rollout makes no progress: {condition.get('message')}", where=str(metadata.get("name")))
    counts = {
        "updated": int(status.get("updatedReplicas") or 0),
        "ready": int(status.get("readyReplicas") or 0),
        "running": int(status.get("replicas") or 0),
    }
    if "availableReplicas" in status or found.get("kind") == "Deployment":
        counts["available"] = int(status.get("availableReplicas") or 0)
    waiting = [f"{count} of {desired} {name}" for name, count in counts.items() if count != desired]
    return ", ".join(waiting)
