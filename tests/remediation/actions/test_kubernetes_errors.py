"""What an answer of the API server means for a change: tried again, refused, or of unknown result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from latdoctor.cluster_api import NO_ANSWER, ApiError, ApiRequest
from latdoctor.errors import OperationError
from latdoctor.remediation.actions.kubernetes import connection
from latdoctor.remediation.actions.kubernetes.connection import Connection, ObjectGone
from latdoctor.remediation.change import Contended, Deadline, Refused, Unreachable
from latdoctor.remediation.target import ClusterWorkload

WORKLOAD = ClusterWorkload("https://10.0.0.1:6443", "prod", "deployments", "chat", "prod-eu")
PATH = "/apis/apps/v1/namespaces/prod/deployments/chat"


class Api:
    """An API server that answers every request with one error."""

    def __init__(self, error: ApiError, address: str = WORKLOAD.cluster) -> None:
        self.address = address
        self._error = error
        self.timeouts: list[float] = []

    def request(self, request: ApiRequest, seconds: float) -> dict[str, Any]:
        self.timeouts.append(seconds)
        raise self._error


def answered(monkeypatch: pytest.MonkeyPatch, api: Api) -> Connection:
    def client_of(login: object) -> Api:
        return api

    client_of.cache_clear = lambda: None  # type: ignore[attr-defined]  # as functools.cache has it
    monkeypatch.setattr(connection, "client_of", client_of)
    return Connection(WORKLOAD)


MEANS = [
    (NO_ANSWER, (), Unreachable, "refused"),
    (401, (), Refused, "does not accept the login"),
    (403, (), Refused, "not permitted"),
    (403, ("NamespaceTerminating",), Refused, "the namespace prod is being deleted"),
    (404, (), ObjectGone, "refused"),
    (408, (), Unreachable, "refused"),
    (409, (), Contended, "refused"),
    (422, (), Refused, "refused"),
    (429, (), Contended, "too many requests"),
    (429, ("DisruptionBudget",), Refused, "a PodDisruptionBudget"),
    (500, (), Unreachable, "refused"),
    (504, (), Unreachable, "refused"),
]


@pytest.mark.parametrize(("status", "causes", "error", "what"), MEANS)
def test_a_status_is_an_error_of_the_change(
    monkeypatch: pytest.MonkeyPatch, status: int, causes: tuple[str, ...], error: type[OperationError], what: str
) -> None:
    there = answered(monkeypatch, Api(ApiError(status, "refused", PATH, causes=causes)))
    with pytest.raises(error, match=what) as raised:
        there.get(PATH, Deadline.after(10))
    assert raised.value.where == PATH


def test_a_request_has_no_more_time_than_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(ApiError(NO_ANSWER, "time-out", PATH))
    now = 0.0
    deadline = Deadline(3.0, lambda: now)
    with pytest.raises(Unreachable):
        answered(monkeypatch, api).get(PATH, deadline)
    now = 3.0
    with pytest.raises(Unreachable, match="no time left"):
        answered(monkeypatch, api).get(PATH, deadline)
    assert api.timeouts == [3.0]


def test_a_context_that_leads_to_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    there = answered(monkeypatch, Api(ApiError(404, "", PATH), "https://10.9.9.9:6443"))
    with pytest.raises(Refused, match=r"'prod-eu' leads to https://10\.9\.9\.9:6443"):
        there.get(PATH, Deadline.after(10))


def test_a_kubeconfig_that_is_gone_is_refused(tmp_path: Path) -> None:
    gone = replace(WORKLOAD, kubeconfig=str(tmp_path / "none"))
    with pytest.raises(Refused, match="no login to a cluster"):
        Connection(gone).get(PATH, Deadline.after(10))
