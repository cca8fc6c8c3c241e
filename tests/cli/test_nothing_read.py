"""A look that brought nothing is an error with its reasons, never an answer and never an empty bundle."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import pages
from tests.cli.running import diagnosed, run
from tests.collectors.torch_trace.synthetic_traces import document, launched

BUNDLE = str(Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal")
QUIET = "[    1.000000] eth0: link up\n"


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    Path("quiet.log").write_text(QUIET)
    Path("first.prom").write_bytes(pages.triton(81_000))
    Path("last.prom").write_bytes(pages.triton(85_000))


@pytest.fixture
def dead() -> Iterator[str]:
    """A server on this machine that refuses: its port is bound, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/metrics"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server on this machine that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"


def test_a_server_that_does_not_answer_is_critical_at_once(dead: str, silent: str) -> None:
    """Not only after the window, during which this machine would be sampled."""
    for url, why, cause in (
        (dead, "cannot be reached (no process listens on that port)", "app.engine.crashed"),
        (silent, "did not answer within 5 s", "app.engine.stalled"),
    ):
        started = time.monotonic()
        outcome = run(["diagnose", "--server", url, "--window", "2m", "-o", "json"])
        assert time.monotonic() - started < 30
        assert outcome.code == 3
        assert f"{url} {why}" in outcome.err
        said = json.loads(outcome.out)
        assert said["verdict"]["level"] == "critical"
        assert said["answer"]["causes"] == [cause]


def test_an_outage_is_replayed_from_its_bundle(dead: str) -> None:
    live = ["--server", dead, "--window", "0.1s"]
    assert run(["diagnose", *live, "--keep", "look"]).code == 3
    assert diagnosed("look", code=3)["answer"]["causes"] == ["app.engine.crashed"]


def test_an_address_that_does_not_exist_is_no_outage() -> None:
    outcome = run(["diagnose", "--server", "http://no-such-host.invalid:8000", "--window", "0.1s"])
    assert (outcome.code, outcome.out) == (1, "")


COMMANDS = pytest.mark.parametrize(
    ("command", "otherwise"),
    [
        ("baseline record --to look", "and nothing was recorded"),
        ("baseline record --to look.tar.zst", "and nothing was recorded"),
    ],
)


@COMMANDS
def test_a_dead_server_is_an_error_although_this_machine_answers(command: str, otherwise: str, dead: str) -> None:
    outcome = run([*command.split(), "--server", dead, "--window", "0.1s"])
    assert (outcome.code, outcome.out) == (1, "")
    assert f"could not be read: prometheus: {dead} cannot be reached" in outcome.err
    assert f"latdoctor: no requested source could be read, {otherwise}\n" in outcome.err
    assert "  next: check that the server is up" in outcome.err
    assert not Path("look").exists()
    assert not Path("look.tar.zst").exists()


@pytest.mark.parametrize(
    ("command", "otherwise"),
    [
        *COMMANDS.args[1],
        ("diagnose", "so there is nothing to diagnose"),
        ("diagnose --keep look", "and nothing was saved"),
        ("collect --to look", "and nothing was saved"),
        ("collect --to look.tar.zst", "and nothing was saved"),
    ],
)
def test_every_missing_source_is_named(command: str, otherwise: str) -> None:
    outcome = run([*command.split(), "--metrics", "a.prom", "--trace", "b.json", "--log", "c.log"])
    assert (outcome.code, outcome.out) == (1, "")
    assert [line for line in outcome.err.splitlines() if line.startswith("could not be read: ")] == [
        "could not be read: prometheus: a.prom: there is no such file",
        "could not be read: torch_trace: b.json: does not exist",
        "could not be read: logs: c.log: does not exist",
    ]
    assert otherwise in outcome.err


