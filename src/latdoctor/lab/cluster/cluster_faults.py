"""The faults of a cluster: each is injected into a service by its name, and reverted.

All are real: the control plane and the kubelet do with them what they do in a cluster. What a fault is the truth of
(`causes`) is for the evaluation only; it is not written into the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec import Struct

from latdoctor.cluster_api import NOT_FOUND, ApiError, ClusterApi
from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.cluster import manifests
from latdoctor.lab.cluster.images import REFERENCE_SLOW
from latdoctor.lab.cluster.manifests import CONTAINER, ServiceSpec, probe
from latdoctor.lab.cluster.nodes import LOST, PRESSURE

ZONE = "topology.kubernetes.io/zone"
_MISSING_IMAGE = "lab/reference:9"
_LOADS_FOR = 15.0  # seconds: longer than the strict probe allows
_MEMORY_MIB, _MEMORY_LIMIT = 96, "112Mi"  # with the 50 MiB of the server itself that is too much
_BUSY, _CPU_LIMIT = 0.3, "200m"  # a share of each forward pass that is computed, with few processors for it
_PRIORITY = 1_000_000
_MERGE = "application/merge-patch+json"


class FaultSite(Struct, frozen=True):
    """Where a fault is injected: a service of a cluster."""

    api: ClusterApi
    service: ServiceSpec

    def path(self, kind: str, name: str = "") -> str:
        return manifests.path(self.service.namespace, kind, name)

    @property
    def deployment(self) -> str:
        return self.path("deployments", self.service.name)

    def pods(self) -> list[dict[str, Any]]:
        """Those of the service that have a node and are not being deleted."""
        selector = ",".join(f"{key}={value}" for key, value in self.service.labels.items())
        items = self.api.get(self.path("pods"), labelSelector=selector)["items"]
        return [one for one in items if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]]


def find_service(api: ClusterApi, namespace: str, name: str) -> ServiceSpec:
    """A running service, as far as faults need to know it. Raises ApiError, OperationError for one of another kind."""
    where = manifests.path(namespace, "deployments", name)
    spec = api.get(where)["spec"]
    pod = spec["template"]["spec"]
    container = next((one for one in pod["containers"] if one["name"] == CONTAINER), None)
    if container is None:
        raise OperationError(f"has no container {CONTAINER!r}, as the services of the lab have", where=where)
    limits = container.get("resources", {}).get("limits", {})
    return ServiceSpec(
        namespace,
        name,
        replicas=spec["replicas"],
        arguments=tuple(container.get("args", ())),
        gpus=int(limits.get("nvidia.com/gpu", 0)),
        node_selector=pod.get("nodeSelector", {}),
        selector=spec["selector"].get("matchLabels", {}),
    )


class ClusterFault(Struct, frozen=True):
    """A fault, the causes that are right for it, and how it is injected.

    `gpus`: of each replica that the service must have for it; `autoscaled`: it needs an autoscaler; `load`: the factor
    by which the clients' load rises with it; `settle`: seconds from the injection until it shows.
    """

    id: str
    title: str
    causes: tuple[str, ...]
    inject: Callable[[FaultSite, ExitStack], None]
    gpus: int = 0
    autoscaled: bool = False
    load: float = 1.0
    settle: float = 10.0


def find_fault(name: str) -> ClusterFault:
    """Raises UsageError."""
    for fault in FAULTS:
        if fault.id == name:
            return fault
    raise UsageError(f"there is no fault {name!r} of a cluster", next_step=f"one of {', '.join(names())}")


def names() -> tuple[str, ...]:
    return tuple(fault.id for fault in FAULTS)


def _busiest(site: FaultSite, group: Callable[[str], str]) -> str:
    """The group of nodes with the most Pods of the service; of several the first by name. Raises OperationError."""
    counts = Counter(group(pod["spec"]["nodeName"]) for pod in site.pods())
    if not counts:
        raise OperationError("the service has no Pod on a node", where=site.deployment)
    return min(counts, key=lambda name: (-counts[name], name))


def _zones(site: FaultSite) -> Mapping[str, str]:
    """The zone of each node."""
    nodes = site.api.get("/api/v1/nodes")["items"]
    return {one["metadata"]["name"]: one["metadata"]["labels"].get(ZONE, "") for one in nodes}


def _mark(site: FaultSite, undo: ExitStack, nodes: Sequence[str], annotation: str, value: str) -> None:
    for name in nodes:
        path = f"/api/v1/nodes/{name}"
        undo.callback(site.api.patch, path, {"metadata": {"annotations": {annotation: None}}})
        site.api.patch(path, {"metadata": {"annotations": {annotation: value}}})


def _node_lost(site: FaultSite, undo: ExitStack) -> None:
    _mark(site, undo, [_busiest(site, str)], LOST, "true")


def _zone_lost(site: FaultSite, undo: ExitStack) -> None:
    zones = _zones(site)
    zone = _busiest(site, lambda node: zones[node])
    _mark(site, undo, [node for node, one in zones.items() if one == zone], LOST, "true")


def _node_pressure(site: FaultSite, undo: ExitStack) -> None:
    _mark(site, undo, [_busiest(site, str)], PRESSURE, "memory")


def _change(site: FaultSite, undo: ExitStack, spec: Mapping[str, Any]) -> None:
    """Changes the specification of the Deployment by a strategic merge; the undo restores the whole of what it was."""
    before = site.api.get(site.deployment)["spec"]
    restored = [{"op": "replace", "path": f"/spec/{name}", "value": before[name]} for name in spec]
    undo.callback(site.api.patch, site.deployment, restored, "application/json-patch+json")
    site.api.patch(site.deployment, {"spec": spec})


def _template(**container: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": CONTAINER, **container}]}}}


def _image_wrong(site: FaultSite, undo: ExitStack) -> None:
    _change(site, undo, _template(image=_MISSING_IMAGE))


def _probe_too_strict(site: FaultSite, undo: ExitStack) -> None:
    arguments = [*site.service.arguments, f"--load-seconds={_LOADS_FOR:g}"]
    strict = probe("/readyz", failureThreshold=2, initialDelaySeconds=2)
    _change(site, undo, _template(args=arguments, livenessProbe=strict))


def _bad_rollout(site: FaultSite, undo: ExitStack) -> None:
    _change(site, undo, _template(image=REFERENCE_SLOW))


def _memory_limit(site: FaultSite, undo: ExitStack) -> None:
    arguments = [*site.service.arguments, f"--memory-mib={_MEMORY_MIB}"]
    _change(site, undo, _template(args=arguments, resources={"limits": {"memory": _MEMORY_LIMIT}}))


def _cpu_limit(site: FaultSite, undo: ExitStack) -> None:
    """A release that computes more than its limit allows in a period, though less than it allows on average."""
    arguments = [*site.service.arguments, f"--busy={_BUSY:g}"]
    _change(site, undo, _template(args=arguments, resources={"limits": {"cpu": _CPU_LIMIT}}))


def _quota(site: FaultSite, undo: ExitStack) -> None:
    """As many Pods as there are, where more are needed."""
    quota = manifests.quota("pods", pods=str(len(site.pods())))
    site.api.create(site.path("resourcequotas"), quota)
    undo.callback(_delete, site.api, site.path("resourcequotas", "pods"))
    _change(site, undo, {"replicas": site.service.replicas + 2})


def _no_gpu(site: FaultSite, undo: ExitStack) -> None:
    """More replicas than the cluster has GPUs."""
    nodes = site.api.get("/api/v1/nodes")["items"]
    gpus = sum(int(one["status"].get("allocatable", {}).get("nvidia.com/gpu", 0)) for one in nodes)
    _change(site, undo, {"replicas": gpus // max(1, site.service.gpus) + 2})


def _at_maximum(site: FaultSite, undo: ExitStack) -> None:
    """The autoscaler may add none; the load that would need more is the caller's (`ClusterFault.load`)."""
    path = site.path("horizontalpodautoscalers", site.service.name)
    before = site.api.get(path)["spec"]["maxReplicas"]
    undo.callback(site.api.patch, path, {"spec": {"maxReplicas": before}}, _MERGE)
    site.api.patch(path, {"spec": {"maxReplicas": site.service.replicas}}, _MERGE)


