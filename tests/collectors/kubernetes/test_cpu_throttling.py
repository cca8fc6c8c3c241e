"""A CPU limit that throttles, by the counters of the kubelet; a limit without its counters proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.case_from_bundle import seen
from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.collectors.kubernetes.cpu_counters import ROLE, own_lines
from latdoctor.evidence.bundle import Bundle
from latdoctor.gap_code import GapCode
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of, named
from tests.collectors.kubernetes.test_read_only_role import account
from tests.collectors.kubernetes.workloads import wait_until_ready
from tests.lab.cluster.objects import HEALTH, Namespace, container

__all__ = ["account"]
LIMIT = 0.2
WINDOW = 2.0


def deployed(namespace: Namespace, *arguments: str) -> str:
    limits = {"limits": {"cpu": f"{LIMIT * 1000:g}m"}}
    namespace.deployment("chat", 1, container(*arguments, readinessProbe=HEALTH, resources=limits))
    wait_until_ready(namespace, "chat", 1)
    return f"{namespace.name}/chat"


def values(bundle: Bundle) -> dict[str, float]:
    """The figures of its container."""
    evidence, _ = seen(bundle)
    (ratio,) = [one for one in evidence.readings if one.signal == "cgroup.cpu.throttled_ratio"]
    assert evidence.lineage(ratio.subject)[1].startswith("pod/")
    found = [one for one in evidence.readings if one.subject == ratio.subject]
    return {one.signal: one.value for one in found if isinstance(one.value, float)}


def test_a_container_that_is_throttled_is_named_with_its_limit(namespace: Namespace, kubeconfig: Path) -> None:
    bundle = bundle_of(kubeconfig, deployed(namespace, "busy=1"), window=WINDOW)
    found = values(bundle)
    assert found["container.cpu.limit"] == found["cgroup.cpu.quota"] == LIMIT
    assert found["cgroup.cpu.throttled_ratio"] > 0.5
    diagnosis = diagnosis_of(bundle)
    (cause,) = [one for one in diagnosis.causes if one.named]
    assert cause.id == "infra.cpu.quota"
    assert [one.split("/")[:2] for one in cause.subjects] == [["container", namespace.name]]


def test_a_container_below_its_limit_is_not_throttled(namespace: Namespace, kubeconfig: Path) -> None:
    diagnosis = diagnosis_of(bundle_of(kubeconfig, deployed(namespace), window=WINDOW))
    assert named(diagnosis) == []
    assert [one.status for one in diagnosis.checks if one.id == "cpu-quota-throttles"] == ["clear"]


def test_without_the_right_to_read_the_counters_throttling_is_unknown(namespace: Namespace, account: Path) -> None:
    bundle = bundle_of(account, deployed(namespace, "busy=1"), window=WINDOW)
    (gap,) = [one for one in bundle.gaps if one.code == GapCode.PERMISSION]
    assert "cgroup.cpu.throttled_ratio" in gap.signals
    assert ROLE in gap.next_step
    diagnosis = diagnosis_of(bundle)
    assert named(diagnosis) == []
    assert [one.status for one in diagnosis.checks if one.id == "cpu-quota-throttles"] == ["not-evaluated"]


def test_the_kubelet_of_the_laboratory_enforces_the_limit(namespace: Namespace, kubeconfig: Path) -> None:
    deployed(namespace, "busy=1")
    api = ClusterApi(Login(kubeconfig))
    (pod,) = api.get(namespace.path("pods"))["items"]
    path = f"/api/v1/nodes/{pod['spec']['nodeName']}/proxy/metrics/cadvisor"
    pages = [api.content(path).decode() for _ in range(2)]
    while _sample(pages[-1], "periods_total", pod) < _sample(pages[0], "periods_total", pod) + 10:
        pages.append(api.content(path).decode())
    api.close()
    used, at = (
        (_sample(page, "usage_seconds_total", pod) for page in (pages[0], pages[-1])),
        (_time(pages[0]), _time(pages[-1])),
    )
    first, last = used
    assert 0.5 * LIMIT < (last - first) / (at[1] - at[0]) < 1.5 * LIMIT


def _sample(page: str, family: str, pod: dict) -> float:  # type: ignore[type-arg]
    mark = f'pod="{pod["metadata"]["name"]}"'
    return next(float(line.split()[-2]) for line in page.splitlines() if mark in line and f"{family}{{" in line)


def _time(page: str) -> float:
    return max(float(line.split()[-1]) for line in page.splitlines() if not line.startswith("#")) / 1000


PAGE = b"""# TYPE container_cpu_cfs_periods_total counter
container_cpu_cfs_periods_total{container="server",id="/a",namespace="prod",pod="chat-0"} 10 1
container_cpu_cfs_periods_total{container="server",id="/b",namespace="prod",pod="chat-1"} 20 1
container_cpu_cfs_periods_total{container="server",id="/c",namespace="test",pod="chat-0"} 30 1
container_cpu_usage_seconds_total{container="server",cpu="total",id="/a",namespace="prod",pod="chat-0"} 40 1
"""


@pytest.mark.parametrize(
    ("pods", "kept"),
    [
        ({("prod", "chat-0")}, [b"10"]),
        ({("prod", "chat-0"), ("test", "chat-0")}, [b"10", b"30"]),
        ({("prod", "x")}, []),
    ],
)
def test_only_the_limits_of_the_workloads_own_pods_are_kept(pods: set[tuple[str, str]], kept: list[bytes]) -> None:
    assert [line.split()[-2] for line in own_lines(PAGE, frozenset(pods)).splitlines()] == kept
