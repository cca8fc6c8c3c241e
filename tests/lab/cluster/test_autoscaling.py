"""The autoscaler and the rollouts of the real control plane, on a service under load, with many small Pods.

In CI with a few Pods; LATDOCTOR_REPLICAS=20:85 has the sizes of a large service (some minutes).
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.cluster_api import ClusterApi, Listed
from latdoctor.lab.cluster.deployed_service import DeployedService, is_rolled_out, wait_for
from latdoctor.lab.cluster.external_metrics import IN_FLIGHT
from latdoctor.lab.cluster.manifests import CONTAINER, ServiceSpec, autoscaler
from latdoctor.load.arrivals import Constant
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import start_load
from tests.lab.cluster.objects import WORKLOAD, Object, condition

LEAST, MOST = map(int, os.environ.get("LATDOCTOR_REPLICAS", "4:12").split(":"))
SECONDS = MOST / 48  # that a Pod takes for a request, so that 48 requests per second are one for each Pod
WITHIN = 60.0 + 4 * MOST
BEHAVIOR = {"scaleUp": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 5}]}}


class ReadyCounts:
    """Follows the Pods of a namespace, and remembers the fewest that were ready at a time."""

    def __init__(self, api: ClusterApi, path: str) -> None:
        self._api, self._path = api, path
        self._stop = threading.Event()
        self.history: list[int] = []
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        pods: dict[str, Object] = {}
        for update in self._api.follow(self._path, self._stop):
            if isinstance(update, Listed):
                pods = {one["metadata"]["name"]: one for one in update.objects}
            elif update.kind == "DELETED":
                pods.pop(update.object["metadata"]["name"], None)
            else:
                pods[update.object["metadata"]["name"]] = update.object
            alive = [one for one in pods.values() if "deletionTimestamp" not in one["metadata"]]
            self.history.append(sum(condition(one, "Ready") == "True" for one in alive))

    def stop(self) -> None:
        self._stop.set()


@pytest.fixture
def service(api: ClusterApi, kubeconfig: Path) -> Iterator[DeployedService]:
    spec = ServiceSpec(
        f"test-{uuid.uuid4().hex[:8]}",
        replicas=LEAST,
        image="lab/workload:1",
        command=(sys.executable, "-S", str(WORKLOAD), f"seconds={SECONDS}"),
        drain_seconds=5 + 10 * SECONDS,  # far more than the router takes to notice, on a busy machine too
        grace_seconds=60,
    )
    with DeployedService(api, kubeconfig, spec) as one:
        yield one


def test_the_autoscaler_follows_the_load_and_a_rollout_replaces_at_most_a_third_at_a_time(
    api: ClusterApi, service: DeployedService
) -> None:
    name, deployments = service.spec.name, service.path("deployments")
    plan = LoadPlan((LoadPhase("load", 600, Constant(MOST / SECONDS)),), timeout_s=60)
    with start_load(plan, service.router) as load:
        load.wait_started()
        scaler = autoscaler(service.spec, IN_FLIGHT, "1", LEAST, MOST, BEHAVIOR)
        api.create(service.path("horizontalpodautoscalers"), scaler)
        wait_for(api, deployments, lambda all_: rolled_out(all_[name], MOST), WITHIN)
        counts = ReadyCounts(api, service.path("pods"))
        change = {"env": [{"name": "VERSION", "value": "2"}], "name": CONTAINER}
        changed = api.patch(f"{deployments}/{name}", {"spec": {"template": {"spec": {"containers": [change]}}}})
        assert changed["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "33%", "maxUnavailable": "33%"}
        generation = changed["metadata"]["generation"]
        wait_for(
            api,
            deployments,
            lambda all_: all_[name]["status"]["observedGeneration"] >= generation and rolled_out(all_[name], MOST),
            WITHIN,
        )
        counts.stop()
        load.stop()
        answered = load.wait().total.counts
    assert MOST - MOST // 3 <= min(counts.history) < MOST
    assert (answered.failed, answered.refused, answered.timed_out) == (0, 0, 0)


def rolled_out(deployment: Object, replicas: int) -> bool:
    return bool(deployment["spec"]["replicas"] == replicas) and is_rolled_out(deployment)
