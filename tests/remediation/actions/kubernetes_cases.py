"""Objects on a real API server for each action on Kubernetes, with edits by another client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from latdoctor.cluster_api import JSON_PATCH, ApiError, ApiRequest, ClusterApi, Login
from latdoctor.http.client import Secret
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.find_workload import kubernetes_target
from latdoctor.remediation.change import Change, Deadline, Field, Resource, Undo, Values, has_values
from latdoctor.remediation.refusal import GuardedAction, Refusal
from latdoctor.remediation.target import Access, ClusterWorkload
from tests.lab.cluster.objects import Namespace, condition, container

PATIENCE = 20.0  # seconds
NAME = "web"
SERVER = "/spec/template/spec/containers/0"
METRIC = "/spec/metrics/0/resource/target"
AUTOSCALERS = "/apis/autoscaling/v2beta2/namespaces/{}/horizontalpodautoscalers"


@dataclass
class World:
    """An action with its arguments, on objects in a namespace of their own.

    `ours`: an edit by another client of the field that the action changes; `other`: one of another field of the same
    object. Both are JSON Patches of the object at `path`.
    """

    namespace: Namespace
    login: Login
    action: str
    arguments: Mapping[str, str]
    path: str
    ours: list[dict[str, Any]]
    other: list[dict[str, Any]]
    undo: Undo = Undo.RESTORE
    cleanups: list[Callable[[], object]] = field(default_factory=list)

    @property
    def api(self) -> ClusterApi:
        return self.namespace.api

    @property
    def access(self) -> Access:
        return Access(kubernetes_target(f"{self.namespace.name}/{NAME}", self.login), Secret())

    def planned(self, **arguments: str) -> Change:
        action, access = require_action(self.action), self.access
        given = {**self.arguments, **arguments}
        assert list(action.check_arguments(given)) == []
        where = action.resource_id(access.target, given)
        state = action.resource(access, where).read(Deadline.after(PATIENCE))
        desired = action.desired_values(given, state)
        fields = tuple(
            Field(name, state.values.get(name), value)
            for name, value in desired.items()
            if not has_values(state.values, {name: value})
        )
        return Change("step", self.action, where, fields, self.undo, state.version, state.caution)

    def resource(self, change: Change) -> Resource:
        return require_action(change.action).resource(self.access, change.resource)

    def values(self, change: Change) -> Values:
        state = self.resource(change).read(Deadline.after(PATIENCE))
        return {one.name: state.values.get(one.name) for one in change.fields}

    def refusals(self, change: Change) -> list[Refusal]:
        action = require_action(self.action)
        assert isinstance(action, GuardedAction)
        return list(action.refusals(self.access, change, Deadline.after(PATIENCE)))

    def edit(self, patch: list[dict[str, Any]]) -> None:
        self.api.patch(self.path, patch, JSON_PATCH)

    def found(self) -> Object:
        """The object as it is, without the taints that a controller sets by the state of a node."""
        one = self.api.get(self.path)
        if one["kind"] == "Node":
            one["spec"].pop("taints", None)
        return one


def replace(path: str, value: object) -> list[dict[str, Any]]:
    return [{"op": "add", "path": path, "value": value}]


def autoscaler(namespace: Namespace, minimum: int = 1, maximum: int = 2) -> str:
    """The path of a HorizontalPodAutoscaler of the Deployment."""
    path = AUTOSCALERS.format(namespace.name)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    spec = {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum, "metrics": [metric]}
    namespace.api.create(path, {"metadata": {"name": NAME}, "spec": spec})
    return f"{path}/{NAME}"


def idle(namespace: Namespace, one: Mapping[str, Any] | None = None, **more: Any) -> str:
    """The path of a Deployment without Pods: what is written is the matter, not what runs."""
    namespace.deployment(NAME, 0, one or container(), **more)
    namespace.wait("deployments", lambda all_: noticed(all_[NAME], "1"))
    return namespace.path("deployments", NAME)


def noticed(deployment: Object, revision: str) -> bool:
    """Whether the controller has seen the Deployment as it is, and will not write to it any more."""
    metadata = deployment["metadata"]
    numbered = metadata.get("annotations", {}).get("deployment.kubernetes.io/revision") == revision
    return numbered and deployment.get("status", {}).get("observedGeneration") == metadata["generation"]


def replicas(namespace: Namespace, login: Login) -> World:
    path = idle(namespace)
    ours, other = replace("/spec/replicas", 7), replace("/spec/minReadySeconds", 3)
    return World(namespace, login, "kubernetes.replicas.add", {"add": "2"}, path, ours, other)


def maximum(namespace: Namespace, login: Login) -> World:
    idle(namespace)
    path = autoscaler(namespace)
    ours, other = replace("/spec/maxReplicas", 9), replace(f"{METRIC}/averageUtilization", 70)
    return World(namespace, login, "kubernetes.autoscaler.maximum.raise", {"add": "3"}, path, ours, other)


def minimum(namespace: Namespace, login: Login) -> World:
    idle(namespace)
    path = autoscaler(namespace, maximum=5)
    ours, other = replace("/spec/minReplicas", 4), replace(f"{METRIC}/averageUtilization", 70)
    return World(namespace, login, "kubernetes.autoscaler.minimum.raise", {"add": "2"}, path, ours, other)


def at_least(namespace: Namespace, login: Login) -> World:
    path = idle(namespace, nodeSelector={"test/none": "true"})
    ours, other = replace("/spec/replicas", 7), replace("/spec/minReadySeconds", 3)
    return World(namespace, login, "kubernetes.replicas.at-least", {"replicas": "3"}, path, ours, other)


def release(namespace: Namespace, login: Login) -> World:
    """Three replicas that latdoctor has asked for."""
    world = at_least(namespace, login)
    set_by(namespace, world.path, "latdoctor", replace("/spec/replicas", 3))
    world.action, world.arguments = "kubernetes.replicas.release", {"replicas": "1"}
    return world


def set_by(namespace: Namespace, path: str, manager: str, patch: list[dict[str, Any]]) -> None:
    """An edit by this field manager."""
    query = {"fieldManager": manager}
    namespace.api.request(ApiRequest("patch", path, patch, JSON_PATCH, query), PATIENCE)


def rollout_undo(namespace: Namespace, login: Login) -> World:
    path = idle(namespace)
    namespace.api.patch(path, replace(f"{SERVER}/image", "lab/workload:2"), JSON_PATCH)
    namespace.wait("deployments", lambda all_: noticed(all_[NAME], "2"))
    ours, other = replace(f"{SERVER}/image", "lab/workload:3"), replace("/spec/minReadySeconds", 3)
    return World(namespace, login, "kubernetes.rollout.undo", {"revision": "previous"}, path, ours, other)


def rollout_pause(namespace: Namespace, login: Login) -> World:
    path, other = idle(namespace), replace("/spec/minReadySeconds", 3)
    return World(namespace, login, "kubernetes.rollout.pause", {"paused": "true"}, path, [], other)


def slow_down(namespace: Namespace, login: Login) -> World:
    path = idle(namespace)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 5}}
    namespace.api.patch(path, replace("/spec/strategy", rolling), JSON_PATCH)
    ours = replace("/spec/strategy/rollingUpdate/maxUnavailable", "50%")
    given = {"share": "33%", "min_ready_seconds": "10s"}
    return World(namespace, login, "kubernetes.rollout.slow-down", given, path, ours, replace("/spec/paused", True))


def drain_safe(namespace: Namespace, login: Login) -> World:
    path = idle(namespace)
    ours = replace("/spec/template/spec/terminationGracePeriodSeconds", 5)
    given = {"pre_stop_seconds": "10s", "grace_seconds": "60s"}
    return World(namespace, login, "kubernetes.rollout.drain-safe", given, path, ours, replace("/spec/paused", True))


def memory(namespace: Namespace, login: Login) -> World:
    same = {"memory": "512Mi"}
    path = idle(namespace, container(resources={"limits": same, "requests": same}))
    ours = replace(f"{SERVER}/resources/limits/memory", "700Mi")
    other = replace("/spec/minReadySeconds", 3)
    return World(namespace, login, "kubernetes.memory.raise", {"factor": "1.5"}, path, ours, other)


def argument(namespace: Namespace, login: Login) -> World:
    path = idle(namespace, container(args=["--port=8000", "--set=queue.max_requests=9"]))
    ours, other = replace(f"{SERVER}/args", ["--port=8001"]), replace("/spec/minReadySeconds", 3)
    given = {"argument": "--set=queue.max_requests", "value": "64"}
    return World(namespace, login, "kubernetes.argument.set", given, path, ours, other)


def device(namespace: Namespace, login: Login) -> World:
    path = idle(namespace, container(resources={"limits": {"nvidia.com/gpu": "1"}}))
    namespace.wait(
        "nodes", lambda all_: any(condition(one, "Ready") == "True" for one in all_.values()), "/api/v1/nodes"
    )
    ours, other = replace(f"{SERVER}/resources", {}), replace("/spec/minReadySeconds", 3)
    given = {"resource": "nvidia.com/mig-1g.5gb", "count": "2"}
    return World(namespace, login, "kubernetes.device.set", given, path, ours, other)


def priority(namespace: Namespace, login: Login) -> World:
    path = idle(namespace)
    ours = replace("/spec/template/spec/priorityClassName", "system-node-critical")
    given = {"class": "system-cluster-critical"}
    return World(namespace, login, "kubernetes.priority.set", given, path, ours, replace("/spec/paused", True))


def quota(namespace: Namespace, login: Login) -> World:
    idle(namespace)
    hard = {"requests.nvidia.com/gpu": "2", "limits.memory": "8Gi"}
    namespace.api.create(namespace.path("resourcequotas"), {"metadata": {"name": "team"}, "spec": {"hard": hard}})
    path = namespace.path("resourcequotas", "team")
    ours = replace("/spec/hard/requests.nvidia.com~1gpu", "9")
    given = {"quota": "team", "resource": "requests.nvidia.com/gpu", "add": "2"}
    return World(
        namespace, login, "kubernetes.quota.raise", given, path, ours, replace("/spec/hard/limits.memory", "9Gi")
    )


def cordon(namespace: Namespace, login: Login) -> World:
    idle(namespace)
    name = node(namespace)
    other = replace("/metadata/labels", {"test": "other"})
    path = f"/api/v1/nodes/{name}"
    world = World(namespace, login, "kubernetes.node.cordon", {"node": name}, path, [], other)
    world.cleanups.append(lambda: namespace.api.delete(path))
    return world


def node(namespace: Namespace) -> str:
    """The name of a new node that nothing runs on. The caller deletes it."""
    name = f"{namespace.name}-node"
    namespace.api.create("/api/v1/nodes", {"metadata": {"name": name}})
    return name


def scaled_object(namespace: Namespace, **spec: Any) -> str:
    """The path of a ScaledObject of the Deployment."""
    define_scaled_objects(namespace)
    path = f"/apis/keda.sh/v1alpha1/namespaces/{namespace.name}/scaledobjects"
    whole = {"scaleTargetRef": {"name": NAME}, "maxReplicaCount": 3, **spec}
    body = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": NAME}, "spec": whole}
    namespace.api.create(path, body)
    return f"{path}/{NAME}"


def keda(namespace: Namespace, login: Login) -> World:
    idle(namespace)
    path = scaled_object(namespace)
    ours = [{"op": "add", "path": "/metadata/annotations", "value": {"autoscaling.keda.sh/paused": "false"}}]
    other = replace("/spec/maxReplicaCount", 7)
    return World(namespace, login, "kubernetes.keda.pause", {"paused": "true"}, path, ours, other)


def define_scaled_objects(namespace: Namespace) -> None:
    """The resource definition of KEDA, as far as it matters here; several tests need it at once."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {
        "plural": "scaledobjects",
        "singular": "scaledobject",
        "kind": "ScaledObject",
        "listKind": "ScaledObjectList",
    }
    definitions, name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "scaledobjects.keda.sh"
    spec = {"group": "keda.sh", "scope": "Namespaced", "names": names, "versions": [version]}
    with suppress(ApiError):  # another test has defined it
        namespace.api.create(definitions, {"metadata": {"name": name}, "spec": spec})
    namespace.wait("", lambda all_: _is_established(all_[name]), definitions)


