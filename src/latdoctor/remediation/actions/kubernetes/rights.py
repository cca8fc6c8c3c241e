"""The rights that an action needs, asked for before anything is changed (SelfSubjectAccessReview)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from latdoctor.cluster_api import ApiRequest
from latdoctor.remediation.actions.kubernetes.connection import Connection
from latdoctor.remediation.change import Deadline
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_result import Reason

WORKLOAD = "workloads"  # stands for the kind of the workload: deployments or statefulsets
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
MANIFEST = "deploy/kubernetes/rbac-act.yaml"


class Right(Struct, frozen=True):
    """A verb on a resource of an API group, in the namespace of the workload unless `cluster`."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    cluster: bool = False

    def __str__(self) -> str:
        parts = (self.resource, self.subresource)
        return f"{self.verb} {'/'.join(filter(None, parts))}{f'.{self.group}' if self.group else ''}"


def missing_rights(connection: Connection, rights: Iterable[Right], deadline: Deadline) -> Iterator[Refusal]:
    """One refusal with all of `rights` that the login does not have."""
    workload = connection.workload
    asked = [replace(one, resource=workload.kind) if one.resource == WORKLOAD else one for one in rights]
    missing = [str(one) for one in dict.fromkeys(asked) if not _granted(connection, one, deadline)]
    if missing:
        yield Refusal(
            Reason.NO_RIGHTS,
            f"the login may not {', '.join(missing)} in {workload.namespace}",
            f"bind the role in {MANIFEST} to it, or use another --kube-context",
        )


def _granted(connection: Connection, right: Right, deadline: Deadline) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": "" if right.cluster else connection.workload.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = connection.send(ApiRequest("post", _REVIEWS, body), deadline)
    return bool(answer.get("status", {}).get("allowed"))
