"""What keeps an object as it defines it: GitOps, an operator, Helm. A change that is made elsewhere is undone by it."""

from __future__ import annotations

from latdoctor.collectors.documents.kubernetes.schema import Meta

# The labels and annotations with which each marks its objects; the value names the application or release.
_MARKS = (
    ("Argo CD", "argocd.argoproj.io/tracking-id"),
    ("Argo CD", "argocd.argoproj.io/instance"),
    ("Flux", "kustomize.toolkit.fluxcd.io/name"),
    ("Flux", "helm.toolkit.fluxcd.io/name"),
    ("Helm", "meta.helm.sh/release-name"),
)
_OF_ITSELF = frozenset({"ReplicaSet", "Deployment", "StatefulSet"})  # the workload is the owner's own part


def manager_of(metadata: Meta) -> str | None:
    """`DynamoGraphDeployment chat`, `Argo CD (chat)`, `Helm (chat)`; None where nothing shows one."""
    owner = next((one for one in metadata.owner_references or () if one.controller), None)
    if owner is not None and owner.kind not in _OF_ITSELF:
        return f"{owner.kind} {owner.name}"
    marks = {**(metadata.labels or {}), **(metadata.annotations or {})}
    found = next(((title, marks[key]) for title, key in _MARKS if marks.get(key)), None)
    return f"{found[0]} ({found[1].partition(':')[0]})" if found else None
