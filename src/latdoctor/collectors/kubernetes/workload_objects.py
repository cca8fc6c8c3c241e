"""The objects around a workload: its Pods and their nodes, what scales and limits it, and the events about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.cluster_api import NOT_FOUND, ApiError
from latdoctor.collectors.kubernetes import NAME, accelerators, resources
from latdoctor.collectors.kubernetes.accelerators import Accelerators
from latdoctor.collectors.kubernetes.api_reads import Answer, ApiReader, Object, Read
from latdoctor.collectors.kubernetes.failed_reads import gap_of
from latdoctor.collectors.kubernetes.found_workload import Workload
from latdoctor.collectors.kubernetes.live_evidence import NODE_EVENTS
from latdoctor.collectors.kubernetes.resources import Resource
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode

MOST_NODES = 40  # that are read one by one
_NODE_EVENTS_HIDE = ("kube.node_rebooted", "kube.oom_kill")


@dataclass(slots=True)
class WorkloadObjects:
    """The objects by part, with the parts that were read as a whole, and what could not be read."""

    parts: dict[str, tuple[Object, ...]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    gaps: list[Gap] = field(default_factory=list)
    accelerators: Accelerators | None = None  # of the cluster, where the workload requests any

    def of(self, resource: Resource) -> tuple[Object, ...]:
        return self.parts.get(resource.plural, ())

    def add(self, part: str, read: Read, answer: Answer, hides: tuple[str, ...] | None = None) -> None:
        if isinstance(answer, ApiError):
            if not (read.resource.optional and answer.status == NOT_FOUND):
                self.gaps.append(gap_of(answer, read, hides))
            return
        self.parts[part] = (*self.parts.get(part, ()), *answer.found)
        if answer.is_whole:
            self.whole.add(part)
            return
        reason = f"{part}: only the first {len(answer.found)} were read"
        hidden = read.resource.hides if hides is None else hides
        self.gaps.append(Gap(NAME, reason, hidden, next_step="name one workload", code=GapCode.TOO_LARGE))

    def keep(self, resource: Resource, kept: Iterable[Object]) -> None:
        if resource.plural in self.parts:
            self.parts[resource.plural] = tuple(kept)


def read_objects(reader: ApiReader, workload: Workload) -> WorkloadObjects:
    """All objects around the workload; those of others are left out."""
    found = WorkloadObjects()
    for one in workload.objects:
        part = next((x.plural for x in _OWN if x.kind == one["kind"]), "objects")
        found.parts[part] = (*found.parts.get(part, ()), one)
    _read(reader, found, [(one.resource.plural, one) for one in _lists(reader, workload)])
    events = Read(resources.EVENTS, "default", query={"fieldSelector": "involvedObject.kind=Node"})
    (answer,) = reader.read([events])
    found.add(NODE_EVENTS, events, answer, _NODE_EVENTS_HIDE)
    _read(reader, found, [(one.resource.plural, one) for one in _of_pods(found.of(resources.PODS))])
    _without_others(found, workload)
    if accelerators.requests_any(one for objects in found.parts.values() for one in objects):
        found.accelerators, gaps = accelerators.read_accelerators(reader)
        found.gaps.extend(gaps)
    return found


_OWN = (*resources.WORKLOADS.values(), resources.REPLICA_SETS)


def _read(reader: ApiReader, found: WorkloadObjects, reads: Sequence[tuple[str, Read]]) -> None:
    for (part, read), answer in zip(reads, reader.read([read for _, read in reads]), strict=True):
        found.add(part, read, answer)


def _lists(reader: ApiReader, workload: Workload) -> Iterator[Read]:
    namespace = workload.name.namespace
    query = {"labelSelector": workload.selector} if workload.selector else {}
    yield Read(resources.PODS, namespace, workload.pod, query)
    if not workload.pod:
        yield Read(resources.REPLICA_SETS, namespace, query=query)
        yield Read(resources.CONTROLLER_REVISIONS, namespace, query=query)
    if workload.kind not in ("deployment", "statefulset", "pod"):  # it has workloads of its own
        yield Read(resources.DEPLOYMENTS, namespace, query=query)
        yield Read(resources.STATEFUL_SETS, namespace, query=query)
    if not workload.kind:
        custom = (one for one in resources.WORKLOADS.values() if one.optional and reader.serves(one))
        yield from (Read(one, namespace) for one in custom)
    for one in (resources.AUTOSCALERS, resources.BUDGETS, resources.QUOTAS, resources.LIMIT_RANGES, resources.EVENTS):
        yield Read(one, namespace)
    if reader.serves(resources.SCALED_OBJECTS):
        yield Read(resources.SCALED_OBJECTS, namespace)


def _of_pods(pods: Sequence[Object]) -> Iterator[Read]:
    """The nodes and the priority classes of the Pods."""
    nodes = sorted({one["spec"]["nodeName"] for one in pods if one.get("spec", {}).get("nodeName")})
    if len(nodes) > MOST_NODES:
        yield Read(resources.NODES)
    else:
        yield from (Read(resources.NODES, "", one) for one in nodes)
    classes = {one["spec"]["priorityClassName"] for one in pods if one.get("spec", {}).get("priorityClassName")}
    yield from (Read(resources.PRIORITY_CLASSES, "", one) for one in sorted(classes))


def _without_others(found: WorkloadObjects, workload: Workload) -> None:
    """Leave out the objects that belong to other workloads of the namespace."""
    pods = found.of(resources.PODS)
    nodes = {one["spec"].get("nodeName") for one in pods if "spec" in one}
    found.keep(resources.NODES, (one for one in found.of(resources.NODES) if one["metadata"]["name"] in nodes))
    of_nodes = (one for one in found.parts.get(NODE_EVENTS, ()) if _about(one)[1] in nodes)
    found.parts[NODE_EVENTS] = tuple(of_nodes)
    if not workload.kind:
        return
    own = {(one["kind"], one["metadata"]["name"]) for resource in _OWN for one in found.of(resource)}
    own |= {(one["kind"], one["metadata"]["name"]) for one in workload.objects}
    for resource in (resources.AUTOSCALERS, resources.SCALED_OBJECTS):
        found.keep(resource, (one for one in found.of(resource) if _target(one) in own))
    found.keep(resources.BUDGETS, (one for one in found.of(resources.BUDGETS) if _selects(one, pods)))
    own |= {(one["kind"], one["metadata"]["name"]) for kind in _SCALERS for one in found.of(kind)}
    sets = {name for kind, name in own if kind in ("ReplicaSet", "StatefulSet")}
    about = (one for one in found.of(resources.EVENTS) if _about(one) in own or _of_former_pod(one, sets))
    found.keep(resources.EVENTS, about)


_SCALERS = (resources.AUTOSCALERS, resources.SCALED_OBJECTS, resources.BUDGETS)


def _about(event: Object) -> tuple[str, str]:
    one = event.get("involvedObject") or event.get("regarding") or {}
    return str(one.get("kind", "")), str(one.get("name", ""))


def _of_former_pod(event: Object, sets: set[str]) -> bool:
    """Whether it is about a Pod of one of the sets, also of one that is gone."""
    kind, name = _about(event)
    return kind == "Pod" and name.rpartition("-")[0] in sets


def _target(scaler: Object) -> tuple[str, str]:
    target: Mapping[str, object] = scaler.get("spec", {}).get("scaleTargetRef") or {}
    return str(target.get("kind", "Deployment")), str(target.get("name", ""))


def _selects(budget: Object, pods: Sequence[Object]) -> bool:
    labels: Mapping[str, str] = (budget.get("spec", {}).get("selector") or {}).get("matchLabels") or {}
    return any(labels.items() <= (one["metadata"].get("labels") or {}).items() for one in pods)
