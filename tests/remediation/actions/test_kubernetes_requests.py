"""Requests against the models of a current Kubernetes, for the cluster of the tests is 1.20."""

from __future__ import annotations

from typing import Any

import pytest

from latdoctor.cluster_api import Login
from latdoctor.remediation.change import ChangeState, Deadline, Undo, ensure
from tests.lab.cluster.objects import Namespace, container
from tests.remediation.actions.kubernetes_cases import NAME, PATIENCE, Wire, World, tapped
from tests.remediation.actions.kubernetes_models import patched, problems


def test_an_eviction_fits_a_current_kubernetes(namespace: Namespace, login: Login) -> None:
    namespace.deployment(NAME, 1, container())
    (name,) = namespace.wait("pods", lambda all_: len(all_) == 1)
    path = namespace.path("pods", name)
    world = World(namespace, login, "kubernetes.pod.evict", {"pod": name}, path, [], [], Undo.NONE_NEEDED)
    change = world.planned()
    with tapped(Wire()) as wire:
        ensure(change, ChangeState.AFTER, world.resource(change), Deadline.after(PATIENCE))
    bodies = [one.body for one in wire.sent if one.path.endswith("eviction")]
    assert [problems(body, "V1Eviction") for body in bodies] == [[]]


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        ({"op": "add", "path": "/spec/replica", "value": 3}, "spec/replica: Extra inputs"),
        ({"op": "add", "path": "/spec/replicas", "value": "3"}, "spec/replicas: Input should be a valid integer"),
        ({"op": "remove", "path": "/spec/selector"}, "spec/selector: Field required"),
    ],
)
def test_what_does_not_fit_is_found(patch: dict[str, Any], what: str) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "server"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    assert problems({"spec": spec}, "V1Deployment") == []
    (found,) = problems(patched({"spec": spec}, [patch]), "V1Deployment")
    assert what in found