@pytest.mark.parametrize(("option", "name"), [("--trace", "words.json"), ("--metrics", "web.prom"), ("--log", "none")])
def test_a_file_without_sense_alone_is_nothing_to_diagnose(option: str, name: str) -> None:
    Path(name).write_bytes(b"" if option == "--log" else b"<html>502</html>")
    outcome = run(["diagnose", option, name])
    assert (outcome.code, outcome.out) == (1, "")
    assert name in outcome.err


def ranks(*damaged: int) -> str:
    """A folder of four ranks of one run, of which some are cut off."""
    Path("ranks").mkdir()
    for rank in range(4):
        content = document(launched(60))
        Path(f"ranks/rank{rank}.json").write_bytes(content[:-200] if rank in damaged else content)
    return "ranks"


def test_a_damaged_rank_does_not_throw_away_the_others() -> None:
    said = diagnosed("--trace", ranks(2))
    (gap,) = (gap for gap in said["gaps"] if "cut off" in gap["reason"])
    assert (gap["subject"], gap["signals"][:1]) == ("trace/rank2", ["trace.has_gpu"])
    assert "ranks/rank2.json" in gap["reason"]
    of_ranks = {subject for check in said["checks"] for subject in check["subjects"]}
    assert {"trace/rank0", "trace/rank1", "trace/rank3"} <= of_ranks
    assert run(["collect", "--trace", "ranks", "--to", "look"]).code == 0
    assert [gap for gap in diagnosed("look")["gaps"] if "rank2" in gap["reason"]]


def test_where_every_rank_is_damaged_there_is_nothing_to_diagnose() -> None:
    outcome = run(["diagnose", "--trace", ranks(0, 1, 2, 3)])
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("cut off") == 4


def test_a_page_of_an_unknown_exporter_was_read() -> None:
    Path("foreign.prom").write_text("foo_total 3\n")
    assert diagnosed("--metrics", "foreign.prom", code=4)["verdict"]["level"] == "inconclusive"


def test_one_source_is_enough_for_an_answer(dead: str) -> None:
    said = diagnosed("--server", dead, "--window", "0.1s", "--log", "quiet.log", code=3)
    assert any(dead in gap["reason"] for gap in said["gaps"])


def test_a_bundle_of_a_part_tells_what_is_missing(dead: str) -> None:
    live = ["--server", dead, "--window", "0.1s", "--no-nvml"]
    outcome = run(["collect", "--to", "look", *live, "--log", "quiet.log"])
    assert outcome.code == 0
    assert f"could not be read: prometheus: {dead} cannot be reached" in outcome.err
    assert outcome.out.endswith("artifacts, 1 gap. Next: latdoctor diagnose look\n")


def test_one_artifact_is_counted_as_one() -> None:
    assert run(["collect", "--to", "look", "--log", "quiet.log"]).out == (
        "1 artifact, 0 gaps. Next: latdoctor diagnose look\n"
    )


