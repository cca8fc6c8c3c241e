"""The laboratory's cluster: the real control plane, and processes of this machine behind its Pods."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from latdoctor.cluster_api import ApiError, ClusterApi, Listed
from latdoctor.errors import OperationError
from latdoctor.lab.cluster.control_plane import find_binaries
from latdoctor.lab.cluster.nodes import LOST
from tests.lab.cluster.objects import HEALTH, Namespace, Object, condition, container, server, waiting
from tests.lab.cluster.shared_cluster import SPARE_LABEL
from tests.waiting import comes_about

ZONE = "topology.kubernetes.io/zone"


def answer(pod: Object) -> str:
    connection = http.client.HTTPConnection(pod["status"]["podIP"], 8000, timeout=5)
    connection.request("GET", "/healthz")
    body = connection.getresponse().read().decode()
    connection.close()
    return body


def alive(pods: dict[str, Object]) -> dict[str, Object]:
    return {name: one for name, one in pods.items() if "deletionTimestamp" not in one["metadata"]}


def ready(pods: dict[str, Object]) -> dict[str, Object]:
    return {name: one for name, one in alive(pods).items() if condition(one, "Ready") == "True"}


def test_a_deployment_becomes_available_with_a_real_process_for_each_pod(namespace: Namespace) -> None:
    namespace.deployment("web", 3, container(readinessProbe=HEALTH))
    namespace.wait("deployments", lambda all_: condition(all_["web"], "Available") == "True")
    pods = ready(namespace.wait("pods", lambda pods: len(ready(pods)) == 3))
    assert {name: answer(pod).strip() for name, pod in pods.items()} == {name: name for name in pods}
    assert len({pod["status"]["podIP"] for pod in pods.values()}) == 3


def test_a_rollout_keeps_old_pods_until_new_ones_are_ready(namespace: Namespace) -> None:
    web = container(readinessProbe=HEALTH)
    namespace.deployment("web", 2, web)
    namespace.wait("pods", lambda pods: len(ready(pods)) == 2)
    body = {"spec": {"template": {"spec": {"containers": [{**web, "image": "lab/workload:2"}]}}}}
    namespace.api.patch(namespace.path("deployments", "web"), body)
    fewest = 2

    def replaced(pods: dict[str, Object]) -> bool:
        nonlocal fewest
        fewest = min(fewest, len(ready(pods)))
        return len(pods) == 2 and all(server(one).get("image") == "lab/workload:2" for one in ready(pods).values())

    namespace.wait("pods", replaced)
    assert fewest == 2


def test_a_pod_whose_readiness_probe_fails_runs_but_is_not_ready(namespace: Namespace) -> None:
    never = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    namespace.pod("one", {"containers": [container(readinessProbe=never)]})
    namespace.wait("events", lambda events: any(one["reason"] == "Unhealthy" for one in events.values()))
    pod = namespace.wait("pods", lambda pods: condition(pods["one"], "Ready") == "False")["one"]
    assert (pod["status"]["phase"], server(pod)["restartCount"]) == ("Running", 0)


def test_a_container_whose_liveness_probe_fails_is_restarted(namespace: Namespace) -> None:
    liveness = {**HEALTH, "failureThreshold": 2}
    namespace.pod("one", {"containers": [container("unhealthy-after=1", livenessProbe=liveness)]})
    pod = namespace.wait("pods", lambda pods: server(pods["one"]).get("restartCount", 0) >= 1)["one"]
    assert server(pod)["lastState"]["terminated"]["exitCode"] == 0
    assert pod["status"]["phase"] == "Running"


def test_other_probes_wait_for_the_startup_probe(namespace: Namespace, tmp_path: Path) -> None:
    started = tmp_path / "started"
    startup = {"exec": {"command": ["test", "-e", str(started)]}, "periodSeconds": 1, "failureThreshold": 100}
    strict = {"exec": {"command": ["test", "-e", str(started)]}, "periodSeconds": 1, "failureThreshold": 1}
    namespace.pod("one", {"containers": [container(startupProbe=startup, livenessProbe=strict)]})
    namespace.wait("events", lambda events: any("Startup probe" in one["message"] for one in events.values()))
    started.touch()
    pod = namespace.wait("pods", lambda pods: server(pods["one"]).get("started"))["one"]
    assert server(pod)["restartCount"] == 0


def test_a_container_that_keeps_failing_backs_off(namespace: Namespace) -> None:
    failing = {**container(), "command": ["sh", "-c", "exit 3"]}
    namespace.pod("one", {"containers": [failing]})
    pod = namespace.wait("pods", lambda pods: waiting(pods["one"]) == "CrashLoopBackOff")["one"]
    assert server(pod)["lastState"]["terminated"]["exitCode"] == 3


def test_more_memory_than_the_limit_is_oomkilled(namespace: Namespace) -> None:
    limited = container("memory=96", resources={"limits": {"memory": "64Mi"}})
    namespace.pod("one", {"containers": [limited]})
    pod = namespace.wait("pods", lambda pods: server(pods["one"]).get("lastState"))["one"]
    ended = server(pod)["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


def test_an_unknown_image_cannot_be_pulled(namespace: Namespace) -> None:
    namespace.pod("one", {"containers": [container(image="lab/workload:3")]})
    reasons = set()

    def backs_off(pods: dict[str, Object]) -> bool:
        reasons.add(waiting(pods["one"]))
        return {"ErrImagePull", "ImagePullBackOff"} <= reasons

    pod = namespace.wait("pods", backs_off)["one"]
    assert pod["status"]["phase"] == "Pending"


def test_a_pod_that_needs_more_gpus_than_a_node_has_is_not_scheduled(namespace: Namespace) -> None:
    greedy = container(resources={"limits": {"nvidia.com/gpu": "3"}})
    namespace.pod("one", {"containers": [greedy]})
    events = namespace.wait("events", lambda all_: any(one["reason"] == "FailedScheduling" for one in all_.values()))
    assert any("Insufficient nvidia.com/gpu" in one["message"] for one in events.values())


def test_a_mig_slice_is_a_resource_of_a_node(namespace: Namespace) -> None:
    namespace.pod("one", {"containers": [container(resources={"limits": {"nvidia.com/mig-1g.5gb": "1"}})]})
    namespace.wait("pods", lambda pods: condition(pods["one"], "Ready") == "True")


def test_a_quota_refuses_further_pods(namespace: Namespace) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    namespace.api.create(namespace.path("resourcequotas"), quota)
    namespace.wait("resourcequotas", lambda all_: all_["few"].get("status", {}).get("hard"))
    namespace.deployment("web", 2, container())
    deployments = namespace.wait("deployments", lambda all_: condition(all_["web"], "ReplicaFailure") == "True")
    failure = [one for one in deployments["web"]["status"]["conditions"] if one["type"] == "ReplicaFailure"]
    assert "exceeded quota" in failure[0]["message"]


def test_a_command_that_ends_with_0_succeeds_once(namespace: Namespace) -> None:
    namespace.pod("one", {"restartPolicy": "Never", "containers": [{**container(), "command": ["true"]}]})
    pod = namespace.wait("pods", lambda pods: pods["one"]["status"].get("phase") == "Succeeded")["one"]
    assert server(pod)["state"]["terminated"]["reason"] == "Completed"


def test_the_pre_stop_hook_ends_before_the_process_is_terminated(namespace: Namespace, tmp_path: Path) -> None:
    order = tmp_path / "order"
    hook = {"exec": {"command": ["sh", "-c", f"sleep 0.3; echo hook >> {order}"]}}
    one = container(f"end-file={order}", lifecycle={"preStop": hook}, readinessProbe=HEALTH)
    namespace.pod("one", {"terminationGracePeriodSeconds": 30, "containers": [one]})
    namespace.wait("pods", lambda pods: condition(pods["one"], "Ready") == "True")
    namespace.api.delete(namespace.path("pods", "one"))
    namespace.wait("pods", lambda pods: not pods)
    assert order.read_text().split() == ["hook", "terminated"]


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(namespace: Namespace, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    stubborn = {**container(), "command": ["sh", "-c", f"trap '' TERM; echo $$ > {mark}; while :; do sleep 0.1; done"]}
    stubborn["readinessProbe"] = {"exec": {"command": ["test", "-s", str(mark)]}, "periodSeconds": 1}
    namespace.pod("one", {"containers": [stubborn]})
    namespace.wait("pods", lambda pods: condition(pods["one"], "Ready") == "True")
    namespace.api.delete(namespace.path("pods", "one"))
    namespace.wait("pods", lambda pods: not pods)
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_an_eviction_respects_the_disruption_budget(namespace: Namespace) -> None:
    namespace.deployment("web", 1, container(readinessProbe=HEALTH))
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    path = f"/apis/policy/v1beta1/namespaces/{namespace.name}/poddisruptionbudgets"
    namespace.api.create(path, budget)
    namespace.wait("budgets", lambda all_: all_["web"].get("status", {}).get("currentHealthy") == 1, path)
    (name,) = namespace.wait("pods", lambda pods: len(ready(pods)) == 1)
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
    with pytest.raises(ApiError) as refused:
        namespace.api.create(f"{namespace.path('pods', name)}/eviction", eviction)
    assert refused.value.status == 429


@pytest.mark.usefixtures("spare_nodes")
def test_a_lost_node_becomes_not_ready_and_its_pods_are_replaced_elsewhere(
    api: ClusterApi, namespace: Namespace
) -> None:
    spare = {"nodeSelector": {SPARE_LABEL: "true"}, "tolerations": [{"key": SPARE_LABEL, "operator": "Exists"}]}
    namespace.deployment("web", 1, container(readinessProbe=HEALTH), **spare)
    (pod,) = ready(namespace.wait("pods", lambda pods: len(ready(pods)) == 1)).values()
    lost = pod["spec"]["nodeName"]
    api.patch(f"/api/v1/nodes/{lost}", {"metadata": {"annotations": {LOST: "true"}}})
    try:
        nodes = namespace.wait("nodes", lambda nodes: condition(nodes[lost], "Ready") == "Unknown", "/api/v1/nodes")
        assert len({one["metadata"]["labels"][ZONE] for one in nodes.values()}) == 5
        with pytest.raises(ConnectionRefusedError):
            answer(pod)
        pods = namespace.wait("pods", lambda pods: ready(pods) and pod["metadata"]["name"] not in ready(pods))
        assert {one["spec"]["nodeName"] for one in ready(pods).values()}.isdisjoint({lost})
    finally:
        api.patch(f"/api/v1/nodes/{lost}", {"metadata": {"annotations": {LOST: None}}})
    namespace.wait("nodes", lambda nodes: condition(nodes[lost], "Ready") == "True", "/api/v1/nodes")
    namespace.wait("pods", lambda pods: pod["metadata"]["name"] not in pods)


def test_an_expired_watch_lists_again(api: ClusterApi, monkeypatch: pytest.MonkeyPatch) -> None:
    expired = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    monkeypatch.setattr(api, "_lines", lambda *_: iter([expired]))
    listed = api.follow("/api/v1/nodes", threading.Event())
    assert [type(next(listed)) for _ in range(2)] == [Listed, Listed]


def test_a_component_ends_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import os, shutil, sys, time\nfrom pathlib import Path\n"
        "from latdoctor.lab.cluster.control_plane import Component\n"
        "print(Component(shutil.which('sleep'), ['1000'], Path(sys.argv[1])).pid, flush=True)\ntime.sleep(1000)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            assert comes_about(lambda: b"parent_watch" not in command_of(pid), 10)
            assert b"sleep" in command_of(pid)
        finally:
            parent.kill()
    assert comes_about(lambda: not command_of(pid), 10)


def command_of(pid: int) -> bytes:
    """Its command line; empty for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def test_missing_programs_are_named_with_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with pytest.raises(OperationError, match=r"kube-apiserver.*apt-get download etcd-server"):
        find_binaries()
