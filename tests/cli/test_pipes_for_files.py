"""A pipe or device in the place of a definition file is an error, not a wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.running import run

CASES = [
    (["rules", "lint", "--rules", "own"], "own/findings/x.yaml"),
    (["rules", "lint", "--rules", "own"], "own/causes/x.yaml"),
    (["rules", "lint", "--rules", "own"], "own/overlays/x.yaml"),
    (["diagnose", "page.prom", "--rules", "own"], "own/overlays/x.yaml"),
    (["playbooks", "lint", "--playbooks", "own"], "own/x.yaml"),
    (["remediate", "--playbook", "x", "--playbooks", "own"], "own/x.yaml"),
    (["sop", "lint", "--sops", "own"], "own/x.yaml"),
    (["remediate", "--plan", "own/x.json", "--server", "http://127.0.0.1:9"], "own/x.json"),
]


@pytest.fixture(autouse=True)
def _at(apart: Path) -> None:
    Path("page.prom").write_text("vllm:num_requests_running 3\n")
    for name in ("findings", "causes", "overlays"):
        (Path("own") / name).mkdir(parents=True)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize(("command", "place"), CASES, ids=[f"{' '.join(words[:2])} {place}" for words, place in CASES])
def test_what_is_no_file_is_refused_at_once(command: list[str], place: str, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        Path(place).symlink_to("/dev/zero")
    else:
        Path(place).mkdir()
    outcome = run(command)
    assert outcome.code == 2
    said = {"pipe": "it is a pipe, not a file", "device": "it is a device, not a file", "folder": "Is a directory"}
    assert f"{place}: cannot be read: {said[kind]}" in outcome.err
