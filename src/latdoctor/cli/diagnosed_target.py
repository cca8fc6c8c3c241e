"""Whether a target to change is what a diagnosis was made of: one of its servers, or its workload on Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.cli.config_file import TargetSettings
from latdoctor.collectors.kubernetes.collector import cluster_name
from latdoctor.remediation.planner import DiagnosisRef
from latdoctor.remediation.run_result import Outcome, Result
from latdoctor.remediation.target import Access, ClusterWorkload


def undiagnosed(
    because: DiagnosisRef, chosen: Sequence[Access], settings: TargetSettings, *, named: bool
) -> Result | None:
    """The refusal of a target that is not part of the diagnosis; None where all are.

    `named`: the admin interfaces were named by the user. A server that was named so, or is configured for the target of
    the diagnosis, is meant; a workload of a cluster is always named, so it must be the one that was diagnosed.
    """
    for one in chosen:
        if one.target.workload and (refusal := _other_workload(because, one.target.workload)):
            return refusal
    if named or (settings.admin and because.target == settings.name):
        return None
    servers = (one.target for one in chosen if one.target.admin)
    other = next((target for target in servers if not because.covers(target.admin)), None)
    if other is None:
        return None
    return Result(
        "",
        Outcome.REFUSED,
        f"the diagnosis is of {because.target}, and {other.admin} is not one of its servers",
        "diagnose that server, or name it explicitly: --admin URL",
        target=other.name,
    )


def _other_workload(because: DiagnosisRef, workload: ClusterWorkload) -> Result | None:
    """A workload that the diagnosis has not seen, or one of the same name in another cluster, is refused."""
    found = f"{workload}@{cluster_name(workload.context)}"
    if found in because.workloads:
        return None
    seen = ", ".join(because.workloads) or f"{because.target}, without objects of a cluster"
    return Result(
        "",
        Outcome.REFUSED,
        f"the diagnosis is of {seen}, and {found} is not part of it",
        f"diagnose it: latdoctor diagnose --kube {workload.namespace}/{workload.name}, "
        "or choose the playbook yourself: --playbook ID",
        target=str(workload),
    )
