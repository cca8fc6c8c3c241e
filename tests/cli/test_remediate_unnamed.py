"""`latdoctor remediate` without a named server, after a killed run, and with nothing to change."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from latdoctor.cli.options import SourceOptions
from latdoctor.cli.plan_files import load_plan
from latdoctor.cli.remediate_targets import limit_to_named
from latdoctor.cli.resolve_request import resolve_request
from latdoctor.collectors.prometheus.discovery import DiscoveredPage
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.remediation.planner import DiagnosisRef
from latdoctor.remediation.run_history import RunOpened
from latdoctor.remediation.target import host_and_port
from tests.cli import admin_server
from tests.cli.admin_server import Admin, admin
from tests.cli.running import run

PLAYBOOKS = Path(__file__).parents[1] / "crash" / "playbooks"
STRANGER = "http://127.0.0.1:9/metrics"  # the discard port: no server listens
APPLY = ("--apply", "--yes")


@pytest.fixture(autouse=True)
def _at(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LATDOCTOR_ADMIN_TOKEN", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.fixture
def server() -> Iterator[Admin]:
    with admin() as running:
        yield running


@pytest.fixture
def page(server: Admin, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's own page, which is found on this machine beside that of a stranger."""
    own = f"{server.url}/metrics"
    found = tuple(DiscoveredPage(url, "Triton", ("triton",), ()) for url in (own, STRANGER))
    monkeypatch.setattr("latdoctor.cli.resolve_request.local_pages", lambda: found)
    return own


def remediate(*arguments: str, playbook: str = "test.quick") -> Any:
    chosen = ("--playbook", playbook) if playbook else ()
    return run(["remediate", *chosen, "--playbooks", str(PLAYBOOKS), *arguments])


def words(text: str) -> str:
    return " ".join(text.split())


def planned(*arguments: str, playbook: str = "test.quick") -> dict[str, Any]:
    outcome = remediate(*arguments, "-o", "json", playbook=playbook)
    assert outcome.code == 0, outcome.err
    (plan,) = json.loads(outcome.out)["plans"]
    assert isinstance(plan, dict)
    return plan


# --- no server named


def test_an_unnamed_server_is_not_changed(server: Admin, page: str, tmp_path: Path) -> None:
    outcome = remediate(*APPLY)
    assert outcome.code == 2, outcome.out
    said = words(outcome.err)
    assert "name it: --server URL or --target NAME" in said
    assert page in said
    assert STRANGER in said
    assert server.tokens == [], "no server was queried"
    assert not (tmp_path / "state").exists()


def test_a_plan_says_what_it_guessed(page: str) -> None:
    said = words(remediate("-v").out)
    assert f"{page} {STRANGER}" in said
    assert "no server was named: these metrics pages were found on this machine" in said
    assert "Next: the same command with --apply and --server URL or --target NAME" in said
    assert "no server was named" in words(remediate().out)
    assert planned()["guessed"] is True


def test_an_unnamed_server_is_sent_no_token(server: Admin, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", "hush")
    remediate()
    assert server.tokens
    assert set(server.tokens) == {""}
    remediate("--server", page)
    assert server.tokens[-1] == "hush"


def test_beside_what_is_changed_no_stranger_shows_whether_it_helps(server: Admin, page: str, tmp_path: Path) -> None:
    for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
        plan = planned("--admin", url)
        assert (plan["watched"], plan["not_watched"], plan["guessed"]) == ([page], [], False)
    assert "guess" not in remediate("--admin", server.url).out
    assert planned("--admin", server.url, "--save-plan", str(tmp_path / "p.json"))
    assert planned("--plan", str(tmp_path / "p.json"), "--admin", server.url, playbook="")["watched"] == [page]


def test_of_a_diagnosis_only_what_it_saw_is_looked_at(page: str) -> None:
    because = DiagnosisRef("d", "app.batching.long-alone", 0.9, 0.0, servers=(host_and_port(page),))
    found = resolve_request(SourceOptions())
    assert found.request.servers == (page, STRANGER)
    seen = limit_to_named(found, (), because)
    assert (seen.request.servers, seen.guessed) == ((page,), False)
    assert limit_to_named(found, (), None) == found
    given = resolve_request(SourceOptions(server=(STRANGER,)))
    assert limit_to_named(given, (), because) == given


# --- a run there is not finished, or nothing to change


@pytest.fixture
def killed(server: Admin, tmp_path: Path) -> Callable[[], None]:
    """Journals the same run as begun; nothing of its end."""

    def kill() -> None:
        planned("--server", server.url, "--save-plan", str(tmp_path / "killed.json"))
        plan = load_plan(tmp_path / "killed.json")
        (tmp_path / "state").mkdir(mode=0o700)
        Journal.opened(tmp_path / "state" / JOURNAL).append("r-killed", "run.opened", RunOpened(plan, plan.digest, 1))

    return kill


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The server has what the playbook would set."""
    return lambda: monkeypatch.setitem(admin_server.CONFIG["batching"], "scheduler", "token-budget")


def test_after_a_killed_run_the_same_playbook_leads_to_recover(
    server: Admin, killed: Callable[[], None], changed: Callable[[], None]
) -> None:
    killed()
    changed()
    outcome = remediate("--server", server.url, *APPLY, "-o", "json")
    assert outcome.code == 5, outcome.err
    (result,) = json.loads(outcome.out)["results"]
    assert result["reason"] == "run r-killed on this target is not finished"
    assert result["next_step"] == "latdoctor recover"


def test_a_plan_names_the_killed_run(server: Admin, killed: Callable[[], None]) -> None:
    killed()
    said = words(remediate("--server", server.url).out)
    assert "run r-killed on this target is not finished" in said
    assert said.startswith("BLOCKED ")
    assert "Next latdoctor recover" in said
    assert planned("--server", server.url)["unfinished"] == "r-killed"
    with admin() as other:
        assert planned("--server", other.url)["unfinished"] == ""


def test_with_nothing_to_change_apply_is_not_advised(server: Admin, changed: Callable[[], None]) -> None:
    changed()
    said = words(remediate("--server", server.url).out)
    assert "all values are already as the playbook would set them" in said
    assert "--apply" not in said
    assert f"Next latdoctor diagnose --server {server.url}" in said
    outcome = remediate("--server", server.url, *APPLY)
    assert outcome.code == 5
    assert "refused: the target already has all values of the plan" in words(outcome.err)
    assert "by nothing" not in outcome.err + outcome.out


def test_an_unreadable_journal_is_reported_and_the_plan_is_shown(server: Admin, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / JOURNAL).write_bytes(b"no journal at all" * 100)
    outcome = remediate("--server", server.url)
    assert outcome.code == 0, outcome.err
    assert "cannot check for an unfinished run on the target" in words(outcome.err)
