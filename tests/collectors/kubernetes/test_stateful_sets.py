"""Revisions of a StatefulSet of a real control plane: the ordinals are replaced from the highest on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from latdoctor.case_from_bundle import seen
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of, named
from tests.collectors.kubernetes.workloads import READY, ready
from tests.lab.cluster.objects import Namespace, Object, waiting

SLACK = 10.0  # seconds that "since when" may be wrong


def create(namespace: Namespace) -> str:
    """The path of `chat` with two ready Pods."""
    path = f"/apis/apps/v1/namespaces/{namespace.name}/statefulsets"
    labels = {"app": "chat"}
    spec = {
        "replicas": 2,
        "serviceName": "chat",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [READY]},
        },
    }
    namespace.api.create(path, {"metadata": {"name": "chat"}, "spec": spec})
    namespace.wait("pods", lambda pods: len(ready(pods, "chat")) == 2)
    return f"{path}/chat"


def with_image(namespace: Namespace, path: str, image: str) -> None:
    containers = [{**READY, "image": image}]
    namespace.api.patch(path, {"spec": {"template": {"spec": {"containers": containers}}}})


def image_of(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def test_a_revision_that_does_not_start_is_named_with_its_time(namespace: Namespace, kubeconfig: Path) -> None:
    path = create(namespace)
    at = datetime.now(UTC).timestamp()
    with_image(namespace, path, "lab/workload:9")
    namespace.wait("pods", lambda pods: any(waiting(one) == "ImagePullBackOff" for one in pods.values()))
    bundle = bundle_of(kubeconfig, f"{namespace.name}/chat")
    diagnosis = diagnosis_of(bundle)
    assert named(diagnosis)[:1] == ["infra.kubernetes.bad-rollout"]
    assert diagnosis.since is not None
    assert abs(diagnosis.since.time - at) < SLACK
    assert [one.message for one in diagnosis.changes if one.kind == "change.deployment"] == ["revision of chat 1 → 2"]
    evidence, _ = seen(bundle)
    revisions = {
        one.subject.split("/")[-1].partition("@")[0]: one.value for one in evidence.readings_by_signal["pod.revision"]
    }
    assert revisions == {"chat-0": 1.0, "chat-1": 2.0}


def test_an_update_that_is_complete_shows_one_revision_and_no_cause(namespace: Namespace, kubeconfig: Path) -> None:
    path = create(namespace)
    with_image(namespace, path, "lab/workload:2")
    namespace.wait("pods", lambda pods: [image_of(one) for one in ready(pods, "chat")] == ["lab/workload:2"] * 2)
    bundle = bundle_of(kubeconfig, f"{namespace.name}/statefulset/chat")
    assert named(diagnosis_of(bundle)) == []
    evidence, _ = seen(bundle)
    assert {one.value for one in evidence.readings_by_signal["pod.revision"]} == {2.0}
    assert [one.value for one in evidence.readings_by_signal["rollout.old_pods"]] == [0.0]
