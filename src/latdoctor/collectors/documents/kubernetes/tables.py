"""Rows of `kubectl get` and `kubectl top`: pods, nodes, workloads, autoscalers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from latdoctor.collectors.documents.kubernetes import containers
from latdoctor.collectors.documents.kubernetes.containers import Ended
from latdoctor.collectors.documents.kubernetes.event_kinds import KubeEvent
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.quantities import age, is_gpu, moment, occurrence
from latdoctor.kubernetes_quantity import quantity
from latdoctor.sanitize import clean

Row = Mapping[str, str]
_NONE = frozenset({"", "<none>", "<unset>", "<nil>", "-"})
_READY = re.compile(r"(\d{1,5})/(\d{1,5})")
_RESTARTS = re.compile(r"(\d{1,7})(?: \((\S+) ago\))?")
_FINISHED = frozenset({"Completed", "Succeeded"})
_LEFT = _FINISHED | {"Terminating"}  # such pods are not ready for a good reason
_PENDING = frozenset({"Pending", "ContainerCreating", "PodInitializing", "SchedulingGated"})
_ENDED = re.compile(r"(?:Init:)?(OOMKilled|Error|ExitCode:(\d{1,3})|Signal:(\d{1,3})|StartError|ContainerCannotRun)")
_TARGET = re.compile(r"(?:([^\s:,]+): )?(<unknown>|[^\s/,]+)(?: \([^)]*\))?\s?/\s?([^\s,]+)")
_PERCENT = re.compile(r"(\d{1,7})%")
_KINDS = {
    "deploy": "deployment", "deployments": "deployment", "rs": "replicaset", "replicasets": "replicaset",
    "sts": "statefulset", "statefulsets": "statefulset", "po": "pod", "pods": "pod", "no": "node", "nodes": "node",
    "hpa": "horizontalpodautoscaler", "horizontalpodautoscalers": "horizontalpodautoscaler", "ds": "daemonset",
}  # fmt: skip
HPA = "horizontalpodautoscaler"


def object_name(text: str) -> tuple[str, str]:
    """`deployment.apps/llama` → (`deployment`, `llama`); no kind for a bare name."""
    kind, slash, name = text.partition("/")
    if not slash:
        return "", kind
    kind = kind.partition(".")[0].lower()
    return _KINDS.get(kind, kind), name


def subject_of(gathered: Gathered, kind: str, namespace: str, name: str) -> str:
    """The subject of an object of Kubernetes by its kind."""
    kind = _KINDS.get(kind.lower(), kind.lower()) or "pod"
    if kind == "node":
        return gathered.node(name)
    if kind == HPA:
        return gathered.workload("hpa", namespace, name)
    return gathered.pod(namespace, name) if kind == "pod" else gathered.workload(kind, namespace, name)


def pod(gathered: Gathered, row: Row, line: int) -> None:
    """A row of `kubectl get pods`."""
    _, name = object_name(row.get("name", ""))
    node = row.get("node", "")
    subject = gathered.pod(row.get("namespace", ""), name, "" if node in _NONE else node)
    ready, status = _READY.fullmatch(row.get("ready", "")), row.get("status", "")
    if not subject or not status or not ready:
        return
    gathered.drop_readings(
        subject, "pod.evicted", "container.waiting_reason", "container.crash_looping", "container.image_pull_failing"
    )
    gathered.reading("pod.status", subject, status, line)
    if status not in _LEFT:
        whole = int(ready[2]) > 0 and ready[1] == ready[2]
        gathered.reading("pod.ready", subject, float(whole and status == "Running"), line)
        gathered.reading("pod.pending", subject, float(status in _PENDING or status.startswith("Init:")), line)
    restarts = _RESTARTS.fullmatch(row.get("restarts", ""))
    ago = age(restarts[2]) if restarts and restarts[2] else None
    now = gathered.taken_at if gathered.row_time is None else gathered.row_time
    since = now - ago if ago is not None else None
    if restarts:
        gathered.reading("pod.restarts", subject, float(restarts[1]), line)
    if since is not None and status not in _FINISHED:
        fields = {"what": "restart"}
        gathered.event("change.process_start", subject, line, time=since, about=True, fields=fields)
    _status(gathered, subject, status, line)


def _status(gathered: Gathered, subject: str, status: str, line: int) -> None:
    containers.waiting(gathered, subject, _waiting_reason(status), "", line)
    if status in ("Evicted", "Preempting", "NodeLost") or status.startswith("OutOf"):
        gathered.kube_event(KubeEvent(status.replace("Preempting", "Preempted"), ""), subject, line)
    elif status in ("UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity"):
        gathered.kube_event(KubeEvent(status, ""), subject, line)
    if status == "Evicted":
        gathered.reading("pod.evicted", subject, 1.0, line)
    if ended := _ENDED.fullmatch(status):
        code = float(ended[2]) if ended[2] else 128 + float(ended[3]) if ended[3] else None
        reason = ended[1] if not (ended[2] or ended[3]) else "Error"
        end = Ended(reason, code, finished=gathered.row_time)
        containers.put_end(gathered, subject, end, line, about=True)


def _waiting_reason(status: str) -> str:
    reason = status.removeprefix("Init:")
    known = containers.IMAGE_REASONS | containers.START_REASONS | {containers.CRASH_LOOP}
    return reason if reason in known else ""


_PHASES = frozenset({"Pending", "Running", "Succeeded", "Failed", "Unknown"})


def custom(gathered: Gathered, row: Row, line: int) -> None:
    """A row of custom columns with the name and the status of a pod or of a node."""
    status = row.get("status", "")
    if status.split(",")[0] in ("Ready", "NotReady"):
        node(gathered, row, line)
    elif status in _PHASES or _waiting_reason(status) or _ENDED.fullmatch(status):
        subject = gathered.pod(row.get("namespace", ""), object_name(row.get("name", ""))[1])
        gathered.reading("pod.status", subject, status, line)
        gathered.reading("pod.pending", subject, float(status == "Pending"), line)
        gathered.reading("pod.restarts", subject, quantity(row.get("restarts", "")), line)
        _status(gathered, subject, status, line)


def repeated_pods(gathered: Gathered, rows: Sequence[tuple[Row, int]]) -> dict[int, float]:
    """Times of the rows of pods that are listed several times (`-w`), by line; and their curves.

    The pod's age grows from row to row, and its last row is taken to be as old as the file.
    """
    by_pod: dict[str, list[tuple[float, Row, int]]] = {}
    for cells, line in rows:
        old = age(cells.get("age", ""))
        subject = gathered.pod(cells.get("namespace", ""), object_name(cells.get("name", ""))[1])
        if old is not None and subject:
            by_pod.setdefault(subject, []).append((old, cells, line))
    times: dict[int, float] = {}
    for subject, found in by_pod.items():
        ages = [old for old, _, _ in found]
        if len(found) < 2 or ages != sorted(ages) or ages[0] == ages[-1]:
            continue
        ready: dict[float, float] = {}
        restarts: dict[float, float] = {}
        for old, cells, line in found:
            times[line] = at = gathered.taken_at - (ages[-1] - old)
            shown, count = _READY.fullmatch(cells.get("ready", "")), _RESTARTS.fullmatch(cells.get("restarts", ""))
            if shown and count:
                whole = shown[1] == shown[2] and cells.get("status") == "Running"
                ready[at], restarts[at] = float(whole), float(count[1])
        gathered.series("pod.ready", subject, ready, found[0][2])
        gathered.series("pod.restarts", subject, restarts, found[0][2])
    return times


def node(gathered: Gathered, row: Row, line: int) -> None:
    """A row of `kubectl get nodes`."""
    subject = gathered.node(object_name(row.get("name", ""))[1])
    states = row.get("status", "").split(",")
    if states[0] not in ("Ready", "NotReady", "Unknown"):
        return
    gathered.reading("node.ready", subject, float(states[0] == "Ready"), line)
    gathered.reading("node.unschedulable", subject, float("SchedulingDisabled" in states), line)


def node_gpus(gathered: Gathered, row: Row, line: int) -> None:
    """A row of custom columns with the GPUs of each node."""
    subject = gathered.node(object_name(row.get("name", ""))[1])
    for name, cell in row.items():
        if is_gpu(name) or name in ("gpu", "gpus", "gpu_allocatable", "allocatable"):
            gathered.reading("node.gpus_allocatable", subject, quantity(cell), line)


def workload(gathered: Gathered, row: Row, line: int) -> None:
    """A row of deployments, replica sets, stateful sets or daemon sets, of old and new versions."""
    kind, name = object_name(row.get("name", ""))
    if not kind:
        kind = "deployment" if "up-to-date" in row else "replicaset" if "desired" in row else "statefulset"
    if kind == "replicaset" and row.get("desired") == "0":
        return  # an old revision
    subject = gathered.workload(kind, row.get("namespace", ""), name)
    ready = _READY.fullmatch(row.get("ready", ""))
    desired = float(ready[2]) if ready else quantity(row.get("desired", ""))
    gathered.reading("workload.replicas_desired", subject, desired, line)
    shown = float(ready[1]) if ready else quantity(row.get("ready", ""))
    gathered.reading("workload.replicas_ready", subject, shown, line)
    gathered.reading("workload.replicas_available", subject, quantity(row.get("available", "")), line)
    gathered.reading("workload.replicas_updated", subject, quantity(row.get("up-to-date", "")), line)


def autoscaler(gathered: Gathered, row: Row, line: int) -> None:
    """A row of `kubectl get hpa`."""
    name = object_name(row.get("name", ""))[1]
    subject = gathered.scaler(row.get("namespace", ""), name, row.get("reference", ""))
    replicas, most = quantity(row.get("replicas", "")), quantity(row.get("maxpods", ""))
    put_autoscaler(gathered, subject, line, replicas=replicas, least=quantity(row.get("minpods", "")), most=most)
    put_targets(gathered, subject, row.get("targets", ""), line)


def service(gathered: Gathered, row: Row, line: int) -> None:
    """A row of InferenceServices, Knative services or revisions: one that is not ready, and why."""
    kind, name = object_name(row.get("name", ""))
    subject = gathered.workload(kind or "service", row.get("namespace", ""), name)
    if row.get("ready") == "False":
        reason = row.get("reason", "") or "NotReady"
        gathered.kube_event(KubeEvent(reason, ""), subject, line)


def put_autoscaler(
    gathered: Gathered,
    subject: str,
    line: int,
    *,
    replicas: float | None,
    desired: float | None = None,
    least: float | None = None,
    most: float | None = None,
    place: str = "",
) -> None:
    """Replicas of an autoscaler and its limits."""
    gathered.reading("hpa.replicas", subject, replicas, line, place=place)
    gathered.reading("hpa.replicas_desired", subject, desired, line, place=place)
    gathered.reading("hpa.replicas_min", subject, least, line, place=place)
    gathered.reading("hpa.replicas_max", subject, most, line, place=place)
    if replicas is not None and most:
        gathered.reading("hpa.at_maximum", subject, float(replicas >= most), line, place=place)


_QUOTA = re.compile(r"([a-z][\w./-]{0,120}): ([^\s/,]{1,40})/([^\s/,]{1,40})")


def quota(gathered: Gathered, row: Row, line: int) -> None:
    """A row of `kubectl get quota`: what is used over what may be, of each resource."""
    subject = gathered.workload("quota", row.get("namespace", ""), object_name(row.get("name", ""))[1])
    for name, used, most in _QUOTA.findall(f"{row.get('request', '')}, {row.get('limit', '')}"):
        put_quota(gathered, subject, name, used, most, line)


def put_quota(
    gathered: Gathered, subject: str, resource: str, used: object, most: object, line: int, place: str = ""
) -> None:
    """How much of a resource a quota's namespace uses, and how much it may use."""
    now, limit = quantity(used), quantity(most)
    labels = (("resource", clean(resource, 60)),)
    gathered.reading("quota.used", subject, now, line, labels=labels, place=place)
    gathered.reading("quota.limit", subject, limit, line, labels=labels, place=place)
    if now is not None and limit:
        gathered.reading("quota.used_ratio", subject, now / limit, line, labels=labels, place=place)


