"""latdoctor.yaml: targets, their SLOs and baselines, with paths beside the file; and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import pages
from tests.cli.running import checks, diagnosed, run, write_trusted

SETTINGS = """
targets:
  intent:
    metrics: [pages/first.prom, pages/last.prom]
    log: [kern.log]
    slo: {p99: 100ms, error_ratio: 1%}
    baseline: healthy.json
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sources, which is not the one that the command runs in."""
    folder = tmp_path / "home"
    (folder / "pages").mkdir(parents=True)
    (folder / "pages" / "first.prom").write_bytes(pages.triton(81_000, seconds_each=0.2))
    (folder / "pages" / "last.prom").write_bytes(pages.triton(85_000, seconds_each=0.2))
    (folder / "kern.log").write_text("[    1.000000] eth0: link up\n")
    (folder / "latdoctor.yaml").write_text(SETTINGS)
    recorded = ["baseline", "record", "--metrics", str(folder / "pages/first.prom"), "--metrics"]
    assert run([*recorded, str(folder / "pages/last.prom"), "--to", str(folder / "healthy.json")]).code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = "latdoctor.cli.resolve_request.local_pages"
    monkeypatch.setattr(found, lambda: pytest.fail("collected for other sources"))
    return folder


def _is_the_target(said: dict[str, object]) -> None:
    assert said["target"] == "intent"
    assert "p99-over-slo" in checks(said, "fired"), "the SLO was read"
    assert "compute-slower-at-same-batch" in checks(said, "clear"), "the baseline was read"
    assert "gpu-xid" in checks(said, "clear"), "the log was read"


@pytest.mark.parametrize("arguments", [[], ["--target", "intent"]], ids=["the-only-one", "by-name"])
def test_the_configuration_here_is_used(home: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    _is_the_target(diagnosed(*arguments, code=3))


def test_the_users_own_file_is_used_and_its_paths_are_its_own(home: Path, tmp_path: Path) -> None:
    (tmp_path / "xdg").mkdir()
    home.rename(tmp_path / "xdg" / "latdoctor")
    _is_the_target(diagnosed(code=3))


def test_the_file_here_goes_before_the_users(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "xdg" / "latdoctor"
    theirs.mkdir(parents=True)
    (theirs / "latdoctor.yaml").write_text("targets: {other: {log: [nowhere.log]}}\n")
    monkeypatch.chdir(home)
    _is_the_target(diagnosed(code=3))


def test_an_option_goes_before_the_configuration(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert "p99-over-slo" in checks(diagnosed("--slo", "2s", code=4), "clear")


def test_given_sources_go_before_the_configuration(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    said = diagnosed("--log", "kern.log", code=4)
    assert said["target"] == "kern.log"
    assert "p99-over-slo" in checks(said, "not-evaluated")


def test_several_targets_must_be_chosen_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    write_trusted(f"{SETTINGS}  chat: {{log: [kern.log]}}\n")
    outcome = run(["diagnose"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "several targets are configured: chat, intent" in outcome.err
    assert "next: choose one with --target" in outcome.err
    assert diagnosed("--target", "chat", code=4)["target"] == "chat"


def test_an_unknown_target_is_told_the_known_ones(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    outcome = run(["diagnose", "--target", "inten"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "no target 'inten' is configured (configured: intent)" in outcome.err


def test_every_error_of_the_file_is_told_with_its_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    write_trusted(
        "targets:\n  a:\n    slo: {p99: 0s, p98: 1s}\n    server: http://127.0.0.1/\n    nvml: maybe\n"
        "    colour: red\ntragets: {}\n"
    )
    for command in ("diagnose", "targets", "collect --to look"):
        outcome = run(command.split())
        assert (outcome.code, outcome.out) == (2, "")
        for line in (3, 4, 5, 6, 7):
            assert f"latdoctor.yaml:{line}: " in outcome.err
        assert "latdoctor: 6 problems found\n  next: correct latdoctor.yaml\n" in outcome.err


def test_a_file_that_is_no_yaml_is_told_with_its_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    write_trusted("targets:\n  a: [\n")
    outcome = run(["diagnose"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "latdoctor.yaml:" in outcome.err
    assert "not valid YAML" in outcome.err


def test_targets_lists_what_is_configured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    outcome = run(["targets"])
    assert outcome.code == 0
    assert "intent" in outcome.out
    assert "pages/first.prom" in outcome.out
    assert " Next  latdoctor diagnose --target intent\n" in outcome.out


def test_an_unknown_key_beside_the_targets_is_said_and_keeps_nobody_from_looking(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    with Path("latdoctor.yaml").open("a", encoding="utf-8") as file:
        file.write("notfy: {}\n")
    outcome = run(["targets"])
    assert outcome.code == 0, outcome.err
    assert "unknown key 'notfy': ignored" in outcome.err


PAGES = Path(__file__).parent.parent / "dialects" / "pages" / "vllm"


@pytest.mark.parametrize(("line", "status"), [("", "not-evaluated"), ("    gpu: none\n", "not-applicable")])
def test_checks_of_gpus_do_not_apply_where_none_is_configured(
    line: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pages = ", ".join(str(PAGES / name) for name in ("first.prom", "last.prom"))
    write_trusted(f"targets:\n  small:\n    metrics: [{pages}]\n{line}")
    answer = diagnosed("--target", "small")
    found = {one["id"]: one["status"] for one in answer["checks"]}
    assert {found[name] for name in ("gpu-clocks-cut", "gpu-xid", "gpu-memory-full")} == {status}
    # What is no matter of GPUs is asked for as before.
    assert found["cpu-pressure"] == "not-evaluated"
