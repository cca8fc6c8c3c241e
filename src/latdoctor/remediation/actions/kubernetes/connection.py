"""The API server of a target: requests under a deadline, with the errors of a change in place of HTTP statuses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import UNSET

from latdoctor.cluster_api import NO_ANSWER, ApiError, ApiRequest, ClusterApi, Login
from latdoctor.errors import OperationError, UsageError
from latdoctor.remediation.change import Contended, Deadline, ProcessEnded, Refused, Unreachable
from latdoctor.remediation.target import ClusterWorkload, Target, canonical_url

UNAUTHORIZED = 401
TIMED_OUT = 408
UNPROCESSABLE = 422
TOO_MANY = 429
SERVER_ERROR = 500
BUDGET = "DisruptionBudget"
TERMINATING = "NamespaceTerminating"
_SHORTEST = 0.05  # seconds: a time-out of 0 would be none
Object = dict[str, Any]


class ObjectGone(ProcessEnded):
    """The object no longer exists."""


class RequestRejected(Refused):
    """The API server understood the request and rejected it: an invalid object, or a failed `test` of a JSON Patch."""


class BudgetExhausted(Refused):
    """A PodDisruptionBudget allows no eviction now."""


def workload_of(target: Target) -> ClusterWorkload:
    """Raises UsageError for a target that is no workload of a cluster."""
    if target.workload is UNSET:
        raise UsageError("the target is no workload of a cluster", where=target.name, next_step="--kube NAMESPACE/NAME")
    return target.workload


@cache
def client_of(login: Login) -> ClusterApi:
    """One client for each login: a new one loads the kubeconfig and connects. Raises OperationError."""
    return ClusterApi(login)


@dataclass(frozen=True, slots=True)
class Connection:
    """Requests to the API server of a workload."""

    workload: ClusterWorkload

    def get(self, path: str, deadline: Deadline, **query: str) -> Object:
        return self.send(ApiRequest("get", path, query=query), deadline)

    def find(self, path: str, deadline: Deadline) -> Object | None:
        """The object at `path`; None without one, or where the cluster does not know its kind."""
        try:
            return self.get(path, deadline)
        except ObjectGone:
            return None

    def items(self, path: str, deadline: Deadline, **query: str) -> list[Object]:
        """The objects of a list; none where the cluster does not know their kind."""
        try:
            return list(self.get(path, deadline, **query).get("items") or ())
        except ObjectGone:
            return []

    def versions(self, group: str, deadline: Deadline) -> tuple[str, ...]:
        """The versions of an API group that the server has: `autoscaling` has v2 since Kubernetes 1.23."""
        found = self.find(f"/apis/{group}", deadline) or {}
        return tuple(str(one["version"]) for one in found.get("versions", ()))

    def send(self, request: ApiRequest, deadline: Deadline) -> Object:
        """Raises Refused, Contended where it may be sent again, and Unreachable where its result is not known."""
        if deadline.left <= 0:
            raise Unreachable("no time left", where=request.path)
        client = self._client()
        try:
            return client.request(request, max(_SHORTEST, deadline.left))
        except ApiError as error:
            if error.status == UNAUTHORIZED:
                client_of.cache_clear()  # the kubeconfig may have a new token
            raise _error(error, request, self.workload) from error

    def _client(self) -> ClusterApi:
        """Raises Refused where the login is missing, or leads to another cluster than the one that was planned on."""
        workload = self.workload
        try:
            client = client_of(login_of(workload))
        except OperationError as error:
            raise Refused(error.what, where=str(workload), next_step=error.next_step) from error
        if canonical_url(client.address) != canonical_url(workload.cluster):
            raise Refused(
                f"the context {workload.context!r} leads to {client.address}, not to {workload.cluster}",
                where=str(workload),
                next_step="kubectl config get-contexts",
            )
        return client


def login_of(workload: ClusterWorkload) -> Login:
    return Login(Path(workload.kubeconfig) if workload.kubeconfig else None, workload.context)


def _error(error: ApiError, request: ApiRequest, workload: ClusterWorkload) -> OperationError:
    """The error of a change for an error of the API."""
    where, what = request.path, error.what
    match error.status:
        case 401:
            step = "log in again; a token in the kubeconfig may have expired"
            return Refused(f"the cluster does not accept the login: {what}", where=where, next_step=step)
        case 403 if TERMINATING in error.causes:
            return Refused(f"the namespace {workload.namespace} is being deleted", where=where)
        case 403:
            step = "deploy/kubernetes/rbac-act.yaml has what the actions need"
            return Refused(f"not permitted: {what}", where=where, next_step=step)
        case 404:
            return ObjectGone(what, where=where)
        case 409:
            return Contended(what, where=where)
        case 429 if BUDGET in error.causes:
            return BudgetExhausted(f"a PodDisruptionBudget does not allow it now: {what}", where=where)
        case 429:
            return Contended(f"the API server has too many requests: {what}", where=where)
        case status if status in (NO_ANSWER, TIMED_OUT) or status >= SERVER_ERROR:
            return Unreachable(what, where=where)
        case _:
            return RequestRejected(what, where=where)
