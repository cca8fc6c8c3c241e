"""Kubernetes objects, of JSON or YAML, as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from latdoctor.collectors.documents.kubernetes import conditions, tables
from latdoctor.collectors.documents.kubernetes.containers import ContainerFacts, Ended, Probe, put
from latdoctor.collectors.documents.kubernetes.event_kinds import KubeEvent
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.managers import manager_of
from latdoctor.collectors.documents.kubernetes.quantities import is_gpu, moment
from latdoctor.collectors.documents.kubernetes.rollouts import put_rollouts
from latdoctor.collectors.documents.kubernetes.schema import (
    Autoscaler,
    ContainerSpec,
    ContainerStatus,
    CustomObject,
    EventObject,
    Metric,
    MetricValue,
    Node,
    Pod,
    PodMetrics,
    PodSpec,
    PodStatus,
    ProbeSpec,
    Quota,
    Workload,
)
from latdoctor.kubernetes_quantity import quantity

T = TypeVar("T")
MAX_OBJECTS = 5000  # of one text


def read_object(gathered: Gathered, raw: object, line: int) -> bool:
    """Add what one object or list of objects shows; False where its kind is not read. Raises ValueError."""
    objects = flattened(gathered, raw)
    read = False
    for one in objects:
        reader = _READERS.get(str(one["kind"]))
        if reader is not None:
            reader(gathered, one, line)
            read = True
    put_rollouts(gathered, objects, line)
    return read


def flattened(gathered: Gathered, raw: object) -> list[dict[str, Any]]:
    """The objects of lists and watches within `raw`, each with its kind; at most MAX_OBJECTS."""
    pending = [raw]
    found: list[dict[str, Any]] = []
    while pending:
        one = pending.pop(0)
        if not isinstance(one, dict):
            continue
        if isinstance(one.get("items"), list):
            pending[:0] = one["items"]
            continue
        if isinstance(one.get("object"), dict) and "type" in one:  # of a watch
            pending.insert(0, one["object"])
            continue
        if len(found) == MAX_OBJECTS:
            gathered.left_out += len(pending) + 1
            break
        found.append({**one, "kind": str(one.get("kind", "")) or _kind_of(one)})
    return found


def _kind_of(raw: Mapping[str, object]) -> str:
    """The kind of an object without one, as pasted parts and items of typed lists are."""
    if raw.keys() & {"involvedObject", "regarding"}:
        return "Event"
    status, spec = raw.get("status"), raw.get("spec")
    parts = {*(status if isinstance(status, dict) else ()), *(spec if isinstance(spec, dict) else ())}
    if parts & {"containerStatuses", "containers", "initContainerStatuses", "podIP"}:
        return "Pod"
    if parts & {"allocatable", "nodeInfo"}:
        return "Node"
    return "HorizontalPodAutoscaler" if "maxReplicas" in parts else ""


def _typed(raw: object, kind: type[T]) -> T:
    """Raises ValueError."""
    return msgspec.convert(raw, kind, strict=False)


def _pod(gathered: Gathered, raw: object, line: int) -> None:
    pod = _typed(raw, Pod)
    spec, status = pod.spec or PodSpec(), pod.status
    subject = gathered.pod(pod.metadata.namespace or "", pod.metadata.name or "unnamed", spec.node_name or "")
    place = f"{pod.metadata.namespace or ''}/{pod.metadata.name}".strip("/")
    facts = {one.name: _of_spec(one, place) for one in (*(spec.init_containers or ()), *(spec.containers or ()))}
    if status is None:
        for one in facts.values():
            put(gathered, subject, one)
        return
    for found in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        _of_status(facts.setdefault(found.name, ContainerFacts(found.name, line, place)), found)
    for one in facts.values():
        put(gathered, subject, one)
    own = [facts[one.name] for one in status.container_statuses or ()]
    shown = next((one.waiting_reason for one in own if one.waiting_reason), status.reason) or status.phase
    gathered.reading("pod.status", subject, shown or None, line, place=place)
    if own:
        gathered.reading("pod.restarts", subject, sum(one.restarts or 0.0 for one in own), line, place=place)
    _pod_status(gathered, subject, status, line, place)


def _pod_status(gathered: Gathered, subject: str, status: PodStatus, line: int, place: str) -> None:
    if status.phase:
        gathered.reading("pod.pending", subject, float(status.phase == "Pending"), line, place=place)
    if status.phase == "Failed" and status.reason:
        evicted = 1.0 if status.reason == "Evicted" else None
        gathered.reading("pod.evicted", subject, evicted, line, place=place)
        gathered.kube_event(KubeEvent(status.reason, status.message or ""), subject, line, place=place)
    for condition in status.conditions or ():
        if condition.type == "Ready" and status.phase != "Succeeded":
            gathered.reading("pod.ready", subject, float(condition.status == "True"), line, place=place)
            since = moment(condition.last_transition_time or "")
            if condition.status == "True" and since is not None:
                age = max(0.0, gathered.taken_at - since)
                gathered.reading("pod.ready_age", subject, age, line, place=place)
        elif (condition.type, condition.status) == ("PodScheduled", "True"):
            gathered.reading("pod.unschedulable", subject, 0.0, line, place=place)
        elif (condition.type, condition.status) == ("PodScheduled", "False") and condition.reason != "SchedulingGated":
            since = moment(condition.last_transition_time or "")
            event = KubeEvent("FailedScheduling", condition.message or "", time=since)
            gathered.reading("pod.unschedulable", subject, 1.0, line, place=place)
            gathered.kube_event(event, subject, line, place=place)


def _of_spec(spec: ContainerSpec, place: str) -> ContainerFacts:
    facts = ContainerFacts(spec.name, place=place)
    if spec.resources:
        facts.limits = {**(spec.resources.limits or {})}
        facts.requests = {**(spec.resources.requests or {})}
    for kind, probe in (
        ("liveness", spec.liveness_probe),
        ("readiness", spec.readiness_probe),
        ("startup", spec.startup_probe),
    ):
        facts.probes += [_probe(kind, probe)] if probe else []
    return facts


def _probe(kind: str, spec: ProbeSpec) -> Probe:
    default = Probe(kind)
    return Probe(
        kind,
        spec.initial_delay_seconds or default.delay,
        spec.timeout_seconds or default.timeout,
        spec.period_seconds or default.period,
        spec.failure_threshold or default.failures,
    )


def _of_status(facts: ContainerFacts, status: ContainerStatus) -> None:
    facts.ready, facts.restarts = status.ready, status.restart_count
    state, last = status.state, status.last_state
    if state and state.waiting:
        facts.waiting_reason, facts.waiting_message = state.waiting.reason or "", state.waiting.message or ""
    if state and state.running:
        facts.running, facts.running_since = True, moment(state.running.started_at or "")
    ended = (state.terminated if state else None) or (last.terminated if last else None)
    if ended:
        code = ended.exit_code if ended.exit_code is not None or not ended.signal else 128 + ended.signal
        started, finished = moment(ended.started_at or ""), moment(ended.finished_at or "")
        facts.ended = Ended(ended.reason or "", code, started, finished, ended.message or "")


def _node(gathered: Gathered, raw: object, line: int) -> None:
    node = _typed(raw, Node)
    subject, place = gathered.node(node.metadata.name or "unnamed"), node.metadata.name
    if node.spec is not None:
        gathered.reading("node.unschedulable", subject, float(bool(node.spec.unschedulable)), line, place=place)
        taints = [f"{one.key}{f'={one.value}' if one.value else ''}:{one.effect}" for one in node.spec.taints or ()]
        gathered.reading("node.taints", subject, ", ".join(taints) or None, line, place=place)
    if node.status is None:
        return
    for signal, resources in (
        ("node.gpus_capacity", node.status.capacity),
        ("node.gpus_allocatable", node.status.allocatable),
    ):
        counts = [quantity(value) for name, value in (resources or {}).items() if is_gpu(name)]
        known = [number for number in counts if number is not None]
        gathered.reading(signal, subject, sum(known) if known else None, line, place=place)
    for one in node.status.conditions or ():
        conditions.put_node(gathered, subject, conditions.reported(one, line, place))


def _workload(kind: str) -> Callable[[Gathered, object, int], None]:
    def read(gathered: Gathered, raw: object, line: int) -> None:
        found = _typed(raw, Workload)
        subject = gathered.workload(kind, found.metadata.namespace or "", found.metadata.name or "unnamed")
        place = found.metadata.name
        if found.spec is not None and not (kind == "replicaset" and found.spec.replicas == 0):
            gathered.reading("workload.replicas_desired", subject, found.spec.replicas, line, place=place)
            template = found.spec.template.spec if found.spec.template else None
            for one in (template.containers or ()) if template else ():
                put(gathered, subject, _of_spec(one, place))
        gathered.reading("workload.managed_by", subject, manager_of(found.metadata), line, place=place)
        status = found.status
        if status is None:
            return
        if status.replicas is not None:  # then counts that are left out are zero
            for name, count in (
                ("ready", status.ready_replicas),
                ("available", status.available_replicas),
                ("updated", status.updated_replicas),
                ("unavailable", status.unavailable_replicas),
            ):
                if kind == "deployment" or name in ("ready", "available") or (kind, name) == ("statefulset", "updated"):
                    gathered.reading(f"workload.replicas_{name}", subject, count or 0.0, line, place=place)
        if kind == "statefulset" and found.spec is not None and found.spec.replicas is not None:  # it does not say so
            missing = max(0.0, found.spec.replicas - (status.ready_replicas or 0.0))
            gathered.reading("workload.replicas_unavailable", subject, missing, line, place=place)
        for condition in status.conditions or ():
            conditions.put_workload(gathered, subject, conditions.reported(condition, line, place))

    return read


def _autoscaler(gathered: Gathered, raw: object, line: int) -> None:
    found = _typed(raw, Autoscaler)
    target = found.spec.target if found.spec else None
    of = f"{target.kind}/{target.name}" if target else ""
    subject = gathered.scaler(found.metadata.namespace or "", found.metadata.name or "unnamed", of)
    place, spec, status = found.metadata.name, found.spec, found.status
    tables.put_autoscaler(
        gathered, subject, line, replicas=status.current if status else None,
        desired=status.desired if status else None, least=spec.min_replicas if spec else None,
        most=spec.max_replicas if spec else None, place=place,
    )  # fmt: skip
    if spec is None or status is None:
        return
    current = {_metric_name(one): _value(one.source.current) for one in status.metrics or () if one.type}
    for metric in spec.metrics or ():
        name = _metric_name(metric)
        _ratio(gathered, subject, name, current.get(name), _value(metric.source.target), line, place)
    if spec.target_cpu:
        _ratio(gathered, subject, "cpu", status.current_cpu, spec.target_cpu, line, place)
    for one in status.conditions or ():
        conditions.put_autoscaler(gathered, subject, conditions.reported(one, line, place))


def _ratio(
    gathered: Gathered, subject: str, name: str, now: float | None, target: float | None, line: int, place: str
) -> None:
    labels = (("metric", name),)
    gathered.reading("hpa.metric_missing", subject, float(now is None), line, labels=labels, place=place)
    if now is not None and target:
        gathered.reading("hpa.metric_ratio", subject, now / target, line, labels=labels, place=place)


def _metric_name(metric: Metric) -> str:
    return metric.source.name or metric.source.metric.name or metric.type


def _value(value: MetricValue) -> float | None:
    """The utilization where there is one: a status has the average value beside it."""
    if value.average_utilization is not None:
        return value.average_utilization
    found = value.average_value if value.average_value is not None else value.value
    return None if found is None else quantity(found)


def _event(gathered: Gathered, raw: object, line: int) -> None:
    found = _typed(raw, EventObject)
    about = found.involved_object or found.regarding
    if about is None or not found.reason:
        return
    series = found.series
    stamps = (
        series.last_observed_time if series else None,
        found.last_timestamp,
        found.deprecated_last_timestamp,
        found.event_time,
        found.metadata.creation_timestamp,
    )
    time = next((time for stamp in stamps if stamp and (time := moment(stamp)) is not None), None)
    count = (series.count if series else None) or found.count or found.deprecated_count
    path = (about.field_path or "").partition("{")[2].rstrip("}")
    event = KubeEvent(
        reason=found.reason,
        message=found.message or found.note or "",
        warning=found.type != "Normal",
        count=int(count) if count else None,
        time=time,
        container=path,
        first=moment(found.first_timestamp or (found.event_time if series else None) or ""),
    )
    namespace = about.namespace or (found.metadata.namespace or "" if about.kind != "Node" else "")
    subject = tables.subject_of(gathered, about.kind, namespace, about.name)
    gathered.kube_event(event, subject, line, place=found.metadata.name)


def _pod_metrics(gathered: Gathered, raw: object, line: int) -> None:
    found = _typed(raw, PodMetrics)
    subject = gathered.pod(found.metadata.namespace or "", found.metadata.name)
    for one in found.containers or ():
        container = gathered.container(subject, one.name)
        for resource in ("cpu", "memory"):
            used = quantity((one.usage or {}).get(resource, ""))
            gathered.reading(f"container.{resource}.used", container, used, line, place=found.metadata.name)


def _quota(gathered: Gathered, raw: object, line: int) -> None:
    found = _typed(raw, Quota)
    subject = gathered.workload("quota", found.metadata.namespace or "", found.metadata.name or "unnamed")
    used = (found.status.used if found.status else None) or {}
    for resource, most in ((found.status.hard if found.status else None) or {}).items():
        tables.put_quota(gathered, subject, resource, used.get(resource, ""), most, line, found.metadata.name or "")


def _custom(kind: str) -> Callable[[Gathered, object, int], None]:
    def read(gathered: Gathered, raw: object, line: int) -> None:
        found = _typed(raw, CustomObject)
        subject = gathered.workload(kind.lower(), found.metadata.namespace or "", found.metadata.name or "unnamed")
        gathered.reading("workload.managed_by", subject, manager_of(found.metadata), line, place=found.metadata.name)
        known = (found.status.conditions if found.status else None) or ()
        conditions.put_custom_object(gathered, subject, kind, known, line)

    return read


_READERS: dict[str, Callable[[Gathered, Any, int], None]] = {
    "Pod": _pod,
    "Node": _node,
    "Deployment": _workload("deployment"),
    "StatefulSet": _workload("statefulset"),
    "ReplicaSet": _workload("replicaset"),
    "HorizontalPodAutoscaler": _autoscaler,
    "Event": _event,
    "PodMetrics": _pod_metrics,
    "ResourceQuota": _quota,
    **{kind: _custom(kind) for kind in conditions.CUSTOM_KINDS},
}
KINDS: Iterable[str] = tuple(_READERS)
