"""Pods evicted by a real API server: through their budgets, by uid, and no further once a person has uncordoned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from latdoctor.cluster_api import JSON_PATCH, Login
from latdoctor.remediation.actions.kubernetes.connection import Connection, workload_of
from latdoctor.remediation.actions.kubernetes.eviction import evict
from latdoctor.remediation.change import (
    Change,
    ChangeState,
    Contended,
    Deadline,
    Refused,
    Undo,
    Unreachable,
    ensure,
    state_of_change,
)
from latdoctor.remediation.run_result import Reason
from tests.lab.cluster.objects import HEALTH, Namespace, Object, condition, container
from tests.remediation.actions.kubernetes_cases import NAME, PATIENCE, Wire, World, node, replace, tapped

SHORT = 0.6  # seconds, where a test waits for nothing to happen


@pytest.fixture
def bound(namespace: Namespace) -> Iterator[str]:
    """The name of a node without a kubelet, with three Pods of a Deployment that stay as they are."""
    name = node(namespace)
    namespace.deployment(NAME, 3, container(), nodeName=name)
    namespace.wait("pods", lambda all_: len(all_) == 3)
    yield name
    namespace.api.delete(f"/api/v1/nodes/{name}")


def budget(namespace: Namespace) -> None:
    """A budget that lets none of one Pod be evicted."""
    path = f"/apis/policy/v1beta1/namespaces/{namespace.name}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": NAME}}}
    namespace.api.create(path, {"metadata": {"name": NAME}, "spec": spec})
    namespace.wait("", lambda all_: all_[NAME].get("status", {}).get("currentHealthy") == 1, path)


def pods(namespace: Namespace) -> dict[str, Object]:
    found = namespace.api.get(namespace.path("pods"))["items"]
    return {one["metadata"]["name"]: one for one in found}


def staying(namespace: Namespace, names: Mapping[str, Any]) -> set[str]:
    return {
        name for name, pod in pods(namespace).items() if name in names and "deletionTimestamp" not in pod["metadata"]
    }


def one_pod(namespace: Namespace, login: Login) -> tuple[World, Change, str]:
    name = next(iter(pods(namespace)))
    path = namespace.path("pods", name)
    world = World(namespace, login, "kubernetes.pod.evict", {"pod": name}, path, [], [], Undo.NONE_NEEDED)
    return world, world.planned(), name


def drain(namespace: Namespace, login: Login, bound: str) -> tuple[World, Change]:
    namespace.api.patch(f"/api/v1/nodes/{bound}", {"spec": {"unschedulable": True}})
    path = f"/api/v1/nodes/{bound}"
    world = World(namespace, login, "kubernetes.node.drain", {"node": bound}, path, [], [], Undo.NONE_NEEDED)
    return world, world.planned()


def bring(world: World, change: Change, seconds: float = PATIENCE) -> None:
    ensure(change, ChangeState.AFTER, world.resource(change), Deadline.after(seconds))


def test_a_pod_is_evicted_and_its_controller_creates_another(namespace: Namespace, login: Login, bound: str) -> None:
    before = pods(namespace)
    world, change, name = one_pod(namespace, login)
    assert world.refusals(change) == []
    bring(world, change)
    assert staying(namespace, before) == before.keys() - {name}
    namespace.wait("pods", lambda all_: len(all_.keys() - before.keys()) == 1)


def test_a_budget_is_kept_and_named(namespace: Namespace, login: Login) -> None:
    namespace.deployment(NAME, 1, container(readinessProbe=HEALTH))
    namespace.wait("pods", lambda all_: any(condition(one, "Ready") == "True" for one in all_.values()))
    budget(namespace)
    world, change, _ = one_pod(namespace, login)
    before = pods(namespace)
    with pytest.raises(Contended, match="PodDisruptionBudget"):
        bring(world, change, SHORT)
    assert staying(namespace, before) == before.keys()


def test_the_successor_of_a_pod_is_not_meant(namespace: Namespace, login: Login, bound: str) -> None:
    world, _, name = one_pod(namespace, login)
    connection = Connection(workload_of(world.access.target))
    with pytest.raises(Contended):
        evict(connection, namespace.name, name, "another-uid", Deadline.after(PATIENCE))
    assert name in staying(namespace, {name: None})


def test_a_pod_that_is_gone_counts_as_evicted(namespace: Namespace, login: Login, bound: str) -> None:
    world, change, name = one_pod(namespace, login)
    namespace.api.delete(namespace.path("pods", name), {"gracePeriodSeconds": 0})
    state = world.resource(change).read(Deadline.after(PATIENCE))
    assert state_of_change(change, state) is ChangeState.AFTER


def test_a_pod_without_a_controller_is_refused(namespace: Namespace, login: Login, bound: str) -> None:
    namespace.pod("alone", {"containers": [container()], "nodeName": bound})
    path = namespace.path("pods", "alone")
    world = World(namespace, login, "kubernetes.pod.evict", {"pod": "alone"}, path, [], [], Undo.NONE_NEEDED)
    (refusal,) = world.refusals(world.planned())
    assert (refusal.guard, "no controller" in refusal.reason) == (Reason.OWNED, True)


def test_a_drained_node_has_none_of_its_pods_left(namespace: Namespace, login: Login, bound: str) -> None:
    before = pods(namespace)
    world, change = drain(namespace, login, bound)
    assert len(change.fields) == 3
    assert world.refusals(change) == []
    bring(world, change)
    assert staying(namespace, before) == set()


def test_a_node_that_is_not_cordoned_is_not_drained(namespace: Namespace, login: Login, bound: str) -> None:
    before = pods(namespace)
    world, change = drain(namespace, login, bound)
    namespace.api.patch(f"/api/v1/nodes/{bound}", {"spec": {"unschedulable": None}})
    with pytest.raises(Refused, match="uncordoned"):
        bring(world, change)
    assert staying(namespace, before) == before.keys()


def test_uncordoning_cancels_the_rest_of_a_drain(namespace: Namespace, login: Login, bound: str) -> None:
    before = pods(namespace)
    world, change = drain(namespace, login, bound)

    def uncordon(number: int, request: Any) -> None:
        if request.method == "post":
            world.edit([{"op": "remove", "path": "/spec/unschedulable"}])

    with tapped(Wire(after=uncordon)), pytest.raises(Refused, match="uncordoned"):
        bring(world, change)
    assert len(staying(namespace, before)) == 2


def test_an_interrupted_drain_is_completed_by_the_next_attempt(namespace: Namespace, login: Login, bound: str) -> None:
    before = pods(namespace)
    world, change = drain(namespace, login, bound)
    lost = iter([True])

    def lose(number: int, request: Any) -> None:
        if request.method == "post" and next(lost, False):
            raise Unreachable("the connection was closed")

    with tapped(Wire(after=lose)) as wire:
        bring(world, change)
    assert staying(namespace, before) == set()
    assert len(wire.writes) == 3


def test_pods_of_a_daemon_set_stay(namespace: Namespace, login: Login, bound: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1-2-3", "controller": True}
    before = pods(namespace)
    for name in before:
        namespace.api.patch(namespace.path("pods", name), replace("/metadata/ownerReferences", [owner]), JSON_PATCH)
    _, change = drain(namespace, login, bound)
    assert not before.keys() & {one.name.partition("/")[2] for one in change.fields}
