"""Conditions of nodes, workloads and autoscalers, however they were written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latdoctor.collectors.documents.kubernetes import containers
from latdoctor.collectors.documents.kubernetes.containers import Ended
from latdoctor.collectors.documents.kubernetes.event_kinds import KubeEvent
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.gpu_reports import xid_reports
from latdoctor.collectors.documents.kubernetes.quantities import moment
from latdoctor.collectors.documents.kubernetes.schema import Condition
from latdoctor.evidence.model import Value

_GOOD = frozenset({"Ready"})
_NETWORK = "NetworkUnavailable"
_LONGEST_UNNOTICED = 60.0  # seconds; the control plane misses a node's lease after 40 or 50 s
_PRESSURE = re.compile(r"(Memory|Disk|PID)Pressure|OutOfDisk")


def holds_since(condition: Condition) -> float | None:
    """Since when it holds, unix seconds. A node of unknown state was lost when it last reported."""
    since, heartbeat = moment(condition.last_transition_time or ""), moment(condition.last_heartbeat_time or "")
    if condition.status != "Unknown" or since is None or heartbeat is None:
        return since
    return min(since, max(heartbeat, since - _LONGEST_UNNOTICED))


@dataclass(frozen=True, slots=True)
class ReportedCondition:
    """A condition of an object, however it was written. `since`: unix seconds; `line`, `place`: where it was read."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float | None = None
    line: int = 0
    place: str = ""

    @property
    def text(self) -> str:
        return f"{self.reason} {self.message}".strip()

    @property
    def event(self) -> KubeEvent:
        """The condition as an event of its reason."""
        return KubeEvent(self.reason, self.message, time=self.since)


def reported(condition: Condition, line: int = 0, place: str = "") -> ReportedCondition:
    """A condition of an object of the API."""
    reason, message = condition.reason or "", condition.message or ""
    return ReportedCondition(condition.type, condition.status, reason, message, holds_since(condition), line, place)


def put_node(gathered: Gathered, subject: str, found: ReportedCondition) -> None:
    """A condition of a node: its readiness, a pressure, or a fault that a detector found."""
    name, state, line, place = found.type, found.status, found.line, found.place

    def happened(signal: str, fields: Mapping[str, Value], text: str = found.text) -> None:
        gathered.event(signal, subject, line, time=found.since, text=text, fields=fields, place=place)

    pressure = _PRESSURE.fullmatch(name)
    if _is_bad(found) and (xids := xid_reports(name, found.reason, found.message)):
        gathered.xids(subject, xids, line, found.since, f"{name} {found.text}")
        return
    if name in _GOOD:
        gathered.reading("node.ready", subject, float(state == "True"), line, place=place)
        if state != "True":
            happened("kube.node_not_ready", {"status": state})
    elif pressure and state == "Unknown":
        gathered.unknown(subject, "node.pressure", "the node no longer reports", line, place=place)
    elif pressure and state in ("True", "False"):
        labels = (("condition", name),)
        gathered.reading("node.pressure", subject, float(state == "True"), line, labels=labels, place=place)
        if state == "True":
            happened("kube.node_pressure", {"kind": (pressure[1] or "disk").lower()})
    else:
        if name == _NETWORK and state in ("True", "False"):
            gathered.reading("node.network_unavailable", subject, float(state == "True"), line, place=place)
        if state == "True":
            happened("kube.warning", {"reason": name}, f"{name} {found.text}")


def _is_bad(found: ReportedCondition) -> bool:
    """Whether a condition of a node reports a fault: `…Ready` that is false, any other that is true."""
    return found.status == ("False" if found.type.endswith("Ready") else "True")


def put_workload(gathered: Gathered, subject: str, found: ReportedCondition) -> None:
    """A rollout that makes no progress, or pods that cannot be created."""
    if (found.type, found.status) in (("Progressing", "False"), ("ReplicaFailure", "True")):
        gathered.kube_event(found.event, subject, found.line, place=found.place)


def put_autoscaler(gathered: Gathered, subject: str, found: ReportedCondition) -> None:
    """Whether the autoscaler is held back by its maximum, and whether it can read its metrics."""
    if found.type == "ScalingLimited" and found.status in ("True", "False"):
        limited = found.status == "True" and found.reason == "TooManyReplicas"
        gathered.reading("hpa.limited", subject, float(limited), found.line, place=found.place)
        if limited:
            gathered.kube_event(found.event, subject, found.line, place=found.place)
    elif found.type == "ScalingActive" and found.status == "False" and found.reason != "ScalingDisabled":
        gathered.kube_event(found.event, subject, found.line, place=found.place)


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
