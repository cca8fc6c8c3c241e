"""A latdoctor.yaml of the working directory is used only with the user's consent; `latdoctor trust` gives it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.cli import config_file
from latdoctor.cli.config_trust import _LOOPBACK, STORE, Grants
from latdoctor.errors import DefinitionError
from latdoctor.regular_file import written_by_others
from tests.cli import pages
from tests.cli.running import Outcome, private_file, run, write_trusted
from tests.http.stub_server import Server, answering, serving

CANARY = "c4n4ryc4n4ryc4n4ryc4n4ryc4n4ry12"


@pytest.fixture(autouse=True)
def folder(apart: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private working directory, with the user's configuration and a file of the user's elsewhere."""
    work = apart / "work"
    work.mkdir(mode=0o700)
    monkeypatch.chdir(work)
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", CANARY)
    private_file(apart / "passwords", CANARY)
    return work


@pytest.fixture
def attacker() -> Iterator[Server]:
    with serving(answering(200, b'{"batching": {}}')) as server:
        yield server


def hostile(attacker: Server, secret: str) -> str:
    """A configuration that sends the file `secret` to the attacker wherever it can."""
    at = f"http://0.0.0.0:{attacker.port}"  # reaches this machine, but is no loopback address
    return f"""targets:
  shop:
    server: [{at}/metrics]
    prometheus: {at}
    prometheus_auth: {secret}
    admin: [{at}]
    admin_token: {secret}
notify:
  us: {{kind: webhook, url: {at}/hook, key_file: {secret}, allow_private: true}}
"""


REFUSED = [
    ["diagnose"],
    ["diagnose", "--target", "shop"],
    ["diagnose", "--watch"],
    ["targets"],
    ["collect", "--to", "bundle"],
    ["baseline", "record", "--to", "healthy.json"],
    ["remediate", "--playbook", "app.batching.token-budget"],
    ["remediate", "--playbook", "app.batching.token-budget", "--target", "shop", "--apply", "--yes"],
    ["notify", "test", "us"],
    ["notify", "send"],
    ["listen", "--listen", "127.0.0.1:0"],
    ["listen", "--listen", "127.0.0.1:0", "--target", "shop"],
]


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_a_foreign_configuration_sends_nothing_anywhere(command: list[str], attacker: Server) -> None:
    Path("secret").write_text(CANARY)
    Path("latdoctor.yaml").write_text(hostile(attacker, "secret"))
    outcome = run(command)
    assert (outcome.code, outcome.out) == (2, "")
    assert attacker.seen == []
    place = f"0.0.0.0:{attacker.port}"
    for part in (str(Path("latdoctor.yaml").absolute()), place, "secret", "latdoctor trust", "is not trusted"):
        assert part in outcome.err


OUTSIDE = ["../passwords", "{home}/passwords", "link"]


@pytest.mark.parametrize("command", REFUSED[:1] + REFUSED[6:10], ids=" ".join)
@pytest.mark.parametrize("secret", OUTSIDE)
def test_no_consent_reaches_a_file_outside_the_folder(
    secret: str, command: list[str], attacker: Server, apart: Path
) -> None:
    Path("link").symlink_to("../passwords")
    write_trusted(hostile(attacker, secret.format(home=apart)))
    outcome = run(command)
    assert outcome.code == 2
    assert attacker.seen == []
    assert CANARY not in outcome.out + outcome.err
    assert "is not below the folder of the configuration" in outcome.err
    assert run(["trust"]).code == 2


@pytest.mark.parametrize("command", [["sop", "start", "--title", "slow", "--target", "shop"], ["rollback", "r"]])
def test_what_needs_no_configuration_works_beside_a_foreign_one(
    command: list[str], attacker: Server, apart: Path
) -> None:
    Path("latdoctor.yaml").write_text(hostile(attacker, "secret"))
    outcome = run(command)
    assert outcome.code == (0 if command[0] == "sop" else 2)
    assert "no receiver is notified: " in outcome.err
    assert attacker.seen == []
    Path("page.prom").write_bytes(pages.triton(81_000))
    assert run(["diagnose", "page.prom", "--no-incident"]).code in (0, 3, 4)


