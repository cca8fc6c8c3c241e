"""Workloads of a real control plane: what is wrong is named, healthy ones have no cause, misspelled names say so."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from latdoctor.case_from_bundle import seen
from latdoctor.collectors.documents.reader import parse as parse_documents
from latdoctor.collectors.kubernetes.live_evidence import parse
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Evidence
from latdoctor.evidence.redaction.bundle import redacted
from latdoctor.evidence.redaction.redactor import Redactor
from latdoctor.gap_code import GapCode
from latdoctor.report.answer import text
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of, named
from tests.collectors.kubernetes.workloads import BROKEN, READY, wait_until_broken, wait_until_ready
from tests.lab.cluster.objects import Namespace


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_a_workload_is_the_first_cause(prod: Namespace, kubeconfig: Path, name: str) -> None:
    wait_until_broken(prod, name)
    bundle = bundle_of(kubeconfig, f"{prod.name}/{name}")
    assert {gap.code for gap in bundle.gaps} <= {GapCode.ABSENT}  # a Pod that is ready for a moment has no metrics page
    assert named(diagnosis_of(bundle))[:1] == [BROKEN[name].cause]


def test_the_fix_of_a_workload_names_it(prod: Namespace, kubeconfig: Path) -> None:
    wait_until_broken(prod, "memory-limit")
    said = " ".join(text(diagnosis_of(bundle_of(kubeconfig, f"{prod.name}/memory-limit"))).split())
    command = f"Fix latdoctor remediate --playbook infra.container.memory-raise \\ --kube {prod.name}/memory-limit"
    assert command in said


def test_a_healthy_workload_beside_broken_ones_has_no_cause(prod: Namespace, kubeconfig: Path) -> None:
    wait_until_ready(prod, "healthy", 2)
    bundle = bundle_of(kubeconfig, f"{prod.name}/healthy")
    diagnosis = diagnosis_of(bundle)
    assert named(diagnosis) == []
    assert [gap.code for gap in bundle.gaps] == [GapCode.ABSENT]  # its Pods have no metrics page
    status = {check.id: check.status for check in diagnosis.checks}
    expected = ("probe-restarts-container", "replicas-not-placed", "node-not-ready", "image-not-pulled")
    assert {name: status[name] for name in expected} == dict.fromkeys(expected, "clear")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        # Between them are the kinds of custom resources that the cluster has just now.
        ("{prod}/helthy", "has no deployment or statefulset or .*pod helthy"),
        ("{prod}/statefulset/healthy", "has no statefulset healthy"),
        ("no-such-namespace/healthy", "has no namespace no-such-namespace"),
    ],
)
def test_a_name_that_fits_nothing_is_reported(prod: Namespace, kubeconfig: Path, name: str, reason: str) -> None:
    bundle = bundle_of(kubeconfig, name.format(prod=prod.name))
    (gap,) = bundle.gaps
    assert (gap.code, bundle.artifacts) == (GapCode.NOT_MATCHED, ())
    assert re.search(reason, gap.reason)
    assert name.startswith("no-such") or "healthy" in gap.next_step


def test_a_context_that_the_kubeconfig_lacks_is_reported(prod: Namespace, kubeconfig: Path) -> None:
    (gap,) = bundle_of(kubeconfig, f"{prod.name}/healthy", context="prod-eu").gaps
    assert gap.code == GapCode.NOT_MATCHED
    assert "no context 'prod-eu'" in gap.reason


def test_a_namespace_that_is_being_deleted_is_reported(namespace: Namespace, kubeconfig: Path) -> None:
    path = f"/api/v1/namespaces/{namespace.name}"
    namespace.api.patch(path, {"metadata": {"finalizers": ["test/kept"]}})
    namespace.pod("one", {"containers": [READY]})
    namespace.api.delete(path)
    (gap, *_) = bundle_of(kubeconfig, namespace.name).gaps
    namespace.api.patch(path, {"metadata": {"finalizers": None}})
    assert gap.code == GapCode.TERMINATING


def test_a_pod_is_read_with_its_owners(prod: Namespace, kubeconfig: Path) -> None:
    wait_until_broken(prod, "image-pull")
    pods = prod.wait("pods", lambda pods: pods)
    pod = next(name for name in pods if name.startswith("image-pull-"))
    evidence, _ = seen(bundle_of(kubeconfig, f"{prod.name}/{pod}"))
    kinds = {one.id.partition("/")[0] for one in evidence.subjects}
    assert {"pod", "node", "replicaset", "deployment"} <= kinds
    assert [one.id for one in evidence.subjects if one.id.startswith("pod/")] == [f"pod/{prod.name}/{pod}@lab"]


def test_a_pasted_list_of_objects_gives_the_same_evidence(prod: Namespace, kubeconfig: Path) -> None:
    wait_until_broken(prod, "memory-limit")
    bundle = bundle_of(kubeconfig, f"{prod.name}/memory-limit")
    live = parse(bundle.artifacts)
    lists = [json.loads(one.read()) for one in bundle.artifacts if not one.source.endswith("scope")]
    text = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [item for one in lists for item in one["items"]]}
    ).encode()
    pasted = parse_documents([replace(bundle.artifacts[0], collector="documents", content=text)])
    assert _values(pasted) == _values(live)
    assert _events(pasted) >= _events(live)


def _values(evidence: Evidence) -> set[tuple[object, ...]]:
    """The place of a subject is its cluster, or the file where that is not known."""
    return {(one.signal, one.subject.partition("@")[0], one.value, one.labels) for one in evidence.readings}


def _events(evidence: Evidence) -> set[tuple[object, ...]]:
    return {(one.signal, one.subject.partition("@")[0], one.time, one.text) for one in evidence.events}


def test_a_saved_bundle_has_no_secret_and_gives_the_same_diagnosis(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path
) -> None:
    word = "".join(["hunter", "2", "-", "x9Qz"])
    secret = [{"name": "DB_PASSWORD", "value": word}]
    namespace.deployment("chat", 1, {**BROKEN["image-pull"].container, "env": secret})
    namespace.wait("pods", lambda pods: any(BROKEN["image-pull"].shows(one) for one in pods.values()))
    bundle = bundle_of(kubeconfig, f"{namespace.name}/chat")
    raw = b"".join(one.read() for one in bundle.artifacts)
    assert word.encode() in raw
    assert b"last-applied-configuration" not in raw
    redactor = Redactor()
    save(redacted(bundle, redactor), tmp_path / "kept", "1", redactor)
    saved = b"".join(path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert word.encode() not in saved
    with opened(tmp_path / "kept") as kept:
        assert _diagnosed(kept) == _diagnosed(bundle)


def _diagnosed(bundle: Bundle) -> object:
    diagnosis = diagnosis_of(bundle)
    return [(one.id, one.probability, one.subjects) for one in diagnosis.causes], [
        structs.replace(one, evidence=()) if hasattr(one, "evidence") else one for one in diagnosis.vitals
    ]


def test_lists_are_saved_as_kubectl_prints_them(prod: Namespace, kubeconfig: Path) -> None:
    bundle = bundle_of(kubeconfig, f"{prod.name}/healthy")
    lists = {one.source.rpartition("/")[2]: json.loads(one.read()) for one in bundle.artifacts}
    kinds = {part: {item["kind"] for item in one["items"]} for part, one in lists.items() if part != "scope"}
    assert kinds["pods"] == {"Pod"}
    assert kinds["deployments"] == {"Deployment"}
    assert {item["metadata"]["name"] for item in lists["deployments"]["items"]} == {"healthy"}
