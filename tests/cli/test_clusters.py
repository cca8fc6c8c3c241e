"""Equal names in several clusters and namespaces: counted and named apart where the text says which is which.

A case of `clusters/` has `files`, what the screen shows and does not show, and `unknown`: whether a gap says that it is
not known whether objects are the same, with what is `named` in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import run

CASES = sorted((Path(__file__).parent / "clusters").glob("*.yaml"))


def name(case: Path) -> str:
    return case.stem


@pytest.fixture(params=CASES, ids=name)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(request.param.read_text(encoding="utf-8"))
    (tmp_path / "given").mkdir()
    for path, text in loaded["files"].items():
        (tmp_path / "given" / path).write_text(text)
    return {**loaded, "folder": str(tmp_path / "given")}


def test_objects_are_counted_and_named_by_their_cluster(case: Mapping[str, Any]) -> None:
    out = run(["diagnose", case["folder"]]).out
    assert [text for text in case["shown"] if text not in out] == []
    assert [text for text in case.get("not_shown", ()) if text in out] == []


def test_what_may_be_of_two_clusters_is_a_gap(case: Mapping[str, Any]) -> None:
    document = json.loads(run(["diagnose", case["folder"], "-o", "json"]).out)
    gaps = [gap for gap in document["gaps"] if gap["source"] == "derived" and gap["code"] == "ambiguous"]
    assert bool(gaps) == case["unknown"]
    assert all(name in gap["reason"] for gap in gaps for name in case.get("named", ()))
