"""Which server a playbook changes, and by whose pages one sees whether that helps; `recover` where nothing was done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor import case_from_bundle
from latdoctor.cli import remediate_targets
from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.remediate_targets import access_again, choose_targets
from latdoctor.errors import OperationError
from latdoctor.http.client import Secret
from latdoctor.remediation import target
from latdoctor.remediation.playbook_library import shipped
from latdoctor.remediation.target import Access, Target, TargetKind
from tests.cli.admin_server import Admin, admin
from tests.cli.running import Outcome, private_file, run, write_trusted
from tests.http.stub_server import answering, serving

ROUTER, FIRST, SECOND, CLIENTS = "http://router:1", "http://first:1", "http://second:1", "http://clients:1"
KINDS = {ROUTER: "reference-router", FIRST: "reference", SECOND: "reference"}
PLAYBOOK = "app.batching.token-budget"
PLAYBOOKS = Path(__file__).parents[1] / "crash" / "playbooks"


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
    monkeypatch.setattr("latdoctor.collectors.prometheus.discovery.dialects_at", lambda url: ())
    return places


def pages(*places: str) -> tuple[str, ...]:
    return tuple(f"{place}/metrics" for place in places)


def test_a_server_that_was_asked_in_choosing_is_not_asked_again(asked: list[str]) -> None:
    seen = pages(ROUTER, FIRST, CLIENTS)
    ways = choose_targets(shipped().find(PLAYBOOK), TargetSettings(), (), seen, SourceOptions())
    assert [access.target.admin for access in ways.chosen] == [FIRST]
    assert asked == [ROUTER, FIRST, CLIENTS]
    assert case_from_bundle.pages_for(ways.chosen[0], seen, ways.known).watched == seen
    assert asked == [ROUTER, FIRST, CLIENTS, CLIENTS], "one that did not let us in may do so now"


def test_siblings_of_what_is_changed_are_not_looked_at(asked: list[str]) -> None:
    seen = pages(FIRST, SECOND, CLIENTS)
    ways = choose_targets(shipped().find(PLAYBOOK), TargetSettings(), (FIRST,), seen, SourceOptions())
    assert case_from_bundle.pages_for(ways.chosen[0], seen, ways.known).watched == pages(FIRST, CLIENTS)
    assert asked == [FIRST, SECOND, CLIENTS]
    both = choose_targets(shipped().find(PLAYBOOK), TargetSettings(), (FIRST, SECOND), seen, SourceOptions())
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


# --- one token belongs to one address

HUSH = "hush"


@pytest.fixture
def pair(apart: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Admin, Admin]]:
    """Two servers that need a token, which the environment has."""
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", HUSH)
    with admin(token=HUSH) as first, admin(token=HUSH) as second:
        yield first, second


def remediate(*arguments: str) -> Outcome:
    return run(["remediate", "--playbook", "test.quick", "--playbooks", str(PLAYBOOKS), *arguments])


def test_the_token_of_the_environment_is_sent_to_no_server_among_several(pair: tuple[Admin, Admin]) -> None:
    first, second = pair
    for option in ("--server", "--admin"):
        outcome = remediate(option, first.url, option, second.url)
        assert (outcome.code, outcome.out) == (2, "")
        assert "LATDOCTOR_ADMIN_TOKEN belongs to one address, and 2 are named" in outcome.err
        assert "next: name the one to change: --admin URL" in outcome.err
    assert first.tokens == second.tokens == []


def test_the_token_of_the_environment_is_sent_to_the_named_address_alone(pair: tuple[Admin, Admin]) -> None:
    first, second = pair
    outcome = remediate("--admin", first.url, "--server", f"{first.url}/metrics", "--server", f"{second.url}/metrics")
    assert outcome.code == 0, outcome.err
    assert set(first.tokens) == {HUSH}
    assert set(second.tokens) <= {""}
    assert remediate("--server", second.url).code == 0
    assert second.tokens[-1] == HUSH


def test_without_a_token_the_one_server_that_fits_is_found(pair: tuple[Admin, Admin]) -> None:
    first, _ = pair
    first.token = ""
    with pytest.MonkeyPatch.context() as patched, admin(lacks=True) as clients:
        patched.delenv("LATDOCTOR_ADMIN_TOKEN")
        outcome = remediate("--server", clients.url, "--server", first.url)
    assert outcome.code == 0, outcome.err


def configure(**targets: str) -> None:
    private_file("bot.token", "configured")
    lines = (f"  {name}: {{admin_token: bot.token, {settings}}}\n" for name, settings in targets.items())
    write_trusted("".join(["targets:\n", *lines]))


@pytest.mark.parametrize("settings", ["admin: ['{}']", "server: ['{}/metrics']"])
def test_the_configured_token_is_sent_to_its_own_address_alone(pair: tuple[Admin, Admin], settings: str) -> None:
    first, second = pair
    first.token = "configured"  # noqa: S105 - guards nothing
    configure(bot=settings.format(first.url))
    outcome = remediate("--target", "bot")
    assert outcome.code == 0, outcome.err
    assert set(first.tokens) == {"configured"}
    outcome = remediate("--target", "bot", "--admin", second.url)
    assert outcome.code == 0, outcome.err
    assert set(second.tokens) == {HUSH}, "that of the environment"
    second.tokens.clear()
    remediate("--target", "bot", "--server", f"{second.url}/metrics")
    assert "configured" not in second.tokens


def test_a_configured_token_of_several_servers_needs_its_address(pair: tuple[Admin, Admin]) -> None:
    first, second = pair
    configure(bot=f"server: ['{first.url}', '{second.url}']")
    outcome = remediate("--target", "bot")
    assert outcome.code == 2
    assert "the admin_token of bot belongs to one address, and none is configured" in outcome.err
    assert first.tokens == second.tokens == []


@pytest.mark.parametrize(
    ("admin_url", "configured", "token"),
    [
        ("http://first:1", "", "configured"),
        ("http://FIRST:1/", "", "configured"),
        ("http://former:1", "bot", "configured"),  # its run was let in by that token
        ("http://second:1", "", HUSH),
        ("http://second:1", "other", HUSH),
    ],
)
def test_a_run_is_rolled_back_by_the_token_of_its_address(
    admin_url: str, configured: str, token: str, apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", HUSH)
    private_file("bot.token", "configured")
    settings = TargetSettings(name="bot", admin=(FIRST,), admin_token=Path("bot.token"))
    place = Target("x", TargetKind.REFERENCE, admin=admin_url, configured=configured)
    assert access_again(place, settings).token.reveal() == token


def test_a_sibling_that_needs_a_token_is_known_by_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ref_arrivals_total", "ref_requests_total", "ref_info")
    page = "".join(f"# TYPE {name} untyped\n{name} 3\n" for name in names)
    with serving(answering(200, page.encode())) as pages, admin(token=HUSH) as shut:
        monkeypatch.setattr(case_from_bundle, "_origin", lambda url: shut.url)
        access = Access(Target("x", TargetKind.REFERENCE, admin=FIRST), Secret(HUSH))
        assert case_from_bundle.pages_for(access, (pages.url,), {}).siblings == (pages.url,)
        other = Access(Target("x", TargetKind.REFERENCE_ROUTER, admin=FIRST), Secret(HUSH))
        assert case_from_bundle.pages_for(other, (pages.url,), {}).siblings == ()
    assert set(shut.tokens) == {""}


@pytest.mark.parametrize(("token", "elsewhere"), [("", True), ("s3", False)], ids=["no interface", "no token"])
def test_another_address_is_no_way_past_a_missing_token(token: str, elsewhere: bool, apart: Path) -> None:
    with admin(token, lacks=not token) as server:
        outcome = run(["remediate", "--playbook", PLAYBOOK, "--server", server.url])
    said = " ".join(outcome.err.split())
    assert outcome.code == 2
    assert ("--admin URL" in said) is elsewhere, said
    assert ("LATDOCTOR_ADMIN_TOKEN" in said) is not elsewhere
