"""Files of several machines together: each machine's GPUs are its own, and what cannot be placed is a gap.

A case of `machines/` has `files`, and what is expected: `subjects` of findings that fired, `unplaced` (the texts of
which a gap says that they do not name their machine), `shown` and `not_shown` on the screen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import run

CASES = sorted((Path(__file__).parent / "machines").glob("*.yaml"))


def name(case: Path) -> str:
    return case.stem


@pytest.fixture(params=CASES, ids=name)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(request.param.read_text(encoding="utf-8"))
    for path, text in loaded["files"].items():
        (tmp_path / "given" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "given" / path).write_text(text)
    return {**loaded, "folder": str(tmp_path / "given")}


def test_each_finding_is_about_the_gpu_of_its_machine(case: Mapping[str, Any]) -> None:
    document = json.loads(run(["diagnose", case["folder"], "-o", "json"]).out)
    fired = {one["id"]: sorted(one["subjects"]) for one in document["checks"] if one["status"] == "fired"}
    assert {finding: fired.get(finding) for finding in case["subjects"]} == case["subjects"]


def test_what_cannot_be_placed_is_a_gap_with_a_code(case: Mapping[str, Any]) -> None:
    document = json.loads(run(["diagnose", case["folder"], "-o", "json"]).out)
    gaps = [one for one in document["gaps"] if one["source"] == "derived" and one["code"] == "ambiguous"]
    assert sorted(one["origin"]["artifact"].rpartition("/")[2] for one in gaps if one["origin"]) == case["unplaced"]


def test_the_screen_names_the_machine_of_a_finding(case: Mapping[str, Any]) -> None:
    out = run(["diagnose", case["folder"]]).out
    assert [text for text in case["shown"] if text not in out] == []
    assert [text for text in case.get("not_shown", ()) if text in out] == []
    assert len(out.splitlines()) <= 24


def test_a_saved_bundle_gives_the_same_machines(case: Mapping[str, Any], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    live = json.loads(run(["diagnose", case["folder"], "--keep", str(kept), "-o", "json"]).out)
    replayed = json.loads(run(["diagnose", str(kept), "-o", "json"]).out)
    assert replayed["checks"] == live["checks"]
    assert replayed["gaps"] == live["gaps"]
