"""`lab inject --kube`: a fault of the catalogue, by hand, for a limited time."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.running import run
from tests.lab.cluster.objects import Namespace, condition, container


def test_the_fault_is_injected_and_reverted_after_its_time(namespace: Namespace, kubeconfig: Path) -> None:
    namespace.deployment("web", 1, container())
    namespace.wait("deployments", lambda all_: condition(all_["web"], "Available") == "True")
    before = namespace.api.get(namespace.path("deployments", "web"))
    outcome = run(
        ["lab", "inject", "quota", "--kube", f"{namespace.name}/web", "--kubeconfig", str(kubeconfig), "--for", "10ms"]
    )
    assert (outcome.code, outcome.out) == (0, "")
    assert "A quota refuses Pods: for at most 0.01 s" in outcome.err
    after = namespace.api.get(namespace.path("deployments", "web"))
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 2  # changed, and changed back
    assert namespace.api.get(namespace.path("resourcequotas"))["items"] == []


@pytest.mark.parametrize(
    ("fault", "service", "says"),
    [
        ("flood", "default/web", "there is no fault 'flood' of a cluster"),
        ("quota", "web", "must be NAMESPACE/NAME"),
        ("quota", "default/absent", "not found"),
    ],
)
def test_what_there_is_not_is_refused(kubeconfig: Path, fault: str, service: str, says: str) -> None:
    outcome = run(["lab", "inject", fault, "--kube", service, "--kubeconfig", str(kubeconfig)])
    assert outcome.code != 0
    assert says in outcome.err


def test_a_cluster_elsewhere_is_never_touched(kubeconfig: Path, tmp_path: Path) -> None:
    login = yaml.safe_load(kubeconfig.read_text())
    login["clusters"][0]["cluster"]["server"] = "https://198.51.100.7:6443"
    elsewhere = tmp_path / "kubeconfig"
    elsewhere.write_text(yaml.safe_dump(login))
    outcome = run(["lab", "inject", "quota", "--kube", "default/web", "--kubeconfig", str(elsewhere)])
    assert outcome.code == 2
    assert "a cluster on this machine" in outcome.err
