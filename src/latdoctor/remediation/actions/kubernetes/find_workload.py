"""The workload that `--kube NAMESPACE/NAME` names, found in the cluster of a login."""

from __future__ import annotations

import os

from latdoctor.cluster_api import Login
from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes.connection import Connection, client_of
from latdoctor.remediation.actions.kubernetes.workload import workload_path
from latdoctor.remediation.change import Deadline
from latdoctor.remediation.target import ClusterWorkload, Target, TargetKind
from latdoctor.sanitize import clean

_WITHIN = 10.0  # seconds
KINDS = ("deployments", "statefulsets")
_SPELLINGS = {one: kind for kind in KINDS for one in (kind, kind.removesuffix("s"))} | {
    "deploy": "deployments",
    "sts": "statefulsets",
}


def kubernetes_target(name: str, login: Login, title: str = "") -> Target:
    """The target for a workload named `NAMESPACE/NAME` or `NAMESPACE/KIND/NAME`.

    Raises UsageError where there is none of that name or several, OperationError where the cluster cannot be read.
    """
    namespace, kind, workload = _parts(name)
    kubeconfig = str(login.kubeconfig.resolve()) if login.kubeconfig else os.environ.get("KUBECONFIG", "")
    client = client_of(login)
    kinds = (kind,) if kind else KINDS
    deadline = Deadline.after(_WITHIN)
    found = []
    for one in kinds:
        candidate = ClusterWorkload(client.address, namespace, one, workload, client.context, kubeconfig)
        if Connection(candidate).find(workload_path(candidate), deadline):
            found.append(candidate)
    if len(found) > 1:
        raise UsageError(
            f"{clean(name, 200)} is a Deployment and a StatefulSet",
            where="--kube",
            next_step=f"--kube {namespace}/deployment/{workload} or --kube {namespace}/statefulset/{workload}",
        )
    if not found:
        raise UsageError(
            f"the cluster {client.address} has no {' or '.join(kinds)} {workload} in {namespace}",
            where="--kube",
            next_step=f"kubectl -n {namespace} get {','.join(KINDS)}; another cluster: --kube-context NAME",
        )
    return Target(title or str(found[0]), TargetKind.KUBERNETES, workload=found[0])


def _parts(name: str) -> tuple[str, str, str]:
    """The namespace, the kind (empty: any) and the name. Raises UsageError for another form."""
    parts = name.split("/")
    if len(parts) not in (2, 3) or not all(_is_name(one) for one in (parts[0], parts[-1])):
        raise UsageError(f"must be NAMESPACE/NAME (got {clean(name, 200)!r})", where="--kube")
    if len(parts) == 2:
        return parts[0], "", parts[1]
    kind = _SPELLINGS.get(parts[1].lower())
    if kind is None:
        raise UsageError(
            f"no action changes a {clean(parts[1], 40)}; of {', '.join(KINDS)} it may be",
            where="--kube",
            next_step=f"name the workload that owns it: {parts[0]}/NAME",
        )
    return parts[0], kind, parts[2]


def _is_name(text: str) -> bool:
    """Whether it may be the name of an object, so that it is one part of a path."""
    return bool(text) and len(text) < 254 and all(one.isalnum() or one in "-." for one in text) and ".." not in text
