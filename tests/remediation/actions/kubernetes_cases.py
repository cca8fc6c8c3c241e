"""Objects on a real API server for each action on Kubernetes, with edits by another client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from latdoctor.cluster_api import JSON_PATCH, ClusterApi, Login
from latdoctor.http.client import Secret
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.find_workload import kubernetes_target
from latdoctor.remediation.change import Change, Deadline, Field, Resource, Undo, Values, has_values
from latdoctor.remediation.refusal import GuardedAction, Refusal
from latdoctor.remediation.target import Access, Workload
from tests.lab.cluster.objects import Namespace, container

PATIENCE = 20.0  # seconds
NAME = "web"
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
        return self.api.get(self.path)


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


def replicas(namespace: Namespace, login: Login) -> World:
    path = namespace.path("deployments", NAME)
    return World(
        namespace,
        login,
        "kubernetes.replicas.add",
        {"add": "2"},
        path,
        ours=replace("/spec/replicas", 7),
        other=replace("/spec/minReadySeconds", 3),
    )


def maximum(namespace: Namespace, login: Login) -> World:
    path = autoscaler(namespace)
    return World(
        namespace,
        login,
        "kubernetes.autoscaler.maximum.raise",
        {"add": "3"},
        path,
        ours=replace("/spec/maxReplicas", 9),
        other=replace("/spec/metrics/0/resource/target/averageUtilization", 70),
    )


def minimum(namespace: Namespace, login: Login) -> World:
    path = autoscaler(namespace, maximum=5)
    return World(
        namespace,
        login,
        "kubernetes.autoscaler.minimum.raise",
        {"add": "2"},
        path,
        ours=replace("/spec/minReplicas", 4),
        other=replace("/spec/metrics/0/resource/target/averageUtilization", 70),
    )


Make = Callable[[Namespace, Login], World]
WORLDS: dict[str, Make] = {
    "kubernetes.replicas.add": replicas,
    "kubernetes.autoscaler.maximum.raise": maximum,
    "kubernetes.autoscaler.minimum.raise": minimum,
}


def idle(namespace: Namespace, **more: Any) -> None:
    """A Deployment without Pods: what is written is the matter, not what runs."""
    namespace.deployment(NAME, 0, container(**more))


@dataclass
class Wire:
    """Hooks around the requests of the actions: `before` and `after` get the number of the request, from 1."""

    before: Callable[[int, Any], None] = lambda number, request: None
    after: Callable[[int, Any], None] = lambda number, request: None
    sent: list[Any] = field(default_factory=list)
    workload: Workload | None = None

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