@pytest.mark.parametrize(("option", "name"), [("--metrics", "first.prom"), ("--log", "quiet.log")])
def test_the_command_line_leaves_permissions_to_the_readers(
    option: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.access` is what the command line's own check would ask; it stopped everything where one file refused."""
    import os

    real = os.access
    monkeypatch.setattr("os.access", lambda path, mode, **other: mode != os.R_OK and real(path, mode, **other))
    assert run(["diagnose", option, name, "--log", "quiet.log"]).code == 4
    assert run(["diagnose", BUNDLE]).code == 3


def test_a_baseline_needs_every_source_that_was_asked_for(dead: str) -> None:
    live = ["--server", dead, "--window", "0.1s", "--metrics", "first.prom"]
    outcome = run(["baseline", "record", "--to", "b.json", *live])
    assert (outcome.code, outcome.out) == (1, "")
    assert f"{dead} cannot be reached" in outcome.err
    assert "1 of 2 requested sources could not be read, and nothing was recorded" in outcome.err
    assert "or leave that source out" in outcome.err
    assert not Path("b.json").exists()


def test_a_baseline_is_not_overwritten_unasked() -> None:
    record = ["baseline", "record", "--to", "b.json", "--metrics", "first.prom", "--metrics", "last.prom"]
    Path("b.json").write_text("precious")
    refused = run(record)
    assert (refused.code, refused.out) == (2, "")
    assert "b.json: already exists" in refused.err
    assert "--force" in refused.err
    assert Path("b.json").read_text() == "precious"
    assert run([*record, "--force"]).code == 0
    assert json.loads(Path("b.json").read_text())["values"]
    assert not list(Path().glob(".latdoctor-*"))


def test_a_baseline_never_replaces_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(["baseline", "record", BUNDLE, "--to", "/dev/null", "--force"])
    assert outcome.code == 2
    assert "/dev/null: is not a regular file" in outcome.err


def test_what_a_baseline_lacks_is_named() -> None:
    """Forty requests tell no P99; a later `1.5 x baseline` would look for it in vain."""
    for name, requests in (("first.prom", 0), ("last.prom", 40)):
        lines = [
            f'vllm:e2e_request_latency_seconds_bucket{{model_name="a",le="{le}"}} {requests}' for le in (1, "+Inf")
        ]
        lines += [f'vllm:e2e_request_latency_seconds_count{{model_name="a"}} {requests}']
        lines += [f'vllm:e2e_request_latency_seconds_sum{{model_name="a"}} {requests / 2}']
        lines += ['vllm:num_requests_running{model_name="a"} 1']
        Path(name).write_text("\n".join(lines) + "\n")
    outcome = run(["baseline", "record", "--to", "b.json", "--metrics", "first.prom", "--metrics", "last.prom"])
    assert outcome.code == 0, outcome.err
    lines = [line for line in outcome.err.splitlines() if "latency.p99" in line]
    assert all(line.startswith("left out: ") for line in lines)
    assert any("40" in line for line in lines), "it says why"


SETTINGS = "targets: {shop: {metrics: [first.prom, last.prom], baseline: healthy.json}}\n"


def test_a_configured_baseline_can_be_recorded_before_it_exists() -> None:
    Path("latdoctor.yaml").write_text(SETTINGS)
    missing = run(["diagnose"])
    assert (missing.code, missing.out) == (2, "")
    assert "healthy.json: the baseline cannot be read: No such file or directory" in missing.err
    assert "latdoctor baseline record --to healthy.json" in missing.err
    assert run(["collect", "--to", "look"]).code == 0, "evidence can be kept before there is a baseline"
    assert run(["baseline", "record", "--to", "healthy.json"]).code == 0
    assert run(["diagnose"]).code in (0, 3, 4)


def test_a_damaged_baseline_can_be_recorded_anew() -> None:
    Path("latdoctor.yaml").write_text(SETTINGS)
    Path("healthy.json").write_text("{")
    assert run(["diagnose"]).code == 2
    assert run(["baseline", "record", "--to", "healthy.json", "--force"]).code == 0


def test_a_baseline_that_lacks_a_value_is_not_called_absent() -> None:
    Path("b.json").write_text(
        json.dumps(
            {
                "schema_version": "1",
                "target": "shop",
                "recorded_at": "2026-01-01T00:00:00+00:00",
                "values": [{"signal": "queue.depth", "subject": "model/intent", "value": 1.0}],
            }
        )
    )
    sources = ["--metrics", "first.prom", "--metrics", "last.prom"]
    with_one = {check["id"]: check["reason"] for check in diagnosed(*sources, "--baseline", "b.json")["checks"]}
    assert re.search(r"the baseline has no .*compute\.time\.mean", with_one["compute-slower-at-same-batch"])
    assert not [reason for reason in with_one.values() if "no baseline given" in reason]
    without = {check["id"]: check["reason"] for check in diagnosed(*sources)["checks"]}
    assert "no baseline given" in without["compute-slower-at-same-batch"]
