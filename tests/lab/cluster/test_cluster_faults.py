"""Every fault of the catalogue shows in the cluster, and is reverted."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from latdoctor.cluster_api import ClusterApi
from latdoctor.errors import UsageError
from latdoctor.lab.cluster.cluster_faults import FAULTS, FaultSite, find_fault, names
from latdoctor.lab.cluster.deployed_service import DeployedService, wait_for
from latdoctor.lab.cluster.external_metrics import RATE
from latdoctor.lab.cluster.images import REFERENCE_SLOW
from latdoctor.lab.cluster.manifests import ServiceSpec, autoscaler
from latdoctor.load.arrivals import Constant
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import start_load
from tests.lab.cluster.objects import Object, condition, server, waiting
from tests.lab.cluster.shared_cluster import SPARE_LABEL

Objects = Mapping[str, Object]
Shows = Callable[[Objects], bool]
WITHIN = 60.0


def any_event(reason: str, words: str) -> Shows:
    return lambda events: any(one["reason"] == reason and words in one["message"] for one in events.values())


def any_pod(holds: Callable[[Object], object]) -> Shows:
    return lambda pods: any(holds(one) for one in pods.values())


def cpu_limit(pod: Object) -> str:
    return str(pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("cpu", ""))


def is_at_maximum(scalers: Objects) -> bool:
    conditions = (each for one in scalers.values() for each in one.get("status", {}).get("conditions") or ())
    return any(each["reason"] == "TooManyReplicas" and each["status"] == "True" for each in conditions)


# Where each fault shows: the kind of objects, and what is then true of them.
ON_ANY_NODE: dict[str, tuple[str, Shows]] = {
    "image-wrong": ("pods", any_pod(lambda pod: waiting(pod) in ("ErrImagePull", "ImagePullBackOff"))),
    "probe-too-strict": ("events", any_event("Killing", "failed liveness probe, will be restarted")),
    "memory-limit": ("pods", any_pod(lambda pod: "OOMKilled" in str(server(pod).get("lastState")))),
    "bad-rollout": (
        "pods",
        any_pod(lambda pod: server(pod).get("image") == REFERENCE_SLOW and condition(pod, "Ready") == "True"),
    ),
    "quota": ("deployments", lambda all_: any(condition(one, "ReplicaFailure") == "True" for one in all_.values())),
    "no-gpu": ("events", any_event("FailedScheduling", "Insufficient nvidia.com/gpu")),
    "hpa-at-maximum": ("horizontalpodautoscalers", is_at_maximum),
    "cpu-limit": ("pods", any_pod(lambda pod: cpu_limit(pod) and condition(pod, "Ready") == "True")),
    "preempted": ("events", any_event("Preempted", "")),
}
OF_NODES: dict[str, tuple[str, Shows]] = {
    "pod-evicted": ("pods", any_pod(lambda pod: pod.get("status", {}).get("reason") == "Evicted")),
    "node-lost": ("nodes", lambda nodes: any(condition(one, "Ready") == "Unknown" for one in nodes.values())),
    "zone-lost": ("nodes", lambda nodes: any(condition(one, "Ready") == "Unknown" for one in nodes.values())),
}


def new_service(api: ClusterApi, kubeconfig: Path, **more: object) -> DeployedService:
    spec = ServiceSpec(f"test-{uuid.uuid4().hex[:8]}", replicas=2, gpus=2, **more)  # type: ignore[arg-type]
    return DeployedService(api, kubeconfig, spec)


def shows_and_is_reverted(api: ClusterApi, service: DeployedService, name: str, kind: str, shows: Shows) -> None:
    where = "/api/v1/nodes" if kind == "nodes" else service.path(kind)
    with ExitStack() as undo:
        find_fault(name).inject(FaultSite(api, service.spec), undo)
        wait_for(api, where, shows, WITHIN)


def test_each_fault_of_a_service_shows_and_is_reverted(api: ClusterApi, kubeconfig: Path) -> None:
    with new_service(api, kubeconfig) as service:
        before = api.get(service.path("deployments", service.spec.name))["spec"]
        scaler = autoscaler(service.spec, RATE, "1", 2, 3)
        plan = LoadPlan((LoadPhase("load", 600, Constant(8)),))
        for name, (kind, shows) in ON_ANY_NODE.items():
            with ExitStack() as also:
                if find_fault(name).autoscaled:
                    also.enter_context(start_load(plan, service.router)).wait_started()
                    api.create(service.path("horizontalpodautoscalers"), scaler)
                    also.callback(api.delete, service.path("horizontalpodautoscalers", service.spec.name))
                shows_and_is_reverted(api, service, name, kind, shows)
            assert api.get(service.path("deployments", service.spec.name))["spec"]["template"] == before["template"]
        service.wait_rolled_out()


@pytest.mark.usefixtures("spare_nodes")
def test_each_fault_of_a_node_shows_and_is_reverted(api: ClusterApi, kubeconfig: Path) -> None:
    spare = {"node_selector": {SPARE_LABEL: "true"}, "tolerated_taint": SPARE_LABEL}
    with new_service(api, kubeconfig, **spare) as service:
        for name, (kind, shows) in OF_NODES.items():
            shows_and_is_reverted(api, service, name, kind, shows)
            wait_for(api, "/api/v1/nodes", lambda nodes: all(map(is_well, nodes.values())), WITHIN)
            service.wait_rolled_out()


def is_well(node: Object) -> bool:
    return condition(node, "Ready") == "True" and condition(node, "MemoryPressure") == "False"


def test_every_fault_is_tried_and_has_a_cause() -> None:
    assert {*ON_ANY_NODE, *OF_NODES} == set(names())
    assert all(fault.causes for fault in FAULTS)


def test_an_unknown_fault_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="node-lost"):
        find_fault("flood")