def put_targets(gathered: Gathered, subject: str, text: str, line: int, name: str = "") -> None:
    """Metrics over their targets: `cpu: 85%/80%, memory: <unknown>/70%`; `name` where the text does not name them."""
    for number, found in enumerate(_TARGET.finditer(text), 1):
        labels = (("metric", found[1] or name or str(number)),)
        now, target = _amount(found[2]), _amount(found[3])
        if found[2].startswith("<unknown>"):
            gathered.reading("hpa.metric_missing", subject, 1.0, line, labels=labels)
        elif now is not None and target:
            gathered.reading("hpa.metric_ratio", subject, now / target, line, labels=labels)
            gathered.reading("hpa.metric_missing", subject, 0.0, line, labels=labels)


def _amount(text: str) -> float | None:
    percent = _PERCENT.fullmatch(text)
    return float(percent[1]) / 100 if percent else quantity(text)


def top(gathered: Gathered, row: Row, line: int) -> None:
    """A row of `kubectl top pods`, with or without containers, or of `kubectl top nodes`."""
    cpu, memory = quantity(row.get("cpu(cores)", "")), quantity(row.get("memory(bytes)", ""))
    shares = {key: _PERCENT.fullmatch(row.get(key, "")) for key in ("cpu%", "cpu(%)", "memory%", "memory(%)")}
    if any(key in row for key in shares):
        subject = gathered.node(row.get("name", ""))
        for signal, found in (
            ("node.cpu.used_ratio", shares["cpu%"] or shares["cpu(%)"]),
            ("node.memory.used_ratio", shares["memory%"] or shares["memory(%)"]),
        ):
            gathered.reading(signal, subject, float(found[1]) / 100 if found else None, line)
    elif "pod" in row:
        pod_subject = gathered.pod(row.get("namespace", ""), row["pod"])
        subject = gathered.container(pod_subject, row.get("name", ""))
        gathered.reading("container.cpu.used", subject, cpu, line)
        gathered.reading("container.memory.used", subject, memory, line)
    elif row.get("name"):
        subject = gathered.pod(row.get("namespace", ""), row["name"])
        gathered.reading("pod.cpu.used", subject, cpu, line)
        gathered.reading("pod.memory.used", subject, memory, line)


