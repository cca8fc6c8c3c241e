"""The shipped roles for reading: a diagnosis with them lacks nothing, and they grant nothing that none asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from latdoctor.cluster_api import ClusterApi
from latdoctor.collectors.kubernetes import resources
from latdoctor.collectors.kubernetes.failed_reads import ROLE
from latdoctor.gap_code import GapCode
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of, named
from tests.collectors.kubernetes.test_failing_api_server import Reply, as_json, healthy, listening
from tests.collectors.kubernetes.workloads import BROKEN
from tests.lab.cluster.objects import Namespace

MANIFEST = Path("deploy/kubernetes/read-only.yaml")
OF_NODES = Path("deploy/kubernetes/node-metrics.yaml")  # optional
ROLES = "/apis/rbac.authorization.k8s.io/v1"


def role(manifest: Path = MANIFEST) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(manifest.read_text())
    return found


def granted(*manifests: Path) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for manifest in manifests
        for rule in role(manifest)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(path: str) -> tuple[str, str, str]:
    """The group, the resource and the verb of a request."""
    parts = path.partition("?")[0].strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    if len(rest) > 2:
        return group, f"{rest[0]}/{rest[2]}", "get"
    return group, rest[0], "get" if len(rest) > 1 else "list"


def test_they_grant_exactly_what_is_asked_for(tmp_path: Path) -> None:
    every = [one for one in vars(resources).values() if isinstance(one, resources.Resource) and one.group]
    groups = [{"name": one.group, "versions": [{"version": version} for version in one.versions]} for one in every]
    spec = {
        "nodeName": "node-0",
        "priorityClassName": "high",
        "containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}}],
    }
    pod = {"metadata": {"name": "chat-0", "namespace": "prod"}, "spec": spec, "status": {"phase": "Running"}}
    owner = {"kind": "ReplicaSet", "name": "chat-7f", "controller": True}
    paths: list[str] = []

    def route(path: str) -> Reply | None:
        paths.extend([path] if path != "/apis" else [])
        if path == "/apis":
            return as_json({"groups": groups})
        if path.endswith("/pods/chat-0"):
            return as_json({**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}})  # type: ignore[dict-item]
        if "/pods?" in path:
            return as_json({"items": [pod], "metadata": {}})
        if "chat-0" in path:
            return as_json({"message": "not found"}, 404)
        return as_json({"metadata": {"name": path.rpartition("/")[2]}}) if asked(path)[2] == "get" else healthy(path)

    with listening(route, tmp_path) as kubeconfig:
        bundle_of(kubeconfig, "prod/chat-0")
        bundle_of(kubeconfig, "prod")
    assert {asked(path) for path in paths} == granted(MANIFEST, OF_NODES)


def test_a_diagnosis_with_it_lacks_nothing(namespace: Namespace, account: Path) -> None:
    namespace.deployment("chat", 1, BROKEN["no-capacity"].container)
    namespace.wait("pods", lambda pods: any(BROKEN["no-capacity"].shows(one) for one in pods.values()))
    bundle = bundle_of(account, f"{namespace.name}/chat")
    assert bundle.gaps == ()
    assert named(diagnosis_of(bundle))[:1] == ["infra.kubernetes.no-capacity"]


def test_without_it_nothing_is_read_and_the_role_is_named(namespace: Namespace, account: Path, api: ClusterApi) -> None:
    api.delete(f"{ROLES}/clusterrolebindings/{namespace.name}")
    bundle = bundle_of(account, f"{namespace.name}/chat")
    assert bundle.artifacts == ()
    assert {gap.code for gap in bundle.gaps} == {GapCode.PERMISSION}
    assert all(ROLE in gap.next_step for gap in bundle.gaps)


@pytest.fixture
def account(namespace: Namespace, api: ClusterApi, kubeconfig: Path, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a service account with the role."""
    name = namespace.name
    api.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "reader"}})
    api.create(f"{ROLES}/clusterroles", {**role(), "metadata": {"name": name}})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": name}],
    }
    api.create(f"{ROLES}/clusterrolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    answer = api.create(f"/api/v1/namespaces/{name}/serviceaccounts/reader/token", request)
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": answer["status"]["token"]}}]
    file = tmp_path / "kubeconfig"
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
    yield file
    api.delete(f"{ROLES}/clusterroles/{name}")
