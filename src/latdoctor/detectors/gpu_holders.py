"""Whose GPU is it? The pod and the node of each GPU, and the GPUs of other pods, which are no trouble of a workload.

dcgm-exporter names the pod to which the kubelet assigned a GPU. Where it is not read, a pod that has as many GPUs as
its node has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, kind_of
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import counted

HOLDER, POD, NAMESPACE, CONTAINER, HOST = "gpu.holder", "gpu.pod", "gpu.pod_namespace", "gpu.pod_container", "gpu.host"
LIMIT, CAPACITY = "container.gpu.limit", "node.gpus_capacity"
_EXPORTER = "dcgm-exporter"  # the container whose own name stands there where no pod has the GPU
_LIVE = "kubernetes/"  # the artifacts of a workload that was asked for
_GPU, _NODE = "gpu", "node"
_SHOWN = 3


def gpu_holders(evidence: Evidence) -> Evidence:
    """Derive `gpu.holder` of every GPU whose pod is known."""
    named = {one.subject: one for one in evidence.readings_by_signal.get(POD, ())}
    pods = _assigned(evidence)
    found = [
        _reading(one, _words(evidence, one, pods)) for one in named.values() if not _is_exporters_own(evidence, one)
    ]
    return Evidence(readings=(*found, *_of_whole_nodes(evidence, named)))


def _reading(pod: Reading, text: str) -> Reading:
    return Reading(HOLDER, pod.subject, text, pod.origin, pod.window)


def _texts(evidence: Evidence, signal: str) -> Mapping[str, str]:
    return {one.subject: str(one.value) for one in evidence.readings_by_signal.get(signal, ())}


def _is_exporters_own(evidence: Evidence, pod: Reading) -> bool:
    return _EXPORTER in _texts(evidence, CONTAINER).get(pod.subject, "")


def _name(evidence: Evidence, pod: Reading) -> str:
    """`prod/chat-0`."""
    namespace = _texts(evidence, NAMESPACE).get(pod.subject, "")
    return f"{namespace}/{pod.value}" if namespace else str(pod.value)


def _words(evidence: Evidence, pod: Reading, pods: Mapping[str, str]) -> str:
    """`pod prod/chat-0 (container server) on node gpu-3`."""
    name = _name(evidence, pod)
    container = _texts(evidence, CONTAINER).get(pod.subject, "")
    node = _texts(evidence, HOST).get(pod.subject, "") or _node_of(evidence, pods.get(name, ""))
    within = f" (container {container})" if container else ""
    return f"pod {name}{within}" + (f" on node {node}" if node else "")


def _assigned(evidence: Evidence) -> Mapping[str, str]:
    """The pods that Kubernetes shows with GPUs, by `namespace/name`."""
    limits = (one for one in evidence.readings_by_signal.get(LIMIT, ()) if one.value)
    pods = {name for one in limits for name in evidence.lineage(one.subject) if kind_of(name) == "pod"}
    return {_bare(one): one for one in sorted(pods)}


def _bare(subject: str) -> str:
    """`prod/chat-0` of `pod/prod/chat-0@west`."""
    return subject.partition("/")[2].partition("@")[0]


def _node_of(evidence: Evidence, subject: str) -> str:
    node = next((one for one in evidence.lineage(subject) if kind_of(one) == _NODE), "") if subject else ""
    return _bare(node)


def _of_whole_nodes(evidence: Evidence, named: Mapping[str, Reading]) -> Iterator[Reading]:
    """The GPUs that an exporter does not name the pod of, on nodes that are one pod's."""
    owners = dict(_whole_nodes(evidence))
    for one in evidence.subjects:
        node = next((_bare(name) for name in evidence.lineage(one.id) if kind_of(name) == _NODE), "")
        pod = owners.get(node) or owners.get(one.id.rpartition("@")[2])
        if kind_of(one.id) == _GPU and one.id not in named and pod:
            text = f"pod {_bare(pod.subject)} on node {_node_of(evidence, pod.subject)}"
            yield Reading(HOLDER, one.id, text, pod.origin, pod.window, note="it has all GPUs of the node")


def _whole_nodes(evidence: Evidence) -> Iterator[tuple[str, Reading]]:
    """Nodes by name, with a reading of the pod that has all of their GPUs."""
    amounts: dict[str, float] = {}
    shown: dict[str, Reading] = {}
    for one in evidence.readings_by_signal.get(LIMIT, ()):
        pod = next((name for name in evidence.lineage(one.subject) if kind_of(name) == "pod"), "")
        if pod and not isinstance(one.value, str):
            amounts[pod] = amounts.get(pod, 0.0) + one.value
            shown[pod] = structs.replace(one, subject=pod)
    capacity = {one.subject: one.value for one in evidence.readings_by_signal.get(CAPACITY, ())}
    for pod, amount in amounts.items():
        node = next((name for name in evidence.lineage(pod) if name in capacity), "")
        if node and amount and capacity[node] == amount:
            yield _bare(node), shown[pod]


def without_foreign_gpus(evidence: Evidence) -> Evidence:
    """Return `evidence` without what was measured on GPUs that other pods hold than those of the workload.

    Only where a workload of a cluster was read, and has GPUs: then all of its pods are known. Idempotent.
    """
    own = {name for name, subject in _assigned(evidence).items() if _is_live(evidence, subject)}
    held = {one.subject: one for one in evidence.readings_by_signal.get(POD, ())}
    foreign = {
        subject: _name(evidence, one)
        for subject, one in held.items()
        if own and not _is_exporters_own(evidence, one) and _name(evidence, one) not in own
    }
    if not foreign:
        return evidence
    identity = frozenset({HOLDER, POD, NAMESPACE, CONTAINER, HOST, "gpu.uuid", "gpu.pci", "gpu.name"})

    def kept(subject: str) -> bool:
        return not any(one in foreign for one in evidence.lineage(subject)) or kind_of(subject) != _GPU

    gap = _left_out(foreign, next(iter(held.values())).origin)
    return structs.replace(
        evidence,
        readings=tuple(one for one in evidence.readings if one.signal in identity or kept(one.subject)),
        series=tuple(one for one in evidence.series if kept(one.subject)),
        distributions=tuple(one for one in evidence.distributions if kept(one.subject)),
        events=tuple(one for one in evidence.events if kept(one.subject)),
        looked=tuple(one for one in evidence.looked if kept(one[1])),
        gaps=tuple(dict.fromkeys((*evidence.gaps, gap))),
    )


def _is_live(evidence: Evidence, pod: str) -> bool:
    return any(one.origin.artifact.startswith(_LIVE) for one in evidence.readings if one.subject == pod)


def _left_out(foreign: Mapping[str, str], origin: Origin) -> Gap:
    pods = sorted(set(foreign.values()))
    more = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
    reason = f"{counted(len(foreign), 'GPU')} of other pods left out: {', '.join(pods[:_SHOWN])}{more}"
    step = "diagnose their workload: --kube NAMESPACE/NAME"
    return Gap("derived", reason, (), None, step, origin, GapCode.NOT_MATCHED)