def event(gathered: Gathered, row: Row, line: int) -> None:
    """A row of `kubectl get events`, `kubectl events`, or of custom columns with a reason and a message."""
    found = event_of(gathered, row)
    gathered.kube_event(found, _involved(gathered, row, found.message), line)


def event_of(gathered: Gathered, row: Row) -> KubeEvent:
    """The event in a row of any table of events."""
    shown = next((row[key] for key in _LAST if row.get(key) and row[key] not in _NONE), "")
    when = occurrence(shown)
    time = moment(shown)
    about = time is None
    if time is None and when.last is not None:
        time = gathered.taken_at - when.last
    first = gathered.taken_at - when.first if when.first is not None and about else None
    count = when.count or _count(row.get("count", ""))
    place = _PATH.fullmatch(row.get("subobject", row.get("subobjectpath", "")))
    return KubeEvent(
        reason=row.get("reason", ""),
        message=row.get("message", row.get("note", "")),
        warning=row.get("type", "").lower() != "normal",
        count=count,
        time=time,
        about=about,
        container=place[1] if place else "",
        first=first,
    )


_PATH = re.compile(r"spec\.(?:init)?[cC]ontainers\{(.+)\}")
_LAST = ("last_seen", "lastseen", "last", "lasttimestamp", "last-seen", "time", "timestamp", "eventtime", "age", "when")
_IN_MESSAGE = re.compile(r"\bpod \"?([a-z0-9][a-z0-9.-]*)(?:_([a-z0-9-]+)\()?", re.IGNORECASE)

