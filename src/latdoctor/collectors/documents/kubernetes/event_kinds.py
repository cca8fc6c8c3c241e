"""What an event of Kubernetes means: its reason decides, and its message gives the details.

The reasons are those of kubelet, scheduler, the controllers, the cluster autoscaler, Karpenter, KEDA and the node
problem detector, of all versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

from latdoctor.collectors.documents.kubernetes.quantities import is_gpu
from latdoctor.evidence.model import Value


class KubeEvent(Struct, frozen=True):
    """An event as Kubernetes reports it. `time`: when it last happened, unix seconds, `about` where it was an age.

    `first`: when it first happened, of one that repeats.
    """

    reason: str
    message: str
    warning: bool = True
    count: int | None = None
    time: float | None = None
    about: bool = False
    container: str = ""
    first: float | None = None


FIRST = "first_time"  # the field of an event that repeats: when it first happened, unix seconds


class EventKind(Struct, frozen=True):
    """The signal of an event and its fields."""

    signal: str
    fields: dict[str, Value] = {}


class ProbeFailure(StrEnum):
    """How a probe failed."""

    TIMEOUT = "timeout"
    REFUSED = "refused"
    RESET = "reset"
    STATUS = "status"
    UNREACHABLE = "unreachable"
    OTHER = "other"


# Reasons whose events mean one thing, whatever their message.
_SIMPLE = {
    "FailedMount": "kube.volume_failed",
    "FailedAttachVolume": "kube.volume_failed",
    "FailedMapVolume": "kube.volume_failed",
    "FailedBinding": "kube.volume_failed",
    "ProvisioningFailed": "kube.volume_failed",
    "VolumeResizeFailed": "kube.volume_failed",
    "FailedCreatePodSandBox": "kube.start_failed",
    "FailedCreatePodContainer": "kube.start_failed",
    "FailedPostStartHook": "kube.start_failed",
    "FailedStart": "kube.start_failed",
    "NodeNotReady": "kube.node_not_ready",
    "NodeLost": "kube.node_not_ready",
    "NodeControllerEviction": "kube.node_not_ready",
    "Rebooted": "kube.node_rebooted",
    "ProgressDeadlineExceeded": "kube.rollout_stalled",
    "UnexpectedAdmissionError": "kube.admission_failed",
    "TopologyAffinityError": "kube.admission_failed",
    "NodeAffinity": "kube.admission_failed",
    "Preempted": "kube.preempted",
    "Preempting": "kube.preempted",
    "PreemptContainer": "kube.preempted",
    "SystemOOM": "kube.oom_kill",
    "OOMKilling": "kube.oom_kill",
    "OOMKilled": "kube.oom_kill",
    "NotTriggerScaleUp": "kube.scale_up_refused",
    "FailedToScaleUpGroup": "kube.scale_up_refused",
    "ScaleUpTimedOut": "kube.scale_up_refused",
    "FailedScaleUp": "kube.scale_up_refused",
    "InsufficientCapacityError": "kube.scale_up_refused",
    "NoCompatibleInstanceTypes": "kube.scale_up_refused",
    "ErrImagePull": "kube.image_pull_failed",
    "ImagePullBackOff": "kube.image_pull_failed",
    "ErrImageNeverPull": "kube.image_pull_failed",
    "InspectFailed": "kube.image_pull_failed",
    "InvalidImageName": "kube.image_pull_failed",
    "KEDAScalerFailed": "kube.scaling_metric_failed",
    "FailedComputeMetricsReplicas": "kube.scaling_metric_failed",
    "TooManyReplicas": "kube.scaling_limited",
}
_PRESSURES = {
    "NodeHasInsufficientMemory": "memory",
    "NodeUnderMemoryPressure": "memory",
    "NodeHasDiskPressure": "disk",
    "NodeHasInsufficientDisk": "disk",
    "NodeOutOfDisk": "disk",
    "FreeDiskSpaceFailed": "disk",
    "ImageGCFailed": "disk",
    "NodeHasInsufficientPID": "pid",
    "EvictionThresholdMet": "",
}
_METRIC_FAILED = re.compile(r"FailedGet\w*Metrics?|InvalidMetricSourceType|InvalidSelector")
_OUT_OF = re.compile(r"OutOf(.+)")
_NODES = re.compile(r"\b0/(\d{1,6}) nodes are available")
_INSUFFICIENT = re.compile(r"Insufficient ([A-Za-z0-9./_-]+)")
_RECLAIM = re.compile(r"(?:Attempting to reclaim|low on resource:|\bcondition: \[?)\s*([A-Za-z-]+)")
_OVERUSE = re.compile(r"ephemeral[- ](?:local )?storage|emptyDir|EmptyDir", re.IGNORECASE)
_PROBE = re.compile(r"\b(startup|liveness|readiness) probe", re.IGNORECASE)
_PROBE_PORT = re.compile(r"(?:https?://[^/\s\"]*|dial tcp [^\s\"]*|\[?[0-9a-fA-F.:]+\]?|service \"[^\"]*?):(\d{1,5})\b")
_PROBE_STATUS = re.compile(r"statuscode: (\d{3})")
_CONTAINER = re.compile(r"\b[Cc]ontainer \"?([a-z0-9][a-z0-9.-]{0,62})\"?(?: |,|$)")
_VICTIM = re.compile(r"(?:victim process: |Kill(?:ed)? process (\d+) \()([^\s,)]+)\)?(?:, pid: (\d+))?")
_RESOURCE = re.compile(r"\bfor ([a-z0-9.-]+/[A-Za-z0-9._-]+)|resource: ([A-Za-z0-9./_-]+)")
_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)(?:, requested: ([^=,\s]+))?")
_SIZE = re.compile(r"New size: (\d{1,6})")
_SCALED = re.compile(r"Scaled (?:up|down) replica set (\S+) (?:from (\d{1,6}) )?to (\d{1,6})(?: from (\d{1,6}))?")
_TIMED_OUT = re.compile(
    r"deadline exceeded|time[d -]?out|Timeout|i/o timeout|within \d+s", re.IGNORECASE
)  # before "refused": gRPC says both


def classify(event: KubeEvent) -> Iterator[EventKind]:
    """What the event means; nothing for one that is part of ordinary work."""
    found = _found(event)
    if found is None:
        return
    fields = dict(found.fields)
    fields.setdefault("reason", event.reason)
    if event.count is not None and event.count > 1:
        fields["count"] = float(event.count)
    if event.first is not None and event.time is not None and event.first < event.time:
        fields[FIRST] = event.first
    container = event.container or _container(event.message)
    if container and found.signal.startswith(("kube.probe", "kube.crash", "kube.image", "kube.start")):
        fields["container"] = container
    yield EventKind(found.signal, fields)


def _found(event: KubeEvent) -> EventKind | None:
    reason, message = event.reason, event.message
    if reason in _BY_MESSAGE:
        return _BY_MESSAGE[reason](message)
    if reason in _EVICTIONS:
        return EventKind("kube.evicted", evicted(message)) if event.warning else None
    if reason in _PRESSURES and (event.warning or reason.startswith("NodeHas")):
        kind = _PRESSURES[reason] or next((found[1].lower() for found in _RECLAIM.finditer(message)), "")
        return EventKind("kube.node_pressure", {"kind": kind} if kind else {})
    if is_metric_failure(reason):
        return EventKind("kube.scaling_metric_failed")
    if out := _OUT_OF.fullmatch(reason):
        return EventKind("kube.unschedulable", {"resource": out[1], "why": "insufficient"})
    if reason in _SIMPLE:
        return EventKind(_SIMPLE[reason], _details(reason, message))
    return _change(event) or (EventKind("kube.warning") if event.warning and reason else None)


def is_metric_failure(reason: str) -> bool:
    """Whether an autoscaler reports by it that it cannot read a metric."""
    return _METRIC_FAILED.fullmatch(reason) is not None


def _change(event: KubeEvent) -> EventKind | None:
    """Starts and changes of scale, which are changes of the service and no faults."""
    if event.reason == "SuccessfulRescale" and (size := _SIZE.search(event.message)):
        return EventKind("change.replicas", {"what": "replicas (autoscaler)", "to": size[1]})
    if event.reason == "ScalingReplicaSet" and (scaled := _SCALED.search(event.message)):
        before = scaled[2] or scaled[4]
        fields: dict[str, Value] = {"what": f"replicas of {scaled[1]}", "to": scaled[3]}
        return EventKind("change.replicas", {**fields, "from": before} if before else fields)
    if event.reason == "DeploymentRollback":
        return EventKind("change.deployment", {"what": "rollback"})
    if event.reason == "Started" and event.message.startswith("Started container"):
        return EventKind("change.process_start")
    return None


def _unschedulable(message: str) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    if nodes := _NODES.search(message):
        fields["nodes"] = float(nodes[1])
    lacking = [name.rstrip(".") for name in _INSUFFICIENT.findall(message)]
    if lacking:
        fields["resource"] = next((name for name in lacking if is_gpu(name)), lacking[0])
        fields["why"] = "insufficient"
    else:
        signs = (
            ("taint", "taint"), ("affinity", "affinity"), ("selector", "affinity"), ("PersistentVolumeClaim", "volume"),
            ("volume", "volume"), ("unschedulable", "cordoned"), ("Too many pods", "pods"),
            ("no nodes available", "no-node"), ("quota", "quota"),
        )  # fmt: skip
        fields["why"] = next((why for sign, why in signs if sign in message), "other")
    return fields


def probe_failure(message: str) -> dict[str, Value]:
    """Which probe failed and how: a time-out, a refused connection, a status, and the port."""
    fields: dict[str, Value] = {}
    if probe := _PROBE.search(message):
        fields["probe"] = probe[1].lower()
    status = _PROBE_STATUS.search(message)
    if status:
        fields |= {"why": ProbeFailure.STATUS, "code": float(status[1])}
    elif _TIMED_OUT.search(message):
        fields["why"] = ProbeFailure.TIMEOUT
    elif "connection refused" in message:
        fields["why"] = ProbeFailure.REFUSED
    elif "reset by peer" in message or "EOF" in message:
        fields["why"] = ProbeFailure.RESET
    elif "no route to host" in message or "unreachable" in message:
        fields["why"] = ProbeFailure.UNREACHABLE
    else:
        fields["why"] = ProbeFailure.OTHER
    if port := _PROBE_PORT.search(message):
        fields["port"] = float(port[1])
    return {key: str(value) if isinstance(value, ProbeFailure) else value for key, value in fields.items()}


def _killing(message: str) -> EventKind | None:
    """A container killed for its probe; other ends of containers are ordinary."""
    probe = _PROBE.search(message)
    if probe or "is unhealthy" in message:
        return EventKind("kube.probe_kill", {"probe": probe[1].lower() if probe else "liveness"})
    return None


def _back_off(message: str) -> EventKind:
    return EventKind("kube.image_pull_failed" if "pulling image" in message else "kube.crash_loop")


def _failed(message: str) -> EventKind:
    pull = ("pull" in message.lower() and "image" in message.lower()) or "ErrImageNeverPull" in message
    if pull or "InvalidImageName" in message:
        return EventKind("kube.image_pull_failed")
    config = "not found" in message or "CreateContainerConfigError" in message
    return EventKind("kube.start_failed", {"why": "configuration" if config else "runtime"})


def evicted(message: str) -> dict[str, Value]:
    """For want of what a pod was evicted: `memory`, `ephemeral-storage`, or nothing where it is not said."""
    found = _RECLAIM.search(message)
    resource = found[1] if found else "ephemeral-storage" if _OVERUSE.search(message) else ""
    resource = {"MemoryPressure": "memory", "DiskPressure": "ephemeral-storage"}.get(resource, resource)
    return {"resource": resource} if resource else {}


def _refused(message: str) -> dict[str, Value]:
    if quota := _QUOTA.search(message):
        fields: dict[str, Value] = {"why": "quota", "quota": quota[1]}
        return {**fields, "resource": quota[2]} if quota[2] else fields
    return {"why": "forbidden" if "forbidden" in message else "other"}


def _details(reason: str, message: str) -> dict[str, Value]:
    if _SIMPLE[reason] == "kube.oom_kill":
        return _oom_kill(message)
    if _SIMPLE[reason] == "kube.admission_failed" and (resource := _RESOURCE.search(message)):
        return {"resource": (resource[1] or resource[2]).rstrip(".")}
    if reason == "TooManyReplicas":
        return {"reason": reason}
    return {}


def _oom_kill(message: str) -> dict[str, Value]:
    """The process and whose memory was exhausted, in the words of the kernel or of the kubelet."""
    fields: dict[str, Value] = {}
    if message.startswith("Memory cgroup out of memory"):
        fields["scope"] = "container"
    elif message.startswith(("System OOM", "Out of memory")):
        fields["scope"] = "machine"
    if victim := _VICTIM.search(message):
        fields["process"] = victim[2]
        if pid := victim[1] or victim[3]:
            fields["pid"] = pid
    return fields


def _container(message: str) -> str:
    found = _CONTAINER.search(message)
    return found[1] if found else ""


_EVICTIONS = frozenset({"Evicted", "TaintManagerEviction", "EvictedByVPA"})
# Reasons whose meaning depends on the message.
_BY_MESSAGE: dict[str, Callable[[str], EventKind | None]] = {
    "FailedScheduling": lambda message: EventKind("kube.unschedulable", _unschedulable(message)),
    "Unschedulable": lambda message: EventKind("kube.unschedulable", _unschedulable(message)),
    "Unhealthy": lambda message: EventKind("kube.probe_failed", probe_failure(message)),
    "ProbeWarning": lambda message: EventKind("kube.probe_failed", probe_failure(message)),
    "ProbeError": lambda message: EventKind("kube.probe_failed", probe_failure(message)),
    "Killing": _killing,
    "BackOff": _back_off,
    "CrashLoopBackOff": lambda message: EventKind("kube.crash_loop"),
    "Failed": _failed,
    "FailedCreate": lambda message: EventKind("kube.create_refused", _refused(message)),
}
