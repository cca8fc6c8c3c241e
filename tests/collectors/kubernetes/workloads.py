"""Workloads of a real cluster, each with one thing wrong, and what shows that it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.lab.cluster.objects import HEALTH, Namespace, Object, condition, container, server, waiting

READY = container(readinessProbe=HEALTH)


@dataclass(frozen=True)
class Broken:
    """A workload's container, the state of its Pods that shows the fault, and the cause to be named."""

    container: Object
    shows: Callable[[Object], object]
    cause: str


def _restarted(pod: Object) -> object:
    return server(pod).get("restartCount", 0) >= 2


BROKEN: Mapping[str, Broken] = {
    "memory-limit": Broken(
        container("memory=96", resources={"limits": {"memory": "64Mi"}}),
        lambda pod: server(pod).get("lastState", {}).get("terminated", {}).get("reason") == "OOMKilled",
        "infra.container.memory-limit",
    ),
    "probe-kills": Broken(
        container("unhealthy-after=1", livenessProbe={**HEALTH, "failureThreshold": 2}),
        _restarted,
        "infra.kubernetes.probe-kills",
    ),
    "image-pull": Broken(
        container(image="lab/workload:9"),
        lambda pod: waiting(pod) == "ImagePullBackOff",
        "infra.kubernetes.image-pull",
    ),
    "no-capacity": Broken(
        container(resources={"limits": {"nvidia.com/gpu": "3"}}),
        lambda pod: condition(pod, "PodScheduled") == "False",
        "infra.kubernetes.no-capacity",
    ),
}


def create(namespace: Namespace) -> None:
    namespace.deployment("healthy", 2, READY)
    for name, one in BROKEN.items():
        namespace.deployment(name, 1, one.container)


def wait_until_ready(namespace: Namespace, name: str, replicas: int) -> None:
    namespace.wait("pods", lambda pods: len(ready(pods, name)) == len(alive(pods, name)) == replicas)


def wait_until_broken(namespace: Namespace, name: str) -> None:
    namespace.wait("pods", lambda pods: any(BROKEN[name].shows(one) for one in alive(pods, name)))


def alive(pods: Mapping[str, Object], name: str) -> list[Object]:
    """The Pods of a workload that are not leaving."""
    own = (one for one in pods.values() if one["metadata"].get("labels", {}).get("app") == name)
    return [one for one in own if "deletionTimestamp" not in one["metadata"]]


def ready(pods: Mapping[str, Object], name: str) -> list[Object]:
    return [one for one in alive(pods, name) if condition(one, "Ready") == "True"]