def _preempted(site: FaultSite, undo: ExitStack) -> None:
    """Batch work with a higher priority takes the GPUs."""
    nodes = site.api.get("/api/v1/nodes")["items"]
    gpus = max(int(one["status"].get("allocatable", {}).get("nvidia.com/gpu", 0)) for one in nodes)
    name = f"urgent-{site.service.namespace}"
    priority = {"metadata": {"name": name}, "value": _PRIORITY, "globalDefault": False}
    site.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    undo.callback(_delete, site.api, f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    batch = ServiceSpec(
        site.service.namespace,
        "batch",
        replicas=len(nodes) - 1,  # some of the service stays
        image="lab/workload:1",
        command=("sleep", "100000"),
        gpus=gpus,
        grace_seconds=1,
        priority_class=name,
        node_selector=site.service.node_selector,
        tolerated_taint=site.service.tolerated_taint,
    )
    site.api.create(site.path("deployments"), manifests.deployment(batch, probes=False))
    undo.callback(_delete, site.api, site.path("deployments", batch.name))


def _delete(api: ClusterApi, path: str) -> None:
    try:
        api.delete(path)
    except ApiError as error:
        if error.status != NOT_FOUND:  # the namespace may be gone already
            raise


FAULTS = (
    ClusterFault("node-lost", "A node is lost", ("infra.kubernetes.node-lost",), _node_lost, settle=16),
    ClusterFault("zone-lost", "All nodes of a zone are lost", ("infra.kubernetes.node-lost",), _zone_lost, settle=16),
    ClusterFault("pod-evicted", "A node under pressure evicts Pods", ("infra.kubernetes.node-lost",), _node_pressure),
    ClusterFault(
        "image-wrong",
        "A rollout to an image that is not there",
        ("infra.kubernetes.bad-rollout", "infra.kubernetes.image-pull"),
        _image_wrong,
    ),
    ClusterFault(
        "probe-too-strict",
        "A liveness probe kills a server that loads",
        ("infra.kubernetes.probe-kills",),
        _probe_too_strict,
        settle=15,
    ),
    ClusterFault("quota", "A quota refuses Pods", ("infra.kubernetes.no-capacity",), _quota),
    ClusterFault("no-gpu", "No GPU is left", ("infra.kubernetes.no-capacity",), _no_gpu, gpus=1),
    ClusterFault(
        "hpa-at-maximum",
        "The autoscaler is at its maximum under load",
        ("app.scale.at-maximum",),
        _at_maximum,
        autoscaled=True,
        load=3.0,
        settle=15,
    ),
    ClusterFault(
        "bad-rollout", "A rollout of a slow release", ("framework.model.bad-rollout",), _bad_rollout, settle=25
    ),
    ClusterFault(
        "memory-limit", "A container hits its memory limit", ("infra.container.memory-limit",), _memory_limit, settle=15
    ),
    ClusterFault("cpu-limit", "A container hits its CPU limit", ("infra.cpu.quota",), _cpu_limit, settle=40),
    ClusterFault(
        "preempted", "Work of a higher priority takes the GPUs", ("infra.kubernetes.no-capacity",), _preempted, gpus=1
    ),
)
