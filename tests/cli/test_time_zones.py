"""Logs with and without zones together: one timeline where they show the zone, else a gap that says what is assumed.

A case of `time_zones/` has `files`, the `window` of the evidence, and for each log whose times needed an assumption the
code of the gap that says so.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import run

CODES = ("ambiguous", "inconsistent", "unzoned")
CASES = sorted((Path(__file__).parent / "time_zones").glob("*.yaml"))


def name(case: Path) -> str:
    return case.stem


def unix(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


@pytest.fixture(params=CASES, ids=name)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(request.param.read_text(encoding="utf-8"))
    (tmp_path / "given").mkdir()
    for path, text in loaded["files"].items():
        (tmp_path / "given" / path).write_text(text)
    document = json.loads(run(["diagnose", str(tmp_path / "given"), "-o", "json"]).out)
    return {**loaded, "document": document}


def test_the_evidence_is_on_one_timeline(case: Mapping[str, Any]) -> None:
    window = case["document"]["evidence_window"]
    assert [window["start"], window["end"]] == [unix(moment) for moment in case["window"]]


def test_what_is_assumed_of_the_zones_is_a_gap(case: Mapping[str, Any]) -> None:
    gaps = [gap for gap in case["document"]["gaps"] if gap["code"] in CODES and gap["origin"]]
    found = {gap["origin"]["artifact"].rpartition("/")[2]: gap for gap in gaps}
    assert {log: gap["code"] for log, gap in found.items()} == case["gaps"]
    assert all(zone in found[log]["reason"] for log, zone in case.get("read_as", {}).items())


def test_the_screen_says_what_is_taken_as_utc(case: Mapping[str, Any], tmp_path: Path) -> None:
    lines = run(["diagnose", str(tmp_path / "given")]).out.splitlines()
    doubted = [log for log, code in case["gaps"].items() if code == "unzoned"]
    assert [line for line in lines if "taken as UTC" in line] == [
        line for log in doubted for line in lines if line.startswith(f" In doubt  {log}: ")
    ]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