_SERIAL = re.compile(r"\.[0-9a-f]{8,}$")  # behind the name of the object in that of its event


def _count(text: str) -> int | None:
    return int(text) if text.isdigit() and len(text) < 10 else None


def _involved(gathered: Gathered, row: Row, message: str) -> str:
    """The object of an event; the pod named in the message, or the cluster, where no column shows it."""
    namespace = row.get("namespace", "")
    shown = next((row[key] for key in ("object", "involvedobject", "involved") if row.get(key)), "")
    kind, name = object_name(shown)
    if name and not kind:
        kind = row.get("kind", "pod")
    if not name and row.get("name") not in (None, *_NONE):
        kind, name = row.get("kind", "pod"), _SERIAL.sub("", row["name"])
    if name:
        return subject_of(gathered, kind, namespace, name)
    found = _IN_MESSAGE.search(message)
    if found:
        return gathered.pod(namespace or found[2] or "", found[1])
    return gathered.workload("cluster", "", "events")


TABLES: tuple[tuple[frozenset[str], Callable[[Gathered, Row, int], None]], ...] = (
    (frozenset({"reason", "message"}), event),
    (frozenset({"reason", "note"}), event),
    (frozenset({"name", "ready", "status", "restarts"}), pod),
    (frozenset({"name", "status", "roles", "version"}), node),
    (frozenset({"name", "status", "age", "version"}), node),
    (frozenset({"name", "reference", "targets", "maxpods"}), autoscaler),
    (frozenset({"name", "cpu(cores)", "memory(bytes)"}), top),
    (frozenset({"name", "age", "request"}), quota),
    (frozenset({"name", "url", "ready"}), service),
    (frozenset({"name", "generation", "ready", "reason"}), service),
    (frozenset({"name", "desired", "current"}), workload),
    (frozenset({"name", "ready", "up-to-date", "available"}), workload),
    (frozenset({"name", "ready", "age"}), workload),
    (frozenset({"name", "status"}), custom),
    (frozenset({"name", "gpu"}), node_gpus),
    (frozenset({"name", "gpus"}), node_gpus),
    (frozenset({"name", "nvidia.com/gpu"}), node_gpus),
)
