"""Who else sets the fields of an object: GitOps, an operator or an autoscaler.

What they own is not changed here, because they put it back: the change belongs where they read it from. Helm puts a
value back only at the next upgrade, which is worth a caution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from latdoctor.remediation.actions.kubernetes.connection import Connection, Object
from latdoctor.remediation.actions.kubernetes.fields import escaped, raw_at
from latdoctor.remediation.change import Deadline
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_result import Reason


@dataclass(frozen=True, slots=True)
class GitOps:
    """A controller that keeps objects as a repository has them: the labels and annotations that name the source of an
    object, and the names under which it writes."""

    title: str
    source: str  # what it calls the source
    marks: tuple[str, ...]
    managers: frozenset[str]


_GITOPS = (
    GitOps(
        "Argo CD",
        "application",
        ("annotations/argocd.argoproj.io/tracking-id", "labels/argocd.argoproj.io/instance"),
        frozenset({"argocd-controller", "argocd-application-controller"}),
    ),
    GitOps(
        "Flux",
        "resource",
        ("labels/kustomize.toolkit.fluxcd.io/name", "labels/helm.toolkit.fluxcd.io/name"),
        frozenset({"kustomize-controller", "helm-controller"}),
    ),
)
_RELEASE = "annotations/meta.helm.sh/release-name"
# Operators whose field for it is known; of others the object is named.
_FIELDS = {
    "ScaledObject": "minReplicaCount and maxReplicaCount",
    "InferenceService": "minReplicas, maxReplicas and the container of its predictor",
    "LeaderWorkerSet": "replicas",
    "DynamoGraphDeployment": "replicas and the container of its service",
    "DynamoComponentDeployment": "replicas and the container",
    "Rollout": "replicas and template",
}


def owner_refusals(found: Object) -> Iterator[Refusal]:
    """Why a field of `found` is not changed here: GitOps or a controller owns it."""
    name = f"{found.get('kind', 'object')} {raw_at(found, '/metadata/name')}"
    for one in _GITOPS:
        if (source := _source(found, one)) is not None:
            of = f" ({one.source} {source})" if source else ""
            yield Refusal(
                Reason.OWNED,
                f"{one.title} manages {name}{of} and would put the value back",
                f"change it in the repository that {one.title} reads, or suspend its synchronisation first",
            )
    for owner in raw_at(found, "/metadata/ownerReferences") or ():
        if owner.get("controller"):
            kind = str(owner.get("kind"))
            field = _FIELDS.get(kind, "its specification")
            yield Refusal(
                Reason.OWNED,
                f"{kind} {owner.get('name')} owns {name} and would put the value back",
                f"change {field} there: kubectl -n {raw_at(found, '/metadata/namespace')} edit {kind.lower()} "
                f"{owner.get('name')}",
            )


def caution_of(found: Object) -> str:
    """What a change of `found` lacks: what refuses it when it is applied, or that Helm will put the value back."""
    if refusal := next(owner_refusals(found), None):
        return f"will be refused: {refusal.reason}"
    release = _mark(found, _RELEASE)
    return (
        f"the next upgrade of the Helm release {release} puts the value back: change its values too" if release else ""
    )


def _source(found: Object, gitops: GitOps) -> str | None:
    """What the controller calls the source of the object, empty if that is not known; None if it does not manage it."""
    for mark in gitops.marks:
        if text := _mark(found, mark):
            return text.partition(":")[0]
    managers = {one.get("manager") for one in raw_at(found, "/metadata/managedFields") or ()}
    return "" if managers & gitops.managers else None


def _mark(found: Object, mark: str) -> str:
    group, _, name = mark.partition("/")
    return str(raw_at(found, f"/metadata/{group}/{escaped(name)}") or "")


def autoscaler_of(connection: Connection, deadline: Deadline) -> tuple[str, Object] | None:
    """The path and the content of the HorizontalPodAutoscaler of the workload; None without one."""
    workload = connection.workload
    for version in _known_first(connection.versions("autoscaling", deadline)):
        path = f"/apis/autoscaling/{version}/namespaces/{workload.namespace}/horizontalpodautoscalers"
        for one in connection.items(path, deadline):
            scaled = raw_at(one, "/spec/scaleTargetRef") or {}
            if f"{str(scaled.get('kind')).lower()}s" == workload.kind and scaled.get("name") == workload.name:
                return f"{path}/{raw_at(one, '/metadata/name')}", {"kind": "HorizontalPodAutoscaler", **one}
        return None
    return None


def _known_first(versions: tuple[str, ...]) -> Iterator[str]:
    return (one for one in ("v2", "v2beta2", "v1") if one in versions)


def autoscaler_refusals(connection: Connection, deadline: Deadline) -> Iterator[Refusal]:
    """Why the number of replicas is not set: an autoscaler puts it back."""
    if found := autoscaler_of(connection, deadline):
        name = found[0].rpartition("/")[2]
        yield Refusal(
            Reason.OWNED,
            f"HorizontalPodAutoscaler {name} sets the replicas of {connection.workload} and would put the value back",
            "--playbook app.scale.hpa-raise-maximum or app.scale.hpa-raise-minimum",
        )
