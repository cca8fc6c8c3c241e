"""Custom resources of a real control plane, written by the dynamic client: their conditions, and their Pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from latdoctor.case_from_bundle import seen
from latdoctor.cluster_api import CONFLICT, ApiError, ClusterApi
from latdoctor.evidence.model import Evidence
from tests.collectors.kubernetes.observing import bundle_of
from tests.collectors.kubernetes.workloads import READY, ready
from tests.lab.cluster.objects import Namespace, Object, condition

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SINCE = datetime(2026, 11, 25, 14, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Custom:
    """A kind with its group, version and plural; a condition that is a fault where it is false; a label of its Pods.

    `harmless`: a condition that may be false.
    """

    kind: str
    group: str
    version: str
    plural: str
    fault: str
    harmless: str
    label: str = ""


CUSTOMS = (
    Custom(
        "InferenceService", "serving.kserve.io", "v1beta1", "inferenceservices", "PredictorReady", "RoutesReady",
        "serving.kserve.io/inferenceservice",
    ),
    Custom(
        "DynamoGraphDeployment", "nvidia.com", "v1alpha1", "dynamographdeployments", "Ready", "Scaling",
        "nvidia.com/dynamo-graph-deployment-name",
    ),
    Custom(
        "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "Available", "Progressing",
        "leaderworkerset.sigs.k8s.io/name",
    ),
    Custom("Rollout", "argoproj.io", "v1alpha1", "rollouts", "Healthy", "Paused"),
    Custom("ScaledObject", "keda.sh", "v1alpha1", "scaledobjects", "Ready", "Active"),
)  # fmt: skip


@pytest.fixture(scope="module", params=CUSTOMS, ids=lambda one: one.kind)
def custom(request: pytest.FixtureRequest, api: ClusterApi) -> Custom:
    """A kind that the cluster has."""
    one: Custom = request.param
    version = {
        "name": one.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": one.plural, "singular": one.kind.lower(), "kind": one.kind, "listKind": f"{one.kind}List"}
    spec = {"group": one.group, "scope": "Namespaced", "names": names, "versions": [version]}
    name = f"{one.plural}.{one.group}"
    try:
        api.create(DEFINITIONS, {"metadata": {"name": name}, "spec": spec})
    except ApiError as error:
        if error.status != CONFLICT:  # another test has defined it
            raise
    Namespace(api).wait("", lambda all_: condition(all_[name], "Established") == "True", DEFINITIONS)
    return one


@pytest.fixture
def dynamic(kubeconfig: Path) -> Iterator[Any]:
    """The dynamic client, as of an operator."""
    from kubernetes import config
    from kubernetes.dynamic import DynamicClient

    client = config.new_client_from_config(str(kubeconfig))
    yield DynamicClient(client)
    client.close()


def written(dynamic: Any, custom: Custom, namespace: Namespace, conditions: list[Object]) -> None:
    resource = dynamic.resources.get(api_version=f"{custom.group}/{custom.version}", kind=custom.kind)
    body = {
        "apiVersion": f"{custom.group}/{custom.version}",
        "kind": custom.kind,
        "metadata": {"name": "chat"},
        "spec": {
            "selector": {"matchLabels": {"app": "chat"}},
            "scaleTargetRef": {"kind": "Deployment", "name": "chat"},
        },
        "status": {"conditions": conditions},
    }
    resource.create(body=body, namespace=namespace.name)
    path = f"/apis/{custom.group}/{custom.version}/namespaces/{namespace.name}/{custom.plural}/chat"
    try:
        namespace.api.patch(f"{path}/status", {"status": body["status"]}, "application/merge-patch+json")
    except ApiError as error:
        if error.status != 404:  # the definition has no such subresource: the status was created
            raise


def a_condition(type_: str, status: str, reason: str) -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": f"because of {reason}",
        "lastTransitionTime": SINCE.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def with_pods(namespace: Namespace, custom: Custom) -> None:
    labels = {"app": "chat", **({custom.label: "chat"} if custom.label else {})}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [READY]},
        },
    }
    namespace.api.create(namespace.path("deployments"), {"metadata": {"name": "chat", "labels": labels}, "spec": spec})
    namespace.wait("pods", lambda pods: ready(pods, "chat"))


def observed(kubeconfig: Path, namespace: Namespace, custom: Custom) -> Evidence:
    """A ScaledObject scales a workload and is none."""
    name = "deployment" if custom.kind == "ScaledObject" else custom.kind.lower()
    evidence, _ = seen(bundle_of(kubeconfig, f"{namespace.name}/{name}/chat"))
    return evidence


def warnings(evidence: Evidence) -> list[tuple[str, object, float | None]]:
    found = (one for one in evidence.events_by_signal.get("kube.warning", ()) if "condition" in one.fields)
    return [(one.subject.partition("@")[0], one.fields["condition"], one.time) for one in found]


def test_a_condition_that_is_false_is_a_warning_with_its_time(
    namespace: Namespace, kubeconfig: Path, custom: Custom, dynamic: Any
) -> None:
    with_pods(namespace, custom)
    bad = a_condition(custom.fault, "False", "ReplicaTooSlow")
    written(dynamic, custom, namespace, [bad, a_condition(custom.harmless, "False", "Waiting")])
    found = warnings(observed(kubeconfig, namespace, custom))
    assert found == [(f"{custom.kind.lower()}/{namespace.name}/chat", custom.fault, SINCE.timestamp())]


def test_a_healthy_one_shows_no_warning_and_its_pods_are_read(
    namespace: Namespace, kubeconfig: Path, custom: Custom, dynamic: Any
) -> None:
    with_pods(namespace, custom)
    written(dynamic, custom, namespace, [a_condition(custom.fault, "True", "AllReady")])
    evidence = observed(kubeconfig, namespace, custom)
    assert warnings(evidence) == []
    assert [one.value for one in evidence.readings_by_signal["pod.ready"]] == [1.0]
