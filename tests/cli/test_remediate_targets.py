"""Which server a playbook changes, and by whose pages one sees whether that helps; `recover` where nothing was done."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor import case_from_bundle
from latdoctor.cli import remediate_targets
from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.remediate_targets import choose_targets
from latdoctor.errors import OperationError
from latdoctor.remediation import target
from latdoctor.remediation.playbook_library import shipped
from latdoctor.remediation.target import Access
from tests.cli.running import run

ROUTER, FIRST, SECOND, CLIENTS = "http://router:1", "http://first:1", "http://second:1", "http://clients:1"
KINDS = {ROUTER: "reference-router", FIRST: "reference", SECOND: "reference"}
PLAYBOOK = "app.batching.token-budget"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The admin interfaces that were asked what they are, in order."""
    places: list[str] = []

    def detect_kind(access: Access) -> str:
        places.append(access.target.admin)
        if access.target.admin not in KINDS:
            raise OperationError("no admin interface")
        return KINDS[access.target.admin]

    monkeypatch.setattr(remediate_targets, "detect_kind", detect_kind)
    monkeypatch.setattr(target, "detect_kind", detect_kind)
    return places


def pages(*places: str) -> tuple[str, ...]:
    return tuple(f"{place}/metrics" for place in places)


def test_a_server_that_was_asked_in_choosing_is_not_asked_again(asked: list[str]) -> None:
    seen = pages(ROUTER, FIRST, CLIENTS)
    ways = choose_targets(shipped().find(PLAYBOOK), TargetSettings(), (), seen, None)
    assert [access.target.admin for access in ways.chosen] == [FIRST]
    assert asked == [ROUTER, FIRST, CLIENTS]
    assert case_from_bundle.pages_for(ways.chosen[0], seen, ways.known).watched == seen
    assert asked == [ROUTER, FIRST, CLIENTS, CLIENTS], "one that did not let us in may do so now"


def test_siblings_of_what_is_changed_are_not_looked_at(asked: list[str]) -> None:
    seen = pages(FIRST, SECOND, CLIENTS)
    ways = choose_targets(shipped().find(PLAYBOOK), TargetSettings(), (FIRST,), seen, None)
    assert case_from_bundle.pages_for(ways.chosen[0], seen, ways.known).watched == pages(FIRST, CLIENTS)
    assert asked == [FIRST, SECOND, CLIENTS]
    both = choose_targets(shipped().find(PLAYBOOK), TargetSettings(), (FIRST, SECOND), seen, None)
    asked.clear()
    assert case_from_bundle.pages_for(both.chosen[1], seen, both.known).watched == pages(SECOND, CLIENTS)
    assert asked == [CLIENTS]


@pytest.mark.parametrize(("command", "code"), [(["recover"], 0), (["rollback", "no-such-run"], 2)])
def test_where_nothing_was_done_no_folder_is_made(
    command: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    outcome = run(command)
    assert outcome.code == code, outcome.err
    assert list(tmp_path.iterdir()) == []
    assert ("no run is unfinished" in outcome.out) is (command == ["recover"])


def test_a_folder_that_others_can_write_to_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path))
    tmp_path.chmod(0o702)
    outcome = run(["recover"])
    assert outcome.code == 2
    assert "other users can write to it" in outcome.err
