"""The rights of the actions: the shipped role has exactly them, and without one the run is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.remediation.actions import ACTIONS
from latdoctor.remediation.actions.kubernetes.eviction import EvictAction
from latdoctor.remediation.actions.kubernetes.field_action import FieldsAction
from latdoctor.remediation.actions.kubernetes.find_workload import KINDS
from latdoctor.remediation.actions.kubernetes.rights import MANIFEST, WORKLOAD, Right
from latdoctor.remediation.change import ChangeState, Deadline, Refused, ensure
from latdoctor.remediation.run_result import Reason
from tests.lab.cluster.objects import Namespace
from tests.remediation.actions.kubernetes_cases import PATIENCE, replicas

ROOT = Path(__file__).parents[3]
ROLES = "/apis/rbac.authorization.k8s.io/v1"


def role(path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return found


def granted(path: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role(path)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(right: Right) -> set[tuple[str, str, str]]:
    resources = KINDS if right.resource == WORKLOAD else (right.resource,)
    end = f"/{right.subresource}" if right.subresource else ""
    return {(right.group, resource + end, right.verb) for resource in resources}


def test_the_role_has_exactly_what_the_actions_use() -> None:
    rights = {right for one in ACTIONS if isinstance(one, FieldsAction | EvictAction) for right in one.rights}
    assert granted(MANIFEST) == set().union(*map(needed, rights))


def account(namespace: Namespace, api: ClusterApi, folder: Path, *manifests: str) -> Iterator[Login]:
    """The login of a new service account with the roles in `manifests`, which are bound for the whole cluster."""
    name = namespace.name
    api.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "operator"}})
    made = []
    for number, manifest in enumerate(manifests):
        one = role(manifest)
        one["metadata"]["name"] = f"{name}-{number}"
        api.create(f"{ROLES}/clusterroles", one)
        subject = {"kind": "ServiceAccount", "name": "operator", "namespace": name}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{name}-{number}"}
        binding = {"metadata": {"name": f"{name}-{number}"}, "roleRef": reference, "subjects": [subject]}
        api.create(f"{ROLES}/clusterrolebindings", binding)
        made += [f"{ROLES}/clusterrolebindings/{name}-{number}", f"{ROLES}/clusterroles/{name}-{number}"]
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    answer = api.create(f"/api/v1/namespaces/{name}/serviceaccounts/operator/token", asked)
    config = json.loads(folder.joinpath("admin").read_text())
    config["users"] = [{"name": "administrator", "user": {"token": answer["status"]["token"]}}]
    file = folder / "kubeconfig"
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
    yield Login(file)
    for path in made:
        api.delete(path)


@pytest.fixture
def acting(namespace: Namespace, api: ClusterApi, kubeconfig: Path, tmp_path: Path) -> Iterator[Login]:
    (tmp_path / "admin").write_text(kubeconfig.read_text())
    yield from account(namespace, api, tmp_path, MANIFEST)


@pytest.fixture
def reading(namespace: Namespace, api: ClusterApi, kubeconfig: Path, tmp_path: Path) -> Iterator[Login]:
    (tmp_path / "admin").write_text(kubeconfig.read_text())
    yield from account(namespace, api, tmp_path, "deploy/kubernetes/read-only.yaml")


def test_the_role_suffices(namespace: Namespace, acting: Login) -> None:
    world = replicas(namespace, acting)
    change = world.planned()
    assert world.refusals(change) == []
    assert ensure(change, ChangeState.AFTER, world.resource(change), Deadline.after(PATIENCE))


def test_the_read_only_role_plans_and_is_refused(namespace: Namespace, reading: Login) -> None:
    world = replicas(namespace, reading)
    change = world.planned()
    (refusal,) = world.refusals(change)
    assert refusal.guard is Reason.NO_RIGHTS
    assert "patch deployments.apps" in refusal.reason
    assert MANIFEST in refusal.next_step
    with pytest.raises(Refused, match="not permitted"):
        ensure(change, ChangeState.AFTER, world.resource(change), Deadline.after(PATIENCE))
    assert world.values(change) == change.before