# --- consent


def trusted(outcome: Outcome) -> str:
    assert outcome.code == 0, outcome.err
    return outcome.out


def test_trust_shows_what_it_permits_and_lasts_until_the_file_changes(attacker: Server, folder: Path) -> None:
    private_file("secret", CANARY)
    Path("latdoctor.yaml").write_text(hostile(attacker, "secret"))
    at = f"http://0.0.0.0:{attacker.port}"
    said = trusted(run(["trust"]))
    for line in (f"contact {at}/metrics, {at}", f"send the credentials in {folder}/secret", f"change {at}"):
        assert f"  may {line}\n" in said
    assert f"  may notify us (webhook, {at}/hook)\n" in said
    outcome = run(["targets"])
    assert (outcome.code, outcome.err) == (0, "")
    assert "shop" in outcome.out
    with Path("latdoctor.yaml").open("a") as file:
        file.write("# and more\n")
    changed = run(["targets"])
    assert (changed.code, changed.out) == (2, "")
    assert "has changed since it was trusted" in changed.err
    trusted(run(["trust", str(folder)]))
    assert run(["targets"]).code == 0


@pytest.mark.parametrize("address", ["http://evil.example#@127.0.0.1/x", "http://evil.example?@127.0.0.1/x"])
def test_trust_names_the_host_behind_what_looks_like_a_login(address: str) -> None:
    (line,) = Grants(contacts=(address,)).lines()
    assert line.endswith("(host evil.example)")


def test_trust_names_the_host_of_a_long_address() -> None:
    (line,) = Grants(changes=(f"http://127.0.0.1:{'8' * 300}@evil.example/",)).lines()
    assert line.endswith("(host evil.example)")


def test_trust_is_listed_and_withdrawn(folder: Path, apart: Path) -> None:
    text = "targets: {a: {server: [http://10.0.0.1:1/metrics]}}\n"
    place = folder / "latdoctor.yaml"
    assert trusted(run(["trust", "--list"])) == "no file is trusted\n"
    place.write_text(text)
    trusted(run(["trust", "latdoctor.yaml"]))
    store = apart / "xdg" / "latdoctor" / STORE
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert [path.name for path in store.parent.iterdir()] == [STORE]
    assert trusted(run(["trust", "--list"])) == f"{place}: trusted\n"
    place.write_text(f"{text}# more\n")
    assert trusted(run(["trust", "--list"])) == f"{place}: changed since\n"
    place.unlink()
    assert trusted(run(["trust", "--list"])) == f"{place}: no longer there\n"
    assert trusted(run(["trust", "--remove"])) == f"{place}: no longer trusted\n"
    assert trusted(run(["trust", "--remove"])) == f"{place}: was not trusted\n"
    place.write_text(text)
    assert run(["targets"]).code == 2


def test_consent_is_for_one_folder(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "targets: {a: {server: [http://10.0.0.1:1/metrics]}}\n"
    write_trusted(text)
    other = apart / "other"
    other.mkdir()
    (other / "latdoctor.yaml").write_text(text)
    monkeypatch.chdir(other)
    assert run(["targets"]).code == 2


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [("{", 0o600, "is damaged"), ('{"files": {}}', 0o666, "can be written by other users, so it is not believed")],
)
def test_a_store_that_cannot_be_believed_grants_nothing(content: str, mode: int, said: str, apart: Path) -> None:
    Path("latdoctor.yaml").write_text("targets: {a: {server: [http://10.0.0.1:1/metrics]}}\n")
    store = apart / "xdg" / "latdoctor" / STORE
    store.parent.mkdir(parents=True)
    store.write_text(content)
    store.chmod(mode)
    outcome = run(["targets"])
    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.parametrize("path", ["nowhere", "page.prom", "nowhere/latdoctor.yaml", "fifo"])
