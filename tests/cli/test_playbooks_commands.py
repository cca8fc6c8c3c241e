"""`playbooks list|lint|show`, and what a diagnosis says of the playbooks of its causes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from latdoctor.remediation.playbook_library import shipped
from tests.cli.running import run
from tests.remediation.sample_playbooks import SCHEDULER

INCIDENTS = Path(__file__).parents[2] / "fixtures" / "incidents"


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


@pytest.fixture
def own() -> str:
    """A folder with a playbook that is no shipped one."""
    Path("own").mkdir()
    Path("own/test.scheduler.yaml").write_text(SCHEDULER.replace("test.set", "server.config.set"))
    return "own"


def test_all_are_listed_and_the_next_command_is_said(own: str) -> None:
    listed = run(["playbooks", "list", "--playbooks", own])
    assert listed.code == 0
    for playbook in shipped().playbooks:
        assert f"{playbook.id} " in listed.out
    assert "\ntest.scheduler " in listed.out
    assert listed.out.endswith(f"{len(shipped().playbooks) + 1} playbooks. Next: latdoctor playbooks show ID\n")
    assert max(map(len, listed.out.splitlines())) <= 80


def test_the_list_as_json() -> None:
    pages = json.loads(run(["playbooks", "list", "-o", "json"]).out)
    assert pages["schema_version"] == "1"
    assert [page["id"] for page in pages["playbooks"]] == [one.id for one in shipped().playbooks]


@pytest.mark.parametrize("name", [playbook.id for playbook in shipped().playbooks])
def test_each_can_be_shown(name: str) -> None:
    answer = run(["playbooks", "show", name])
    assert answer.code == 0
    assert len(answer.out.splitlines()) <= 24
    workload = " --kube NAMESPACE/NAME" if "kubernetes" in shipped().find(name).targets else ""
    assert f" Next    latdoctor remediate --playbook {name}{workload} --server URL" in answer.out
    shown = run(["playbooks", "show", name, "-v"])
    assert shown.code == 0
    playbook = shipped().find(name)
    words = " ".join(shown.out.split())
    for part in (playbook.title, str(playbook.effect), *playbook.addresses, *(one.name for one in playbook.parameters)):
        assert part in words
    assert f"Next: latdoctor remediate --playbook {name}{workload} --server URL" in words
    assert max(len(line) for line in shown.out.splitlines() if " " in line.strip()) <= 80
    page = json.loads(run(["playbooks", "show", name, "-o", "json"]).out)
    assert (page["id"], page["digest"], page["risk"]) == (name, playbook.digest, playbook.risk)


def test_what_must_be_given_stands_in_the_next_command() -> None:
    assert "--server URL --set version=VALUE" in " ".join(
        run(["playbooks", "show", "framework.model.previous-version"]).out.split()
    )


def test_an_unknown_one_brings_near_names() -> None:
    shown = run(["playbooks", "show", "app.batching.token"])
    assert (shown.code, shown.out) == (2, "")
    assert "did you mean app.batching.token-budget" in shown.err


def test_lint_reports_every_problem_with_its_line(own: str) -> None:
    sound = run(["playbooks", "lint", "--playbooks", own])
    assert (sound.code, sound.out.split(".")[0]) == (0, f"{len(shipped().playbooks) + 1} playbooks are sound")
    text = SCHEDULER.replace("[app.batching.long-alone]", "[app.batching.long-alon]")
    Path("own/test.scheduler.yaml").write_text(text.replace("[batch-sizes-bimodal clear]", "[batch-size clear]"))
    shown = run(["playbooks", "lint", "--playbooks", own])
    assert shown.code == 2
    for message in (
        "own/test.scheduler.yaml:2: addresses: unknown cause 'app.batching.long-alon' "
        "(did you mean app.batching.long-alone?)",
        "own/test.scheduler.yaml:2: mechanism: unknown finding 'batch-size'",
        "own/test.scheduler.yaml:14: unknown action 'test.set'",
    ):
        assert message in shown.err


def test_lint_requires_a_mechanism_of_a_playbook_for_a_cause(own: str) -> None:
    Path("own/test.scheduler.yaml").write_text(SCHEDULER.replace("  mechanism: [batch-sizes-bimodal clear]\n", ""))
    assert "own/test.scheduler.yaml:17: verify lacks 'mechanism'" in run(["playbooks", "lint", "--playbooks", own]).err
    symptom = SCHEDULER.replace("[batch-sizes-bimodal clear]", "[queue.depth < 0.5 x before]")
    Path("own/test.scheduler.yaml").write_text(symptom)
    assert "verifies only symptoms" in run(["playbooks", "lint", "--playbooks", own]).err


def test_what_an_action_cannot_promise_is_reported(own: str) -> None:
    text = SCHEDULER.replace("test.set", "server.config.set").replace("undo: restore", "undo: none-needed")
    Path("own/test.scheduler.yaml").write_text(text.replace("[reference]", "[reference, process]"))
    shown = run(["playbooks", "lint", "--playbooks", own]).err
    assert "server.config.set does not support undo: none-needed (it supports restore)" in shown
    assert "server.config.set does not support the targets process" in shown


def test_a_diagnosis_says_which_playbook_fixes_what_it_names() -> None:
    said = " ".join(run(["diagnose", str(INCIDENTS / "dependency-slow.tar.zst")]).out.split())
    assert "Fix latdoctor remediate --playbook app.dependency.timeout --target reference" in said
    assert "Wait less for the slow service (low risk, degrades answers)" in said


def test_one_playbook_for_all_that_is_named_comes_first() -> None:
    said = " ".join(run(["diagnose", str(INCIDENTS / "promo-rush.tar.zst")]).out.split())
    assert "Fix latdoctor remediate --playbook promo-rush-sop \\ --server http://127.0.0.1:37365" in said


def test_no_playbook_is_offered_where_no_server_was_seen(samples: Path) -> None:
    trace = next(samples.rglob("*alexnet*.json*"), None)
    if trace is None:
        pytest.skip("no sample trace of a first run")
    answer = json.loads(run(["diagnose", "--trace", str(trace), "-o", "json"]).out)
    assert any(cause["playbooks"] for cause in answer["causes"] if cause["named"])
    assert "remediate" not in run(["diagnose", "--trace", str(trace)]).out
