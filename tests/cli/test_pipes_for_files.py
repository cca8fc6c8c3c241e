"""A pipe or device in the place of a definition file, configuration or diagnosis is an error, not a wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latdoctor.cli import plan_files
from tests.cli.running import run
from tests.cli.test_piped_sources import piped

CASES = [
    (["rules", "lint", "--rules", "own"], "own/findings/x.yaml"),
    (["rules", "lint", "--rules", "own"], "own/causes/x.yaml"),
    (["rules", "lint", "--rules", "own"], "own/overlays/x.yaml"),
    (["diagnose", "page.prom", "--rules", "own"], "own/overlays/x.yaml"),
    (["playbooks", "lint", "--playbooks", "own"], "own/x.yaml"),
    (["remediate", "--playbook", "x", "--playbooks", "own"], "own/x.yaml"),
    (["sop", "lint", "--sops", "own"], "own/x.yaml"),
    (["remediate", "--plan", "own/x.json", "--server", "http://127.0.0.1:9"], "own/x.json"),
    (["diagnose"], "latdoctor.yaml"),
    (["diagnose"], "xdg/latdoctor/latdoctor.yaml"),
]
SAID = {"pipe": "it is a pipe, not a file", "device": "it is a device, not a file", "folder": "Is a directory"}
FROM = ["remediate", "--from", "found.json", "--server", "http://127.0.0.1:9"]


@pytest.fixture(autouse=True)
def _at(apart: Path) -> None:
    Path("page.prom").write_text("vllm:num_requests_running 3\n")
    for name in ("findings", "causes", "overlays"):
        (Path("own") / name).mkdir(parents=True)
    Path("xdg/latdoctor").mkdir(parents=True)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize(("command", "place"), CASES, ids=[f"{' '.join(words[:2])} {place}" for words, place in CASES])
def test_what_is_no_file_is_refused_at_once(command: list[str], place: str, kind: str) -> None:
    _make(place, kind)
    outcome = run(command)
    assert outcome.code == 2
    assert f"{place}: cannot be read: {SAID[kind]}" in outcome.err


def test_a_configuration_that_links_to_nothing_is_no_absent_one() -> None:
    Path("latdoctor.yaml").symlink_to("removed.yaml")
    outcome = run(["diagnose"])
    assert outcome.code == 2
    assert "latdoctor.yaml: cannot be read: No such file or directory" in outcome.err


def _make(place: str, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        Path(place).symlink_to("/dev/zero")
    else:
        Path(place).mkdir()


@pytest.mark.parametrize("kind", ["device", "folder"])
def test_a_diagnosis_that_is_no_file_is_refused_at_once(kind: str) -> None:
    _make("found.json", kind)
    outcome = run(FROM)
    assert outcome.code == 2
    assert f"found.json: cannot be read: {SAID[kind]}" in outcome.err


def test_a_pipe_without_a_writer_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_files, "PIPE_TIMEOUT", 0.01)
    os.mkfifo("found.json")
    outcome = run(FROM)
    assert outcome.code == 1
    assert "pipe-found.json: no data within 0.01 s" in outcome.err


def test_a_diagnosis_out_of_a_pipe_is_read_to_its_end() -> None:
    with piped(Path("found.json"), "{}") as pipe:
        outcome = run(["remediate", "--from", pipe, "--server", "http://127.0.0.1:9"])
    assert outcome.code == 2
    assert "found.json: neither a diagnosis nor a forecast" in outcome.err


def test_half_of_a_diagnosis_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_files, "PIPE_TIMEOUT", 0.01)
    os.mkfifo("found.json")
    writer = os.open("found.json", os.O_RDWR)  # it stays open: the end of the pipe is never seen
    try:
        os.write(writer, b"{")
        outcome = run(FROM)
    finally:
        os.close(writer)
    assert outcome.code == 1
    assert "pipe-found.json: not read to its end: no more data within 0.01 s" in outcome.err