def test_only_a_configuration_can_be_trusted(path: str) -> None:
    Path("page.prom").write_text("")
    Path("fifo").mkdir()
    os.mkfifo("fifo/latdoctor.yaml")
    outcome = run(["trust", path])
    assert (outcome.code, outcome.out) == (2, "")


# --- what needs consent

HARMLESS = "server: [http://127.0.0.1:1/metrics, 'localhost:8000'], prometheus: 'http://[::1]:9090', log: [app.log]"
NEEDS = [
    ("", False),
    (HARMLESS, False),
    ("slo: {p99: 500ms}, nvml: true, gpu: none", False),
    ("server: [http://10.0.0.1/metrics]", True),
    ("prometheus: http://prometheus:9090", True),
    ("server: ['http://127.0.0.1:1@evil.example/metrics']", True),
    ("admin: [http://127.0.0.1:1]", True),
    ("allow: [http://127.0.0.1:1/flags]", True),
    ("admin_token: bot.token", True),
    ("prometheus_auth: bot.token", True),
    ("log: [/var/log/kern.log]", True),
    ("log: [../app.log]", True),
    ("log: [link/app.log]", True),
    ("baseline: /tmp/healthy.json", True),
    ("prometheus_ca: ../ca.pem", True),
]


@pytest.mark.parametrize(("settings", "needs"), NEEDS)
def test_what_needs_consent(settings: str, needs: bool) -> None:
    Path("link").symlink_to("..")
    Path("latdoctor.yaml").write_text(f"targets: {{a: {{{settings}}}}}\n")
    outcome = run(["targets"])
    assert outcome.code == (2 if needs else 0), outcome.err
    assert ("is not trusted" in outcome.err) is needs


@pytest.mark.parametrize("variable", ["LATDOCTOR_PROMETHEUS_AUTH", "LATDOCTOR_PROMETHEUS_AUTH_FILE"])
def test_credentials_of_the_environment_for_a_prometheus_need_consent(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("latdoctor.yaml").write_text("targets: {a: {prometheus: 'http://127.0.0.1:9'}}\n")
    assert run(["targets"]).code == 0
    monkeypatch.setenv(variable, "x")
    outcome = run(["targets"])
    assert outcome.code == 2
    assert f"send the credentials in {variable}" in outcome.err


@pytest.mark.parametrize("receiver", ["{kind: webhook, url: http://127.0.0.1:1/}", "{kind: pagerduty}", "{kind: sms}"])
def test_any_receiver_needs_consent(receiver: str) -> None:
    Path("latdoctor.yaml").write_text(f"targets: {{a: {{log: [app.log]}}}}\nnotify: {{a: {receiver}}}\n")
    outcome = run(["targets"])
    assert (outcome.code, "notify a (" in outcome.err) == (2, True)


@pytest.mark.parametrize(("path", "mode"), [("latdoctor.yaml", 0o666), ("latdoctor.yaml", 0o660), (".", 0o777)])
def test_what_others_can_write_needs_consent(path: str, mode: int) -> None:
    Path("latdoctor.yaml").write_text(f"targets: {{a: {{{HARMLESS}}}}}\n")
    assert run(["targets"]).code == 0
    Path(path).chmod(mode)
    outcome = run(["targets"])
    assert outcome.code == 2
    assert "can be written by other users" in outcome.err
    trusted(run(["trust"]))
    assert run(["targets"]).code == 0


def test_another_users_file_is_not_ones_own() -> None:
    def owned(user: int, mode: int) -> str:
        return written_by_others(os.stat_result((stat.S_IFREG | mode, 0, 0, 1, user, 0, 0, 0, 0, 0)))

    assert owned(os.geteuid() + 1, 0o600) == f"belongs to user {os.geteuid() + 1}"
    assert owned(os.geteuid(), 0o644) == owned(0, 0o644) == ""


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1@evil.example/", "http://127.0.0.1:80@evil.example/", "http://evil.example\\@127.0.0.1/",
        "http://127.0.0.1.evil.example/", "http://localhost.evil.example", "http://127.0.0.1\\.evil.example",
        "http://127.0.0.1#@evil.example/", "http://127.0.0.1?@evil.example/", "http://0.0.0.0/", "http://2130706433/",
        "ftp://127.0.0.1/", "//evil.example", "http:evil.example", "http://[::ffff:10.0.0.1]/", "localhost:80:90",
    ],
)  # fmt: skip
def test_only_a_plain_loopback_address_is_one(address: str) -> None:
    assert not _LOOPBACK.fullmatch(address)


