"""`--prometheus` from the command line: what is diagnosed, what is kept, how times and credentials are given."""

from __future__ import annotations

import datetime
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from latdoctor.cli.time_args import moment
from latdoctor.collectors.promql.client import AUTH, AUTH_FILE, CA_FILE
from latdoctor.errors import UsageError
from tests.cli.running import checks, diagnosed, private_file, run, write_trusted
from tests.collectors.promql.history import END, HOUR, openmetrics
from tests.collectors.promql.real import prometheus

CANARY = "c4n4ry"
# bcrypt of c4n4ry at its lowest cost, for Prometheus' own list of users.
HASHED = "$2b$04$abcdefghijklmnopqrstuux376HvDKkw1egJHbPB4rxB0zyJtXVqq"
WHEN = [
    *("--since", datetime.datetime.fromtimestamp(END - HOUR, datetime.UTC).isoformat()),
    *("--until", datetime.datetime.fromtimestamp(END, datetime.UTC).isoformat()),
]


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A Prometheus behind TLS that asks for a password, and the file of its authority."""
    folder = tmp_path_factory.mktemp("guarded")
    key, authority = folder / "key.pem", folder / "ca.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(authority)]
    subprocess.run(made, check=True, capture_output=True)
    web = f"tls_server_config: {{cert_file: {authority}, key_file: {key}}}\nbasic_auth_users: {{me: '{HASHED}'}}\n"
    (folder / "web.yml").write_text(web)
    with prometheus(folder, openmetrics(), f"--web.config.file={folder / 'web.yml'}") as url:
        yield url.replace("http://", "https://"), authority


@pytest.fixture(scope="module")
def open_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus"), openmetrics()) as url:
        yield url


def test_a_diagnosis_of_a_time_that_has_passed_and_the_same_from_its_bundle(open_one: str) -> None:
    given = ["--prometheus", open_one, "--select", '{job=~"vllm|dcgm"}', *WHEN, "--slo", "1s"]
    live = diagnosed(*given, "--keep", "look.tar.zst", code=3)
    assert live["verdict"]["level"] == "critical"
    assert "p99-over-slo" in checks(live, "fired")
    replayed = diagnosed("look.tar.zst", code=3)
    for stamp in ("run_id", "created_at", "generated_at"):
        live.pop(stamp, None), replayed.pop(stamp, None)
    assert {key for key in live if live[key] != replayed[key]} <= {"tool"}


def test_the_target_is_the_service_and_not_the_address_of_the_prometheus(open_one: str) -> None:
    given = ["diagnose", "--prometheus", open_one, "--select", '{job=~"vllm|dcgm"}', *WHEN, "--slo", "1s"]
    place = open_one.removeprefix("http://")
    answer = run(given).out
    assert "\norg/llm (vllm, 3 instances) · 5 min to " in answer
    assert place not in answer
    assert diagnosed(*given[1:])["service"] == "org/llm (vllm, 3 instances)"
    one = ["--prometheus", open_one, "--select", '{instance="b:8000"}', *WHEN]
    assert diagnosed(*one)["service"] == "org/llm (vllm, b:8000)"
    assert diagnosed(*one, "--target", "shop")["service"] == "shop"


def test_the_query_of_each_number_gives_that_number(open_one: str) -> None:
    given = ["--prometheus", open_one, "--select", '{job=~"vllm|dcgm"}', *WHEN, "--slo", "1s"]
    document = diagnosed(*given)
    atoms = {(atom["signal"], atom["subject"]): atom for check in document["checks"] for atom in check["atoms"]}
    queries = {(one["signal"], one["subject"]): one for one in document["queries"]}
    assert {"latency.p99", "error.ratio", "gpu.temperature"} <= {signal for signal, _ in queries}
    for key, query in queries.items():
        reply = httpx.get(f"{open_one}/api/v1/query", params={"query": query["expression"], "time": query["at"]})
        labels = {"gpu": key[1].partition("/")[2].partition("@")[0]} if key[1].startswith("gpu/") else {}
        series = [one for one in reply.json()["data"]["result"] if labels.items() <= one["metric"].items()]
        assert len(series) == 1, query
        assert float(series[0]["value"][1]) == pytest.approx(atoms[key]["value"], rel=0.1, abs=0.01), query
    printed = run(["diagnose", *given, "-v"]).out
    assert "PromQL, to paste into Prometheus\n" in printed
    assert f"    {document['queries'][0]['expression']}\n" in printed


def test_a_guarded_server_is_read_with_what_the_environment_names(
    guarded: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, authority = guarded
    refused = run(["diagnose", "--prometheus", url, *WHEN])
    assert (refused.code, "certificate" in refused.err.lower()) == (1, True), refused.err
    monkeypatch.setenv(CA_FILE, str(authority))
    refused = run(["diagnose", "--prometheus", url, *WHEN])
    assert (refused.code, "status 401" in refused.err) == (1, True), refused.err
    (tmp_path / "credentials").write_text(f"Basic me:{CANARY}\n")
    monkeypatch.setenv(AUTH_FILE, str(tmp_path / "credentials"))
    outcome = run(["diagnose", "--prometheus", url, *WHEN, "--slo", "1s", "-v", "--keep", "look"])
    assert outcome.code == 3, outcome.err
    monkeypatch.delenv(AUTH_FILE)
    monkeypatch.setenv(AUTH, "Bearer " + CANARY)
    wrong = run(["diagnose", "--prometheus", url, *WHEN])
    assert CANARY not in outcome.out + outcome.err + wrong.out + wrong.err
    kept = [path for path in Path("look").rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if CANARY.encode() in path.read_bytes()] == []


def test_a_configured_server_and_its_credentials(guarded: tuple[str, Path]) -> None:
    url, authority = guarded
    private_file("secret", f"Basic me:{CANARY}")
    write_trusted(
        f"targets:\n  shop:\n    prometheus: {url}\n    select: '{{job=\"vllm\"}}'\n"
        f"    prometheus_auth: secret\n    prometheus_ca: {authority}\n"
    )
    document = diagnosed(*WHEN, "--target", "shop")
    assert {row["collector"]: row["status"] for row in document["coverage"]}["promql"] == "partly"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prometheus", f"http://me:{CANARY}@h:9090"], "user or password"),
        (["--prometheus", "h:9090", "--select", "up or 1"], "a selector is written"),
        (["--prometheus", "h:9090", "--since", "soon"], "is not a time"),
        (["--prometheus", "h:9090", "--since", "1s"], "shorter than 10 s"),
        (["--prometheus", "h:9090", "--until", "2999-01-01T00:00:00Z"], "is in the future"),
        (["--prometheus", ""], "has an empty value"),
        (["--prometheus", "h:9090", "--since", "0001-01-01T00:00:00Z"], "longer than 90 days"),
        (["--since", "2h", "--trace", "x"], "is for --prometheus URL and --log FILE"),
        (["--select", "up", "--log", "x"], "is for --prometheus"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    outcome = run(["diagnose", *arguments])
    assert outcome.code == 2, outcome.err
    assert said in outcome.err
    assert CANARY not in outcome.err


def test_a_bundle_was_looked_at_already() -> None:
    outcome = run(["diagnose", "look", "--since", "2h"])
    assert outcome.code == 2
    assert "--since is for collecting" in outcome.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", 1_795_000_000 - 7200),
        ("90s", 1_795_000_000 - 90),
        ("2026-11-18T10:06:40Z", 1_794_996_400),
        ("2026-11-18T11:06:40+01:00", 1_794_996_400),
        ("2026-11-18 10:06:40", 1_794_996_400),
        ("10:06", 1_794_996_360),
        ("11:07", 1_794_996_360 + 3660 - 86400),  # later than it is now: yesterday
        ("11:06:40", 1_795_000_000),
    ],
)
def test_a_moment(text: str, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert moment(text, 1_795_000_000.0, "--since") == expected


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "99999-01-01", "-5min", "2026-13-01T00:00:00Z"])
def test_no_moment(text: str) -> None:
    with pytest.raises(UsageError):
        moment(text, 1_795_000_000.0, "--since")
