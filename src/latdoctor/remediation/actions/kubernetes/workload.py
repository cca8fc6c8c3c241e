"""The workload of a target: where it is, and whether a rollout of it is complete."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.fields import escaped, raw_at
from latdoctor.remediation.change import Deadline, Refused, State
from latdoctor.remediation.target import ClusterWorkload

CONTAINERS = "/spec/template/spec/containers"
UNSEEN = "the controller has not seen the change yet"
_OVERDUE = "ProgressDeadlineExceeded"


def workload_path(workload: ClusterWorkload) -> str:
    return f"/apis/apps/v1/namespaces/{workload.namespace}/{workload.kind}/{workload.name}"


def read_workload(connection: Connection, deadline: Deadline) -> Object:
    return connection.get(workload_path(connection.workload), deadline)


def container_pointers(found: Object, *fields: str) -> list[str]:
    """The pointers of `fields` in each container of the template."""
    names = [escaped(str(one["name"])) for one in raw_at(found, CONTAINERS) or ()]
    return [f"{CONTAINERS}/{name}/{one}" for name in names for one in fields]


def chosen_container(arguments: Mapping[str, str], state: State, having: str) -> str:
    """The pointer of the container that the arguments name, else of the only one in which the field `having` is set.

    Raises UsageError where there is none, or several.
    """
    end = f"/{having}"
    known = {one.removesuffix(end): value for one, value in state.values.items() if one.endswith(end)}
    names = {one.rpartition("/")[2]: one for one in known}
    if given := arguments.get("container"):
        if given not in names:
            raise UsageError(f"there is no container {given!r}", next_step=f"one of {', '.join(sorted(names))}")
        return names[given]
    fitting = [one for one, value in known.items() if value is not None] or list(known)
    if len(fitting) != 1:
        raise UsageError(f"there are {len(names)} containers", next_step=f"--set container={'|'.join(sorted(names))}")
    return fitting[0]


def is_observed(found: Object) -> bool:
    """Whether its controller has seen the present specification."""
    seen = int(raw_at(found, "/status/observedGeneration") or 0)
    return seen >= int(raw_at(found, "/metadata/generation") or 0)


def incomplete(found: Object) -> str:
    """What a rollout of the workload still waits for; empty once it is complete.

    Raises Refused where its controller has given it up.
    """
    metadata, status = found["metadata"], found.get("status") or {}
    desired = int(raw_at(found, "/spec/replicas") or 0)
    if not is_observed(found):
        return UNSEEN
    if raw_at(found, "/spec/paused"):
        return ""
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
