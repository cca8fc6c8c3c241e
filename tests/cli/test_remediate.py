"""`latdoctor remediate` before a change, and its results."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from latdoctor import case_from_bundle
from latdoctor.cli import remediation_session
from latdoctor.cli.console import TolerantStream
from latdoctor.cli.main import app
from latdoctor.cli.remediate_targets import settings_for
from latdoctor.cli.remediation_session import print_results
from latdoctor.errors import BundleError, DefinitionError, OperationError
from latdoctor.evidence import bundle_files
from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.evidence.model import Window
from latdoctor.remediation.change import Unreachable
from latdoctor.remediation.guards import MAX_EVIDENCE_AGE
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.run_result import Measure, Outcome, Result
from latdoctor.remediation.target import Target
from latdoctor.report.remediation_steps import of_result
from tests.cli.admin_server import Admin, admin
from tests.cli.running import diagnosed, private_file, run, write_trusted

PLAYBOOKS = Path(__file__).parents[1] / "crash" / "playbooks"
INCIDENT = Path(__file__).parents[2] / "fixtures" / "incidents" / "promo-rush.tar.zst"
NOWHERE = "http://127.0.0.1:9"  # the discard port: no server listens


@pytest.fixture(autouse=True)
def _at(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LATDOCTOR_ADMIN_TOKEN", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.fixture
def server() -> Iterator[Admin]:
    with admin() as running:
        yield running


def remediate(*arguments: str, playbook: str = "test.quick", playbooks: Path = PLAYBOOKS) -> Any:
    chosen = ("--playbook", playbook) if playbook else ()
    return run(["remediate", *chosen, "--playbooks", str(playbooks), *arguments])


def words(text: str) -> str:
    return " ".join(text.split())


# --- what is planned


def test_the_same_server_by_another_name_is_no_sibling(server: Admin) -> None:
    named = ("--server", server.url, "--admin", server.url.replace("127.0.0.1", "localhost"))
    outcome = remediate(*named, "-o", "json")
    assert outcome.code == 0, outcome.err
    (plan,) = json.loads(outcome.out)["plans"]
    assert (plan["watched"], plan["not_watched"]) == ([server.url], [])


def test_a_plan_says_which_page_shows_whether_it_helps(server: Admin) -> None:
    with admin() as sibling:
        outcome = words(remediate("--server", server.url, "--server", sibling.url, "--admin", server.url, "-v").out)
    assert f"pages {server.url}" in outcome
    assert f"not {sibling.url}: another server of its kind" in outcome
    assert "no metrics page to verify it with: add --server URL" in words(remediate("--admin", server.url).out)


def test_one_server_by_two_names_is_changed_once(server: Admin) -> None:
    both = ("--admin", server.url, "--admin", server.url.replace("127.0.0.1", "localhost"))
    outcome = remediate(*both, "-o", "json")
    assert outcome.code == 0, outcome.out
    assert len(json.loads(outcome.out)["plans"]) == 1


def test_refused_access_names_the_token_and_no_answer_does_not() -> None:
    with admin(token="s3cret") as shut:  # noqa: S106 - guards nothing
        refused = remediate("--server", shut.url)
    assert refused.code == 2
    assert "LATDOCTOR_ADMIN_TOKEN" in refused.err
    gone = remediate("--server", NOWHERE)
    assert gone.code == 2
    assert "LATDOCTOR_ADMIN_TOKEN" not in gone.err
    assert "cannot be reached" in gone.err


def test_a_playbook_file_with_another_suffix_is_an_error(tmp_path: Path, server: Admin) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "test.mine.yml").write_text("id: test.mine\n")
    outcome = remediate("--server", server.url, playbooks=tmp_path / "own")
    assert outcome.code == 2
    assert "own/test.mine.yml: is not read: call it <id>.yaml" in outcome.err


# --- a diagnosis of something else


@pytest.fixture(scope="module")
def incident() -> dict[str, Any]:
    """A diagnosis whose first cause is fixed by a playbook of these tests."""
    document = diagnosed(str(INCIDENT))
    for cause in document["causes"]:
        cause["playbooks"] = ["test.quick"] if cause["named"] else []
    return document


Write = Callable[..., str]


@pytest.fixture
def diagnosis(incident: dict[str, Any], tmp_path: Path) -> Write:
    """Writes it, as one of `server` that ended `age` seconds ago."""

    def write(server: str = "", age: float = 60.0) -> str:
        text = json.dumps(incident)
        if server:
            text = text.replace("127.0.0.1:37365", server.removeprefix("http://"))
        document = json.loads(text)
        document["evidence_window"]["end"] = time.time() - age
        (tmp_path / "d.json").write_text(json.dumps(document))
        return str(tmp_path / "d.json")

    return write


def test_a_diagnosis_of_another_server_is_refused(server: Admin, diagnosis: Write) -> None:
    outcome = remediate("--from", diagnosis(), "--server", server.url, "-o", "json", playbook="")
    assert outcome.code == 5, outcome.out
    (result,) = json.loads(outcome.out)["results"]
    assert result["outcome"] == "refused"
    assert "not one of its servers" in result["reason"]
    assert "127.0.0.1:37365" in result["reason"]


def test_admin_overrides_the_diagnosis(server: Admin, diagnosis: Write) -> None:
    outcome = remediate("--from", diagnosis(), "--server", server.url, "--admin", server.url, playbook="")
    assert outcome.code == 0, outcome.out
    assert "was not part of the diagnosis" in words(outcome.out)


def test_a_plan_says_what_was_diagnosed_and_when(server: Admin, diagnosis: Write) -> None:
    outcome = remediate("--from", diagnosis(server.url), "--server", server.url, "-v", playbook="")
    assert outcome.code == 0, outcome.out
    said = words(outcome.out)
    assert f"on replica/0@127.0.0.1:{server.port}" in said
    assert f"of 127.0.0.1:{server.port} and 1 more" in said
    assert "ended 60" in said
    assert "too old" not in said
    assert "named it all the same" not in said


def test_a_plan_warns_of_an_old_diagnosis(server: Admin, diagnosis: Write) -> None:
    old = diagnosis(server.url, age=MAX_EVIDENCE_AGE + 60)
    assert "diagnosis too old" in words(remediate("--from", old, "--server", server.url, playbook="").out)


# --- confirmation


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("y\n", ""),
        ("YES \n", ""),
        ("perhaps\nyes\n", ""),
        ("n\n", "declined"),
        ("\n", "declined"),
        ("ja\nno\n", "declined"),
    ],
)
def test_only_yes_confirms(typed: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(typed.splitlines())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", lambda *_, default, **__: next(answers) or default)
    assert remediation_session.hold_reason() == why
    assert next(answers, None) is None


def test_ctrl_c_at_the_question_is_held(server: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> str:
        raise typer.Abort

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", interrupted)
    outcome = remediate("--server", server.url, "--apply")
    assert outcome.code == 4
    assert "HELD" in outcome.out
    assert "not confirmed" in outcome.out


def test_without_a_terminal_it_is_held(server: Admin, tmp_path: Path) -> None:
    outcome = remediate("--server", server.url, "--apply", "-o", "json")
    assert outcome.code == 4
    (result,) = json.loads(outcome.out)["results"]
    assert (result["outcome"], result["playbook"], result["target"]) == ("held", "test.quick", server.url)
    assert "--yes" in result["next_step"]
    assert "Next" not in outcome.err
    assert "token-budget" in outcome.err
    assert not (tmp_path / "state").exists()


# --- how it ended


@pytest.fixture
def three() -> Iterator[tuple[str, ...]]:
    """Options that name three servers, and the clients' page that shows whether a change of any of them helps."""
    with admin() as one, admin() as two, admin() as three, admin(lacks=True) as clients:
        yield (*(f"--admin={server.url}" for server in (one, two, three)), f"--server={clients.url}")