def _is_established(definition: Object) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()  # null at first
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


Make = Callable[[Namespace, Login], World]
WORLDS: dict[str, Make] = {
    "kubernetes.replicas.add": replicas,
    "kubernetes.autoscaler.maximum.raise": maximum,
    "kubernetes.autoscaler.minimum.raise": minimum,
    "kubernetes.replicas.at-least": at_least,
    "kubernetes.replicas.release": release,
    "kubernetes.rollout.undo": rollout_undo,
    "kubernetes.rollout.pause": rollout_pause,
    "kubernetes.rollout.slow-down": slow_down,
    "kubernetes.rollout.drain-safe": drain_safe,
    "kubernetes.memory.raise": memory,
    "kubernetes.argument.set": argument,
    "kubernetes.device.set": device,
    "kubernetes.priority.set": priority,
    "kubernetes.quota.raise": quota,
    "kubernetes.node.cordon": cordon,
    "kubernetes.keda.pause": keda,
}
# What all fields have in common is tested on one object with a generation, one without, and a whole template.
TYPICAL = ("kubernetes.replicas.add", "kubernetes.autoscaler.maximum.raise", "kubernetes.rollout.undo")


@dataclass
class Wire:
    """Hooks around the requests of the actions: `before` and `after` get the number of the request, from 1."""

    before: Callable[[int, Any], None] = lambda number, request: None
    after: Callable[[int, Any], None] = lambda number, request: None
    sent: list[Any] = field(default_factory=list)
    workload: ClusterWorkload | None = None

    @property
    def writes(self) -> list[Any]:
        return [one for one in self.sent if one.method != "get" and not one.path.endswith("reviews")]


@contextmanager
def tapped(wire: Wire) -> Iterator[Wire]:
    """Every request of the actions goes through `wire`."""
    send = Connection.send

    def through(self: Connection, request: Any, deadline: Deadline) -> Object:
        wire.sent.append(request)
        number = len(wire.sent)
        wire.before(number, request)
        answer = send(self, request, deadline)
        wire.after(number, request)
        return answer

    Connection.send = through  # type: ignore[method-assign]
    try:
        yield wire
    finally:
        Connection.send = send  # type: ignore[method-assign]
