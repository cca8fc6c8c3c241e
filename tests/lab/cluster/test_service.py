"""A service of the reference server in the cluster, and the router that follows its ready Pods."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from latdoctor.cluster_api import ClusterApi
from latdoctor.lab.cluster.deployed_service import DeployedService
from latdoctor.lab.cluster.images import command_of
from latdoctor.lab.cluster.manifests import ServiceSpec
from latdoctor.lab.cluster.service_router import ready_pods
from tests.waiting import comes_about

WITHIN = 30.0


def ask(url: str, path: str, body: str = "") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WITHIN)
    connection.request("POST" if body else "GET", path, body or None, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def replicas(url: str) -> int:
    return len(json.loads(ask(url, "/readyz")[2])["replicas"])


@pytest.fixture
def service(api: ClusterApi, kubeconfig: Path) -> Iterator[DeployedService]:
    with DeployedService(api, kubeconfig, ServiceSpec(f"test-{uuid.uuid4().hex[:8]}", replicas=2)) as one:
        yield one


def test_the_router_sends_each_request_to_a_ready_pod_and_follows_the_replicas(
    api: ClusterApi, service: DeployedService
) -> None:
    assert comes_about(lambda: replicas(service.router) == 2, WITHIN)
    answers = [ask(service.router, "/v1/intent", '{"text": "where is my order"}') for _ in range(4)]
    assert {status for status, _, _ in answers} == {200}
    assert len({headers["x-replica"] for _, headers, _ in answers}) == 2
    api.patch(service.path("deployments", service.spec.name), {"spec": {"replicas": 1}})
    assert comes_about(lambda: replicas(service.router) == 1, WITHIN)
    assert ask(service.router, "/v1/intent", '{"text": "where is my order"}')[0] == 200
    page = ask(service.router, "/metrics")[2].decode()
    assert page.count("\nref_router_replica_up{") == 1
    assert page.count("\nref_router_requests_total{") == 1


def test_a_reference_pod_reports_itself_and_loads_no_torch() -> None:
    code = "import sys, latdoctor.lab.cluster.reference_pod, latdoctor.lab.server.sleeping_model as model\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


COMMANDS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("the image's", {}, ["serve", "--here"]),
    ("with arguments", {"args": ["--host=$(POD_IP)"]}, ["serve", "--here", "--host=127.1.2.3"]),
    ("the container's own", {"command": ["sleep"], "args": ["1"]}, ["sleep", "1"]),
    ("an unknown variable stays", {"args": ["$(NONE)"]}, ["serve", "--here", "$(NONE)"]),
    ("an escaped one is not replaced", {"args": ["$$(POD_IP)"]}, ["serve", "--here", "$(POD_IP)"]),
]


@pytest.mark.parametrize(("spec", "expected"), [one[1:] for one in COMMANDS], ids=[one[0] for one in COMMANDS])
def test_the_command_of_a_container(spec: dict[str, Any], expected: list[str]) -> None:
    assert command_of(spec, ("serve", "--here"), {"POD_IP": "127.1.2.3"}) == expected


def test_only_ready_endpoints_take_requests() -> None:
    def endpoint(name: str, ready: bool) -> dict[str, Any]:
        return {"addresses": [f"127.1.1.{len(name)}"], "conditions": {"ready": ready}, "targetRef": {"name": name}}

    slices = [
        {"ports": [{"port": 8000}], "endpoints": [endpoint("a", True), endpoint("bb", False)]},
        {"ports": [], "endpoints": [endpoint("ccc", True)]},
        {"ports": [{"port": 8000}], "endpoints": None},
    ]
    assert ready_pods(slices) == {"a": "http://127.1.1.1:8000"}