def of_several(tmp_path: Path) -> Path:
    folder = tmp_path / "several"
    folder.mkdir()
    text = (PLAYBOOKS / "test.quick.yaml").read_text()
    (folder / "test.quick.yaml").write_text(text.replace("max_targets: 1", "max_targets: 3"))
    return folder


def ending(monkeypatch: pytest.MonkeyPatch, *ends: Result | Exception) -> None:
    """Runs end so, one after the other."""
    left = iter(ends)

    def carried_out(plan: Plan, books: object, world: object) -> Result:
        end = next(left)
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr(remediation_session, "execute", carried_out)


APPLY = ("--apply", "--yes")
DONE = Result("r1", Outcome.VERIFIED, "verified")


def test_of_several_targets_the_results_are_printed_where_one_fails(
    three: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending(monkeypatch, DONE, Unreachable("no answer", where="http://x", next_step="see whether it runs"))
    outcome = remediate(*three, "--apply", "--yes", "-o", "json", playbooks=of_several(tmp_path))
    assert outcome.code == 1, outcome.err
    document = json.loads(outcome.out)
    assert [(one["outcome"], f"--admin={one['target']}") for one in document["results"]] == [
        ("verified", three[0]),
        ("failed", three[1]),
    ]
    assert {one["playbook"] for one in document["results"]} == {"test.quick"}
    assert [f"--admin={name}" for name in document["not_tried"]] == [three[2]]
    assert document["results"][1]["next_step"] == "see whether it runs"


def test_after_a_defect_too_the_results_are_printed(
    three: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending(monkeypatch, DONE, ZeroDivisionError())
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(ZeroDivisionError):
        app(
            ["remediate", "--playbook", "test.quick", "--playbooks", str(of_several(tmp_path)), *three, *APPLY],
            standalone_mode=False,
        )
    assert "VERIFIED" in out.getvalue()


def test_what_verified_may_still_be_over_the_slo(server: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    measures = (Measure("latency.p99", "replica/0", 3.0, 1.08), Measure("error.ratio", "replica/0", 0.0, 0.45))
    ending(monkeypatch, Result("r1", Outcome.VERIFIED, "verified", measures=measures))
    outcome = remediate("--server", server.url, "--slo", "500ms", "--apply", "--yes", "-o", "json")
    assert outcome.code == 0, outcome.err
    (result,) = json.loads(outcome.out)["results"]
    assert result["unmet"] == ["P99 1.08 s still exceeds the SLO of 500 ms", "error ratio 45 %, 0 % before the change"]


class Full(io.StringIO):
    """A disk without room."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_that_the_outcome_cannot_be_printed_does_not_change_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for as_json in (False, True):
        monkeypatch.setattr("sys.stdout", TolerantStream(Full()))
        print_results([of_result(DONE)], as_json=as_json)
        said = capsys.readouterr().err
        assert "No space left on device" in said
        assert "VERIFIED" in said
        assert "run r1" in said


# --- the way back in

CONFIGURED = """targets:
  bot:
    server: [{url}/metrics]
    admin: [{url}]
    admin_token: bot.token
  other:
    server: [http://127.0.0.1:1/metrics]
    admin_token: other.token
"""


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    private_file(tmp_path / "bot.token", "s3cret\n")
    return tmp_path / "latdoctor.yaml"


def test_the_configured_token_is_found_again(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with admin(token="s3cret") as shut:  # noqa: S106 - guards nothing
        write_trusted(CONFIGURED.format(url=shut.url))
        outcome = remediate("--target", "bot", "-o", "json")
        assert outcome.code == 0, outcome.err
        (plan,) = json.loads(outcome.out)["plans"]
        assert plan["target"]["configured"] == "bot"
        at = Target("x", "reference", admin=shut.url.replace("127.0.0.1", "localhost"))
        for one in (Target("x", "reference", admin=NOWHERE, configured="bot"), at):
            assert settings_for(one).admin_token == Path("bot.token")
        assert settings_for(Target("bot", "reference", admin=NOWHERE)).admin_token is None
        monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", "theirs")  # it let that run in, and does so again
        assert settings_for(at).admin_token is None


def test_an_invalid_receiver_hides_no_token(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trusted(CONFIGURED.format(url=NOWHERE) + "notify: {a: {kind: sms}}\n")
    for one in (Target("x", "reference", admin=NOWHERE, configured="bot"), Target("x", "reference", admin=NOWHERE)):
        assert settings_for(one).admin_token == Path("bot.token")
    assert capsys.readouterr().err == ""
    write_trusted("targets: [\n")
    assert settings_for(Target("x", "reference", admin=NOWHERE)).admin_token is None  # no token of it had let that in
    assert "the configuration is not searched for a token: latdoctor.yaml:" in capsys.readouterr().err
    with pytest.raises(DefinitionError):
        settings_for(Target("x", "reference", admin=NOWHERE, configured="bot"))


# --- what is kept


def test_a_full_disk_is_an_error_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise BundleError("the bundle cannot be written: No space left on device", next_step="choose another place")

    monkeypatch.setattr(bundle_files, "save", full)
    context = Context("bot")
    with pytest.raises(OperationError) as raised:
        case_from_bundle.kept(Bundle(context, Window()), tmp_path / "runs" / "before.tar.zst")
    assert "No space left on device" in raised.value.what
    assert raised.value.next_step == "free space there, or name another folder in LATDOCTOR_STATE"
