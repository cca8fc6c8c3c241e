"""`latdoctor remediate --kube` on a real API server: what it plans, and a saved plan that is named again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from latdoctor.cluster_api import Login
from tests.cli.running import Outcome, run
from tests.lab.cluster.objects import Namespace
from tests.remediation.actions.kubernetes_cases import NAME, World, replicas, rollout_undo


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))


def planned(world: World, playbook: str, *more: str) -> Outcome:
    return run(["remediate", "--playbook", playbook, *named(world, NAME), *more])


def named(world: World, name: str) -> list[str]:
    return ["--kubeconfig", str(world.login.kubeconfig), "--kube", f"{world.namespace.name}/{name}"]


@pytest.fixture
def web(namespace: Namespace, login: Login) -> World:
    return replicas(namespace, login)


def test_a_plan_names_the_workload_and_what_would_change(web: World) -> None:
    shown = planned(web, "app.scale.out", "--set", "add=3", "--server", "http://127.0.0.1:9")
    assert shown.code == 0
    assert f"{web.namespace.name}/deployment/{NAME} (kubernetes)" in shown.out
    assert "replicas 0 → 3" in shown.out
    assert web.found()["spec"]["replicas"] == 0


def test_of_a_rollout_the_plan_shows_what_differs(namespace: Namespace, login: Login) -> None:
    shown = planned(rollout_undo(namespace, login), "framework.model.rollout-undo")
    assert "containers/server/image lab/workload:2 → lab/workload:1" in shown.out


def test_a_plan_warns_of_what_will_be_refused(web: World) -> None:
    web.api.patch(web.path, {"metadata": {"labels": {"argocd.argoproj.io/instance": "chat"}}})
    shown = planned(web, "app.scale.out")
    assert "Argo CD manages Deployment web" in " ".join(shown.out.split())


def test_the_workload_of_the_configuration_is_used(web: World, tmp_path: Path) -> None:
    target = {"kube": [f"{web.namespace.name}/{NAME}"], "kube_context": "lab"}
    folder = tmp_path / "xdg" / "latdoctor"  # the user's own configuration needs no trust
    folder.mkdir(parents=True)
    (folder / "latdoctor.yaml").write_text(json.dumps({"targets": {"chat": target}}))
    given = ["--target", "chat", "--kubeconfig", str(web.login.kubeconfig)]
    shown = run(["remediate", "--playbook", "app.scale.out", *given, "-o", "json"])
    assert shown.code == 0, shown.err
    (plan,) = json.loads(shown.out)["plans"]
    assert plan["target"]["name"] == "chat"
    assert plan["target"]["workload"]["name"] == NAME


def test_a_saved_plan_needs_its_workload_named_again(web: World) -> None:
    assert planned(web, "app.scale.out", "--save-plan", "plan.json").code == 0
    unnamed = run(["remediate", "--plan", "plan.json", "--server", "http://127.0.0.1:9"])
    assert (unnamed.code, "--kube" in unnamed.err) == (2, True)
    again = run(["remediate", "--plan", "plan.json", *named(web, NAME)])
    assert again.code == 0
    assert "replicas 0 → 2" in again.out


def test_a_saved_plan_of_another_workload_is_refused(web: World) -> None:
    web.namespace.deployment("other", 0, {"name": "server", "image": "lab/workload:1"})
    assert planned(web, "app.scale.out", "--save-plan", "plan.json").code == 0
    other = run(["remediate", "--plan", "plan.json", *named(web, "other")])
    assert other.code == 5
    assert "target.workload.name: web in the file, other now" in " ".join(other.out.split())


def test_a_journaled_target_has_no_secret(web: World, kubeconfig: Path) -> None:
    planned(web, "app.scale.out", "--save-plan", "plan.json")
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    assert token not in Path("plan.json").read_text()
