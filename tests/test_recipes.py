"""The examples of docs/contributing.md are read by the code that reads the real thing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from latdoctor.diagnosis import cases, rule_files
from latdoctor.dialects.loader import read_dialects
from latdoctor.errors import Problem
from latdoctor.evidence.condition_text import parse_condition
from latdoctor.evidence.signals import read_catalogue
from latdoctor.yamlfile import Node

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")


def example(heading: str) -> str:
    """The first code block below `heading`."""
    found = re.search(rf"^#+ {re.escape(heading)}\n.*?^```\w*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/contributing.md has no example under {heading!r}"
    return found[1]


CONDITIONS = [text for line in example("Conditions").splitlines() for text in re.split(r"\s{2,}", line.strip())]


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions(text: str) -> None:
    problems: list[Problem] = []
    assert parse_condition(Node(text, "contributing.md"), problems) is not None
    assert problems == []


def test_signal(tmp_path: Path) -> None:
    (tmp_path / "area.yaml").write_text(example("A signal"), encoding="utf-8")
    assert len(read_catalogue(tmp_path)) == 1


def test_finding(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "area.yaml").write_text(example("A finding"), encoding="utf-8")
    (finding,) = rule_files.read([tmp_path]).findings
    assert finding.area == "area"


def test_cause_and_its_case(tmp_path: Path) -> None:
    name = "framework.launch.bound"
    shutil.copytree(ROOT / "rules" / "findings", tmp_path / "findings")
    cause = re.sub(r">- +#.*", "x", example("A cause")).replace("[…]", "[x]")
    for folder in ("causes", "cases"):
        (tmp_path / folder).mkdir()
    (tmp_path / "causes" / f"{name}.yaml").write_text(cause, encoding="utf-8")
    # The page shows one of the four cases that every cause has.
    others = [f"  {kind}:\n    expect: {{named: []}}\n" for kind in cases.KINDS if kind != "fires"]
    (tmp_path / "cases" / f"{name}.yaml").write_text("".join([example("Its cases"), *others]), encoding="utf-8")
    rules = rule_files.read([tmp_path])
    (fires,) = [case for case in cases.read_cases([tmp_path / "cases"], rules) if case.name == "fires"]
    assert cases.run(fires, rules).failures == ()


def test_dialect(tmp_path: Path) -> None:
    path = tmp_path / "example-server.yaml"
    path.write_text(example("A server dialect"), encoding="utf-8")
    (dialect,) = read_dialects([path])
    assert "queue.depth" in dialect.signals
