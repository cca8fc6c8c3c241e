"""What a refused or failed request means: a gap with its code, what it hides, and the next step."""

from __future__ import annotations

from latdoctor.cluster_api import (
    FORBIDDEN,
    GONE,
    NO_ANSWER,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    ApiError,
    NoAnswer,
)
from latdoctor.collectors.kubernetes import NAME
from latdoctor.collectors.kubernetes.api_reads import Read
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

ROLE = "latdoctor-read-only"  # the ClusterRole in deploy/kubernetes/read-only.yaml
_BIND = f"let an administrator bind the ClusterRole {ROLE} (deploy/kubernetes/read-only.yaml of the source repository)"
_STATUSES = {
    UNAUTHORIZED: (GapCode.UNAUTHENTICATED, "the API server does not accept the login", "log in to the cluster again"),
    GONE: (GapCode.EXPIRED, "the list changed while it was read", "try again"),
    TOO_MANY_REQUESTS: (GapCode.OVERLOADED, "the API server is overloaded", "try again in a minute"),
    NOT_FOUND: (GapCode.ABSENT, "the API server does not have it", ""),
}
_SILENT = {
    NoAnswer.UNREACHABLE: (GapCode.UNREACHABLE, "check the server of the context: kubectl cluster-info"),
    NoAnswer.TIMEOUT: (GapCode.TIMEOUT, "check the way to the API server: kubectl cluster-info"),
    NoAnswer.CERTIFICATE: (GapCode.CERTIFICATE, "check certificate-authority of the context in the kubeconfig"),
    NoAnswer.TOO_LARGE: (GapCode.TOO_LARGE, "name one workload: --kube NAMESPACE/NAME"),
    NoAnswer.MALFORMED: (GapCode.UNREADABLE, "check that the context's server is an API server of Kubernetes"),
}


def gap_of(error: ApiError, read: Read, signals: tuple[str, ...] | None = None) -> Gap:
    """`signals`: those that are unknown now; by default those of the resource."""
    hidden = read.resource.hides if signals is None else signals
    where = f" in namespace {read.namespace}" if read.namespace else ""
    what = f"{read.resource.plural}{where}"
    if error.status == FORBIDDEN:
        resource = f"{read.resource.plural}.{read.resource.group}" if read.resource.group else read.resource.plural
        reason = f"{what}: this login may not {read.verb} {resource}"
        return Gap(NAME, reason, hidden, next_step=_BIND, code=GapCode.PERMISSION)
    if error.status == NO_ANSWER:
        code, step = _SILENT[error.no_answer]
        return Gap(NAME, f"{what}: {clean(error.what, 200)}", hidden, next_step=step, code=code)
    code, why, step = _STATUSES.get(error.status, (GapCode.REFUSED, "", ""))
    reason = f"{what}: {why or f'status {error.status}: {clean(error.what, 200)}'}"
    return Gap(NAME, reason, hidden, next_step=step, code=code)


def is_fatal(error: ApiError) -> bool:
    """Whether every other request would fail alike."""
    return error.status in (UNAUTHORIZED, NO_ANSWER) and error.no_answer != NoAnswer.TOO_LARGE