# --- the user's own file


def own(apart: Path, text: str) -> Path:
    place = apart / "xdg" / "latdoctor" / "latdoctor.yaml"
    place.parent.mkdir(parents=True, mode=0o700)
    place.write_text(text)
    return place


def test_the_users_own_file_needs_no_trust(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = own(apart, "targets: {mine: {server: [http://10.0.0.1:1/metrics], admin_token: bot.token}}\n")
    private_file(place.parent / "bot.token", CANARY)
    outcome = run(["targets"])
    assert (outcome.code, outcome.err) == (0, "")
    monkeypatch.chdir(place.parent)
    outcome = run(["targets"])
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("name", [".", "latdoctor.yaml"])
def test_a_warning_where_others_can_write_the_users_own_file(name: str, apart: Path) -> None:
    place = own(apart, "targets: {mine: {log: [app.log]}}\n")
    (place.parent / name).chmod(0o777)
    outcome = run(["targets"])
    assert outcome.code == 0
    assert outcome.err.count("can be written by other users") == 1


# --- files of credentials


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1)])
def test_a_warning_where_others_can_read_credentials(mode: int, warned: int) -> None:
    write_trusted("targets: {a: {log: [app.log], admin_token: bot.token, prometheus_auth: bot.token}}\n")
    Path("bot.token").write_text(CANARY)
    Path("bot.token").chmod(mode)
    outcome = run(["targets"])
    assert outcome.code == 0
    assert outcome.err.count("bot.token: other users can read these credentials. Next: chmod 600 bot.token") == warned


def test_credentials_may_be_in_the_users_folder(apart: Path) -> None:
    own(apart, "")
    private_file(apart / "xdg" / "latdoctor" / "bot.token", CANARY)
    write_trusted(f"targets: {{a: {{log: [app.log], admin_token: {apart}/xdg/latdoctor/bot.token}}}}\n")
    assert run(["targets"]).code == 0


NOT_FILES = [("pipe", "it is a pipe"), ("/dev/zero", "it is a device"), ("folder", "Is a directory"), ("long", "")]


@pytest.mark.parametrize(("name", "said"), NOT_FILES)
@pytest.mark.parametrize(
    "command",
    [
        ["listen", "--listen", "127.0.0.1:0", "--auth-file", "{}"],
        ["lab", "serve", "--admin-token-file", "{}", "--port", "0"],
        ["diagnose", "--prometheus", "http://127.0.0.1:9"],
    ],
    ids=["listen", "lab", "prometheus"],
)
def test_credentials_are_read_from_short_regular_files(
    command: list[str], name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("long").write_text("x" * (1 << 20))
    monkeypatch.setenv("LATDOCTOR_PROMETHEUS_AUTH_FILE", name)
    outcome = run([part.format(name) for part in command])
    assert outcome.code == 2
    assert said in outcome.err or "cannot be read" in outcome.err


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "folder", "long"])
def test_a_configured_token_is_a_short_regular_file(name: str, apart: Path) -> None:
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("long").write_text("x" * (1 << 20))
    write_trusted(f"targets: {{a: {{admin: ['http://127.0.0.1:9'], admin_token: {name}}}}}\n")
    outcome = run(["remediate", "--playbook", "app.batching.token-budget", "--target", "a"])
    assert outcome.code == 2
    assert "http://127.0.0.1:9" not in outcome.err, "it was asked"


def test_a_pipe_as_configuration_is_an_error_at_once(folder: Path) -> None:
    os.mkfifo("latdoctor.yaml")
    with pytest.raises(DefinitionError, match="it is a pipe, not a file"):
        config_file.targets()
