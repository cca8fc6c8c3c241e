"""Conditions of nodes, workloads and autoscalers, however they were written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from latdoctor.collectors.documents.kubernetes import containers
from latdoctor.collectors.documents.kubernetes.containers import Ended
from latdoctor.collectors.documents.kubernetes.event_kinds import KubeEvent
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.quantities import moment
from latdoctor.collectors.documents.kubernetes.schema import Condition
from latdoctor.evidence.model import Value

_GOOD = frozenset({"Ready"})
_NETWORK = "NetworkUnavailable"
_PRESSURE = re.compile(r"(Memory|Disk|PID)Pressure|OutOfDisk")


def put_node(
    gathered: Gathered,
    subject: str,
    name: str,
    state: str,
    text: str,
    line: int,
    *,
    since: float | None = None,
    place: str = "",
) -> None:
    """A condition of a node: its readiness, a pressure, or a fault that a detector found."""
    pressure = _PRESSURE.fullmatch(name)
    if name in _GOOD:
        gathered.reading("node.ready", subject, float(state == "True"), line, place=place)
        if state != "True":
            fields: dict[str, Value] = {"status": state}
            gathered.event("kube.node_not_ready", subject, line, time=since, text=text, fields=fields, place=place)
    elif pressure and state == "Unknown":
        gathered.unknown(subject, "node.pressure", "the node no longer reports", line, place=place)
    elif pressure and state in ("True", "False"):
        kind = (pressure[1] or "disk").lower()
        labels = (("condition", name),)
        gathered.reading("node.pressure", subject, float(state == "True"), line, labels=labels, place=place)
        if state == "True":
            fields = {"kind": kind}
            gathered.event("kube.node_pressure", subject, line, time=since, text=text, fields=fields, place=place)
    elif state == "True" or name == _NETWORK:
        if name == _NETWORK and state in ("True", "False"):
            gathered.reading("node.network_unavailable", subject, float(state == "True"), line, place=place)
        if state != "True":
            return
        fields = {"reason": name}
        gathered.event("kube.warning", subject, line, time=since, text=f"{name} {text}", fields=fields, place=place)


def put_workload(
    gathered: Gathered,
    subject: str,
    name: str,
    state: str,
    reason: str,
    message: str,
    line: int,
    place: str = "",
    since: float | None = None,
) -> None:
    """A rollout that makes no progress, or pods that cannot be created."""
    if (name, state) in (("Progressing", "False"), ("ReplicaFailure", "True")):
        gathered.kube_event(KubeEvent(reason, message, time=since), subject, line, place=place)


def put_autoscaler(
    gathered: Gathered,
    subject: str,
    name: str,
    state: str,
    reason: str,
    message: str,
    line: int,
    place: str = "",
    since: float | None = None,
) -> None:
    """Whether the autoscaler is held back by its maximum, and whether it can read its metrics."""
    if name == "ScalingLimited" and state in ("True", "False"):
        limited = state == "True" and reason == "TooManyReplicas"
        gathered.reading("hpa.limited", subject, float(limited), line, place=place)
        if limited:
            gathered.kube_event(KubeEvent(reason, message, time=since), subject, line, place=place)
    elif name == "ScalingActive" and state == "False" and reason != "ScalingDisabled":
        gathered.kube_event(KubeEvent(reason, message, time=since), subject, line, place=place)


# Conditions of custom resources whose falsehood is a fault; others, such as Paused or Active, may well be false.
_OF_CUSTOM = {
    "DynamoGraphDeployment": frozenset({"Ready"}),
    "InferenceService": frozenset({"Ready", "PredictorReady", "TransformerReady", "ExplainerReady"}),
    "LeaderWorkerSet": frozenset({"Available"}),
    "Rollout": frozenset({"Available", "Healthy"}),
    "ScaledObject": frozenset({"Ready"}),
}
CUSTOM_KINDS = tuple(_OF_CUSTOM)


def put_custom_object(gathered: Gathered, subject: str, kind: str, found: Sequence[Condition], line: int) -> None:
    """The conditions of a custom resource that say that it is not ready."""
    for one in found:
        if one.type in _OF_CUSTOM[kind]:
            words = {
                "Type": one.type,
                "Status": one.status,
                "Reason": one.reason or "",
                "Message": one.message or "",
                "Last Transition Time": one.last_transition_time or "",
            }
            put_custom(gathered, subject, words, line)


_EXIT_CODE = re.compile(r"ExitCode(\d{1,3})")


def put_custom(gathered: Gathered, subject: str, condition: Mapping[str, str], line: int) -> None:
    """A condition of a custom resource that is false; Knative writes the exit code of a container as its reason."""
    reason, message = condition.get("Reason", ""), condition.get("Message", "")
    if condition["Status"] != "False" or not reason:
        return
    since = moment(condition.get("Last Transition Time", ""))
    if code := _EXIT_CODE.fullmatch(reason):
        containers.put_end(gathered, subject, Ended(exit_code=float(code[1]), finished=since, message=message), line)
        return
    fields: dict[str, Value] = {"reason": reason, "condition": condition["Type"]}
    gathered.event("kube.warning", subject, line, time=since, text=f"{reason}: {message}", fields=fields)
