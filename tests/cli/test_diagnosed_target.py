"""A diagnosis is for the workload that it was made of: another one, or one of another cluster, is refused."""

from __future__ import annotations

import pytest

from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.diagnosed_target import undiagnosed
from latdoctor.http.client import Secret
from latdoctor.remediation.planner import DiagnosisRef
from latdoctor.remediation.target import Access, ClusterWorkload, Target, TargetKind

CHAT = "prod/deployment/chat@west"


def workload(name: str = "chat", context: str = "west", kind: str = "deployments") -> Access:
    found = ClusterWorkload("https://10.0.0.1:6443", "prod", kind, name, context)
    return Access(Target(str(found), TargetKind.KUBERNETES, workload=found), Secret())


def diagnosis(*workloads: str) -> DiagnosisRef:
    return DiagnosisRef("run", "infra.kubernetes.node-lost", 0.9, 0.0, "router:8000", workloads=workloads)


def reason(because: DiagnosisRef, access: Access) -> str:
    refusal = undiagnosed(because, [access], TargetSettings(), named=False)
    return refusal.reason if refusal else ""


def test_the_diagnosed_workload_is_accepted() -> None:
    assert reason(diagnosis("prod/deployment/other@west", CHAT), workload()) == ""


def test_a_context_is_compared_as_subjects_carry_it() -> None:
    assert reason(diagnosis("prod/deployment/chat@ann-west"), workload(context="ann@west")) == ""


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (workload("other"), "prod/deployment/other@west"),
        (workload(kind="statefulsets"), "prod/statefulset/chat@west"),
        (workload(context="east"), "prod/deployment/chat@east"),
    ],
    ids=["name", "kind", "cluster"],
)
def test_another_workload_is_refused(other: Access, found: str) -> None:
    assert reason(diagnosis(CHAT), other) == f"the diagnosis is of {CHAT}, and {found} is not part of it"


def test_a_diagnosis_of_pages_alone_is_of_no_workload() -> None:
    assert reason(diagnosis(), workload()).startswith("the diagnosis is of router:8000, without objects of a cluster")


def test_naming_an_admin_interface_names_no_workload() -> None:
    assert undiagnosed(diagnosis(CHAT), [workload("other")], TargetSettings(), named=True) is not None
