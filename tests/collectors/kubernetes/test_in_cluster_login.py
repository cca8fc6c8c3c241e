"""The login of a Pod: the address in its environment, the token and the certificate in its service account's files."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from latdoctor.cluster_api import UNAUTHORIZED, ApiError, ClusterApi, Login
from latdoctor.errors import OperationError
from latdoctor.gap_code import GapCode
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of, named
from tests.collectors.kubernetes.test_read_only_role import account
from tests.collectors.kubernetes.workloads import BROKEN
from tests.lab.cluster.objects import Namespace
from tests.waiting import comes_about

__all__ = ["account"]
WITHIN = 30.0  # seconds; the API server remembers an accepted token for ten


@pytest.fixture
def in_pod(account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the token of the read-only account, as it is mounted into a Pod without a kubeconfig."""
    from kubernetes.config import incluster_config

    config = yaml.safe_load(account.read_text())
    cluster = config["clusters"][0]["cluster"]
    server = urlsplit(cluster["server"])
    token, certificate = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(config["users"][0]["user"]["token"])
    given = cluster.get("certificate-authority-data")
    certificate.write_bytes(base64.b64decode(given) if given else Path(cluster["certificate-authority"]).read_bytes())
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return token


@pytest.mark.usefixtures("in_pod")
def test_a_workload_is_read_with_the_account_of_the_pod(namespace: Namespace) -> None:
    namespace.deployment("chat", 1, BROKEN["no-capacity"].container)
    namespace.wait("pods", lambda pods: any(BROKEN["no-capacity"].shows(one) for one in pods.values()))
    bundle = bundle_of(None, f"{namespace.name}/chat")
    assert bundle.gaps == ()
    diagnosis = diagnosis_of(bundle)
    assert named(diagnosis)[:1] == ["infra.kubernetes.no-capacity"]
    assert all(one.endswith("@in-cluster") for one in diagnosis.causes[0].subjects)


@pytest.mark.usefixtures("in_pod")
def test_a_token_that_is_no_longer_valid_is_one_gap(namespace: Namespace, api: ClusterApi) -> None:
    api.delete(f"/api/v1/namespaces/{namespace.name}/serviceaccounts/reader")
    assert comes_about(_refused, WITHIN)
    (gap, *others) = bundle_of(None, f"{namespace.name}/chat").gaps
    assert (gap.code, others) == (GapCode.UNAUTHENTICATED, [])
    assert "pod.ready" in gap.signals
    assert gap.next_step


def _refused() -> bool:
    one = ClusterApi(Login())
    try:
        one.get("/api/v1/namespaces")
    except ApiError as error:
        return error.status == UNAUTHORIZED
    finally:
        one.close()
    return False


def test_a_pod_without_a_mounted_token_has_no_login(in_pod: Path) -> None:
    in_pod.unlink()
    with pytest.raises(OperationError, match="no login to a cluster"):
        ClusterApi(Login())
    (gap,) = bundle_of(None, "prod/chat").gaps
    assert gap.code == GapCode.NOT_MATCHED
