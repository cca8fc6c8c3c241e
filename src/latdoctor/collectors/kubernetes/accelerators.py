"""The accelerators of the cluster: what its nodes offer and what Pods of all namespaces have requested.

Only amounts are kept, without the names of other teams' Pods and nodes. An accelerator is requested by its limit, and
those of a Pod's init containers are free again for its containers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from latdoctor.cluster_api import ApiError
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.quantities import is_gpu
from latdoctor.collectors.kubernetes import resources
from latdoctor.collectors.kubernetes.api_reads import Answer, ApiReader, Object, Read
from latdoctor.collectors.kubernetes.failed_reads import gap_of
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode
from latdoctor.kubernetes_quantity import quantity

PART = "accelerators"
SIGNALS = ("cluster.gpus_allocatable", "cluster.gpus_free", "cluster.gpus_free_on_node")
_RUNNING = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
READS = (Read(resources.NODES), Read(resources.PODS, query=_RUNNING))


class NodeAccelerators(Struct, frozen=True):
    """Amounts by resource. `usable`: the node is ready and takes Pods."""

    usable: bool
    allocatable: dict[str, float]
    requested: dict[str, float]


class Accelerators(Struct, frozen=True):
    nodes: tuple[NodeAccelerators, ...] = ()


def requests_any(objects: Iterable[Object]) -> bool:
    """Whether a Pod or a template among the objects requests an accelerator."""
    return any(_requested(one.get("spec") or {}) for one in _with_templates(objects))


def _with_templates(objects: Iterable[Object]) -> Iterator[Object]:
    for one in objects:
        yield one
        yield (one.get("spec") or {}).get("template") or {}


def read_accelerators(reader: ApiReader) -> tuple[Accelerators | None, tuple[Gap, ...]]:
    """None where a part of it could not be read: what is free is then unknown."""
    nodes, pods = reader.read(READS)
    gaps = tuple(_gaps((nodes, pods)))
    if gaps or isinstance(nodes, ApiError) or isinstance(pods, ApiError):
        return None, gaps
    requested: dict[str, Counter[str]] = {}
    for pod in pods.found:
        spec = pod.get("spec") or {}
        requested.setdefault(spec.get("nodeName") or "", Counter()).update(_requested(spec))
    found = (_of_node(one, requested.get(one["metadata"]["name"], Counter())) for one in nodes.found)
    return Accelerators(tuple(one for one in found if one.allocatable)), ()


def _gaps(answers: Sequence[Answer]) -> Iterator[Gap]:
    for read, answer in zip(READS, answers, strict=True):
        if isinstance(answer, ApiError):
            yield gap_of(answer, read, SIGNALS)
        elif not answer.is_whole:
            reason = f"{read.resource.plural} of the cluster: only the first {len(answer.found)} were read"
            yield Gap("kubernetes", reason, SIGNALS, code=GapCode.TOO_LARGE)


def _of_node(node: Object, requested: Mapping[str, float]) -> NodeAccelerators:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    conditions = status.get("conditions") or ()
    ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)
    allocatable = {name: quantity(text) or 0.0 for name, text in (status.get("allocatable") or {}).items()}
    return NodeAccelerators(
        ready and not spec.get("unschedulable"),
        {name: amount for name, amount in allocatable.items() if is_gpu(name)},
        dict(requested),
    )


def _requested(spec: Object) -> Counter[str]:
    """By resource, what a Pod of this specification has."""
    together: Counter[str] = Counter()
    for one in spec.get("containers") or ():
        together.update(_limits(one))
    for one in spec.get("initContainers") or ():
        together |= Counter(_limits(one))
    return together


def _limits(container: Object) -> dict[str, int]:
    limits = (container.get("resources") or {}).get("limits") or {}
    return {name: int(quantity(text) or 0) for name, text in limits.items() if is_gpu(name)}


def put_accelerators(gathered: Gathered, content: bytes, cluster: str) -> None:
    """Add what is there and what is free, by resource. Raises ValueError for damaged content."""
    nodes = msgspec.json.decode(content, type=Accelerators).nodes
    names = sorted({name for one in nodes for name in one.allocatable})
    for name in names:
        usable = [one for one in nodes if one.usable and one.allocatable.get(name)]
        free = [max(0.0, one.allocatable[name] - one.requested.get(name, 0.0)) for one in usable]
        labels = (("resource", name),)
        there = sum(one.allocatable[name] for one in usable)
        for signal, value in zip(SIGNALS, (there, sum(free), max(free, default=0.0)), strict=True):
            gathered.reading(signal, cluster, value, 0, labels=labels, place=name)
