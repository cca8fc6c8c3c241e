"""Objects of a service in the lab: Deployment, Service, HorizontalPodAutoscaler, PodDisruptionBudget, ResourceQuota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from latdoctor.lab.cluster.images import REFERENCE
from latdoctor.lab.cluster.reference_pod import PORT

Object = dict[str, Any]
CONTAINER = "server"
AT_MOST_A_THIRD = "33%"


class ServiceSpec(Struct, frozen=True):
    """A service of the reference server in a namespace.

    `command` replaces that of the image. `gpus`, `cpu`, `memory`: of each replica; empty: none. `drain_seconds`: a
    preStop hook that waits so long, in which a Pod answers what routers still send to it; 0: none. `selector`: the
    labels of its Pods; empty: `app` and its name. `live_path`, `ready_path`: of its probes.
    """

    namespace: str
    name: str = "intent"
    replicas: int = 2
    image: str = REFERENCE
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    gpus: int = 0
    cpu: str = ""
    memory: str = ""
    grace_seconds: int = 10
    drain_seconds: float = 0.0
    priority_class: str = ""
    node_selector: dict[str, str] = {}
    tolerated_taint: str = ""
    selector: dict[str, str] = {}
    live_path: str = "/healthz"
    ready_path: str = "/readyz"
    starts_within: int = 60  # seconds

    @property
    def labels(self) -> dict[str, str]:
        return self.selector or {"app": self.name}


def path(namespace: str, kind: str, name: str = "") -> str:
    """The path of an object, or of all of its kind (a plural such as `deployments`) in the namespace."""
    group = _GROUPS.get(kind, "/api/v1")
    return f"{group}/namespaces/{namespace}/{kind}" + (f"/{name}" if name else "")


_GROUPS = {
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2beta2",  # what the control plane of the lab has
    "poddisruptionbudgets": "/apis/policy/v1beta1",
    "events": "/api/v1",
}


def probe(url_path: str, **more: int) -> Object:
    """An HTTP probe of the server, each second."""
    return {"httpGet": {"path": url_path, "port": PORT}, "periodSeconds": 1, **more}


def deployment(service: ServiceSpec, *, probes: bool = True) -> Object:
    """At most a third of the replicas is missing or additional while they are replaced."""
    container: Object = {
        "name": CONTAINER,
        "image": service.image,
        "args": list(service.arguments),
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": _resources(service),
    }
    if service.command:
        container["command"] = list(service.command)
    if probes:
        container["startupProbe"] = probe(service.live_path, failureThreshold=service.starts_within)
        # With time for a busy machine: a Pod that is only slow must not count as missing.
        container["readinessProbe"] = probe(service.ready_path, failureThreshold=3, timeoutSeconds=5)
        container["livenessProbe"] = probe(service.live_path, failureThreshold=10, timeoutSeconds=5)
    if service.drain_seconds:
        container["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", f"{service.drain_seconds:g}"]}}}
    pod: Object = {"terminationGracePeriodSeconds": service.grace_seconds, "containers": [container]}
    if service.priority_class:
        pod["priorityClassName"] = service.priority_class
    if service.node_selector:
        pod["nodeSelector"] = service.node_selector
    if service.tolerated_taint:
        pod["tolerations"] = [{"key": service.tolerated_taint, "operator": "Exists"}]
    return {
        "metadata": {"name": service.name, "labels": service.labels},
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": service.labels},
            "strategy": {"rollingUpdate": {"maxUnavailable": AT_MOST_A_THIRD, "maxSurge": AT_MOST_A_THIRD}},
            "template": {"metadata": {"labels": service.labels}, "spec": pod},
        },
    }


def _resources(service: ServiceSpec) -> Object:
    wanted = {"cpu": service.cpu, "memory": service.memory, "nvidia.com/gpu": str(service.gpus or "")}
    given = {name: amount for name, amount in wanted.items() if amount}
    limits = {name: amount for name, amount in given.items() if name != "cpu"}  # reserved, not limited
    return {"requests": given, "limits": limits} if given else {}


def kubernetes_service(service: ServiceSpec) -> Object:
    """Names the Pods that the router follows."""
    ports = [{"name": "http", "port": 80, "targetPort": PORT}]
    return {"metadata": {"name": service.name}, "spec": {"selector": service.labels, "ports": ports}}


def autoscaler(
    service: ServiceSpec,
    metric: str,
    per_replica: str,
    least: int,
    most: int,
    behavior: Mapping[str, Any] | None = None,
) -> Object:
    """Scales the Deployment so that an external metric is at most `per_replica` for each replica."""
    target = {"type": "AverageValue", "averageValue": per_replica}
    selector = {"matchLabels": {"service": service.name}}
    spec: Object = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [
            {"type": "External", "external": {"metric": {"name": metric, "selector": selector}, "target": target}}
        ],
    }
    if behavior:
        spec["behavior"] = dict(behavior)
    return {"metadata": {"name": service.name}, "spec": spec}


def disruption_budget(service: ServiceSpec, max_unavailable: int | str = 1) -> Object:
    spec = {"maxUnavailable": max_unavailable, "selector": {"matchLabels": service.labels}}
    return {"metadata": {"name": service.name}, "spec": spec}


def quota(name: str, **hard: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"hard": hard}}
