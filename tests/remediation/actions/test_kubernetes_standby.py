"""What decides the number of replicas is what standby replicas are asked of, and what is ready is what counts."""

from __future__ import annotations

from typing import Any

import pytest

from latdoctor.cluster_api import JSON_PATCH, Login
from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes import standby
from latdoctor.remediation.change import ChangeState, Deadline, ensure
from latdoctor.remediation.changes_in_effect import GradualResource
from latdoctor.remediation.run_result import Reason
from tests.lab.cluster.objects import HEALTH, Namespace, condition, container
from tests.remediation.actions.kubernetes_cases import (
    NAME,
    PATIENCE,
    World,
    at_least,
    autoscaler,
    release,
    replace,
    scaled_object,
    set_by,
)


def reasons(world: World) -> list[Reason]:
    return [one.guard for one in world.refusals(world.planned())]


def test_the_minimum_of_an_autoscaler_is_raised_and_the_replicas_are_left_to_it(
    namespace: Namespace, login: Login
) -> None:
    world = at_least(namespace, login)
    path = autoscaler(namespace, minimum=1, maximum=4)
    change = world.planned()
    assert change.resource.endswith(path)
    assert change.after == {"/spec/minReplicas": 3}
    assert world.refusals(change) == []
    assert ensure(change, ChangeState.AFTER, world.resource(change), Deadline.after(PATIENCE))
    assert namespace.api.get(path)["spec"]["minReplicas"] == 3


def test_the_maximum_of_an_autoscaler_is_respected(namespace: Namespace, login: Login) -> None:
    world = at_least(namespace, login)
    autoscaler(namespace, minimum=1, maximum=2)
    with pytest.raises(UsageError, match="at most 2 replicas, and 3 are needed"):
        world.planned()


def test_a_scaled_object_of_keda_comes_before_the_autoscaler_that_it_owns(namespace: Namespace, login: Login) -> None:
    world = at_least(namespace, login)
    autoscaler(namespace)
    path = scaled_object(namespace)
    change = world.planned()
    assert change.resource.endswith(path)
    assert change.after == {"/spec/minReplicaCount": 3}
    with pytest.raises(UsageError, match="at most 3 replicas, and 5 are needed"):
        world.planned(replicas="5")


def test_more_than_are_needed_are_left_alone(namespace: Namespace, login: Login) -> None:
    world = at_least(namespace, login)
    namespace.api.patch(world.path, replace("/spec/replicas", 5), JSON_PATCH)
    assert world.planned().fields == ()


def test_a_pod_that_no_node_takes_is_not_ready_and_keeps_more_from_being_asked_for(
    namespace: Namespace, login: Login
) -> None:
    world = at_least(namespace, login)  # with a node selector that no node has
    change = world.planned()
    resource = world.resource(change)
    assert isinstance(resource, GradualResource)
    ensure(change, ChangeState.AFTER, resource, Deadline.after(PATIENCE))
    namespace.wait("pods", lambda all_: len(all_) == 3 and all(condition(one, "PodScheduled") for one in all_.values()))
    assert "no node takes 3 of its Pods" in resource.incomplete(Deadline.after(PATIENCE))
    (refusal,) = world.refusals(world.planned(replicas="4"))
    assert refusal.guard is Reason.NO_CAPACITY


def test_it_is_complete_when_as_many_are_ready(namespace: Namespace, login: Login) -> None:
    namespace.deployment(NAME, 1, container(readinessProbe=HEALTH))
    path = autoscaler(namespace, minimum=1, maximum=3)
    world = World(namespace, login, "kubernetes.replicas.at-least", {"replicas": "2"}, path, [], [])
    change = world.planned()
    resource = world.resource(change)
    assert isinstance(resource, GradualResource)
    ensure(change, ChangeState.AFTER, resource, Deadline.after(PATIENCE))
    assert "of 2 ready" in resource.incomplete(Deadline.after(PATIENCE))
    namespace.api.patch(namespace.path("deployments", NAME), replace("/spec/replicas", 2), JSON_PATCH)  # as it will
    namespace.wait("deployments", lambda all_: all_[NAME].get("status", {}).get("readyReplicas") == 2)
    assert resource.incomplete(Deadline.after(PATIENCE)) == ""


def test_a_quota_without_room_refuses(namespace: Namespace, login: Login) -> None:
    world = at_least(namespace, login)
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "2"}}}
    namespace.api.create(namespace.path("resourcequotas"), quota)
    namespace.wait("resourcequotas", lambda all_: "team" in all_ and all_["team"].get("status", {}).get("hard"))
    assert reasons(world) == [Reason.NO_CAPACITY]


@pytest.mark.parametrize(("manager", "refused"), [("kubectl-scale", True), ("latdoctor", False)])
def test_replicas_that_another_field_manager_has_set_since_are_not_released(
    namespace: Namespace, login: Login, manager: str, refused: bool
) -> None:
    world = release(namespace, login)
    set_by(namespace, world.path, manager, replace("/spec/replicas", 4))
    assert reasons(world) == ([Reason.OWNED] if refused else [])


def test_a_minimum_of_an_autoscaler_that_another_has_set_since_is_not_released(
    namespace: Namespace, login: Login
) -> None:
    """An autoscaler has no generation: that the same value was set again is seen by its field manager alone."""
    world = release(namespace, login)
    path = autoscaler(namespace, minimum=1, maximum=5)
    set_by(namespace, path, "latdoctor", replace("/spec/minReplicas", 4))
    assert reasons(world) == []
    set_by(namespace, path, "kubectl-edit", replace("/spec/minReplicas", 5))
    assert reasons(world) == [Reason.OWNED]


def test_a_disruption_budget_that_wants_more_than_would_be_left_refuses(namespace: Namespace, login: Login) -> None:
    world = release(namespace, login)
    path = f"/apis/policy/v1beta1/namespaces/{namespace.name}/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": NAME}}}
    namespace.api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    (refusal,) = world.refusals(world.planned())
    assert (refusal.guard, "wants 2 Pods available, and 1 would be left" in refusal.reason) == (Reason.OWNED, True)
    assert world.refusals(world.planned(replicas="2")) == []


def workload(**entry: Any) -> dict[str, Any]:
    owned = {"fieldsV1": {"f:spec": {"f:replicas": {}}}, **entry}
    return {"kind": "Deployment", "metadata": {"name": NAME, "managedFields": [owned]}}


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ({"manager": "dynamo-planner", "subresource": "scale"}, True),
        ({"manager": "kubectl", "subresource": "scale"}, False),
        ({"manager": "latdoctor", "subresource": "scale"}, False),
        ({"manager": "helm"}, False),  # it sets the whole specification at an upgrade
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_controller_that_sets_the_scale_is_not_fought(entry: dict[str, Any], refused: bool) -> None:
    found = [one.guard for one in standby._scaled_by_another(workload(**entry))]
    assert found == ([Reason.OWNED] if refused else [])
