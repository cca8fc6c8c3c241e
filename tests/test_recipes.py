"""The examples of docs/contributing.md are read by the code that reads the real thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from latdoctor import resources
from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.conditions.parser import parse_condition
from latdoctor.diagnosis import rule_loader
from latdoctor.dialects.loader import read_dialects
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages, recognise_dialects
from latdoctor.errors import Problem
from latdoctor.evidence.catalogue import read_catalogue
from latdoctor.strict_yaml import Node
from tests.cli.running import run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")


def examples(heading: str) -> list[str]:
    """The code blocks between `heading` and the next one."""
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```\w*\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL) if section else []
    assert found, f"docs/contributing.md has no example under {heading!r}"
    return found


def example(heading: str) -> str:
    return examples(heading)[0]


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
    (finding,) = rule_loader.read([tmp_path]).findings
    assert finding.area == "area"


def test_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three files of the page, taken literally, pass the commands of the page beside the shipped rules."""
    monkeypatch.chdir(tmp_path)
    for folder, name, heading in (
        ("findings", "tokenizer", "Its findings"),
        ("causes", "app.queue.unbounded", "The cause itself"),
        ("cases", "app.queue.unbounded", "Its cases"),
    ):
        Path("own", folder).mkdir(parents=True)
        Path("own", folder, f"{name}.yaml").write_text(example(heading), encoding="utf-8")
    commands = re.findall(r"^\$ latdoctor (.*)$", example("A cause"), re.MULTILINE)
    assert [run(command.split()).code for command in commands] == [0, 0]


def test_a_cause_with_one_finding_is_told_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("findings", "causes"):
        Path("own", folder).mkdir(parents=True)
    Path("own/findings/tokenizer.yaml").write_text(example("Its findings"), encoding="utf-8")
    cause = example("The cause itself").replace(", oldest-waits-long: 90%", "")
    Path("own/causes/app.queue.unbounded.yaml").write_text(cause, encoding="utf-8")
    outcome = run(["rules", "lint", "--rules", "own"])
    assert outcome.code == 2
    told = re.search(r"reaches only (\d+)% .* let it expect one more specific finding .* reach (\d+)%", outcome.err)
    assert told, outcome.err
    # The figures of the page.
    assert int(told[1]) == pytest.approx(36, abs=2)
    assert int(told[2]) == pytest.approx(96, abs=2)


def test_dialect_and_its_pages(tmp_path: Path) -> None:
    path = tmp_path / "example-server.yaml"
    path.write_text(example("A server dialect"), encoding="utf-8")
    (dialect,) = read_dialects([path])
    first, last, expected = examples("Its pages")
    pages = [parse(page.encode(), "page") for page in (first, last)]
    assert [one.id for one in recognise_dialects([dialect], pages)] == ["example-server"]
    scrapes = [ScrapedPage(page, "page", 1000.0 + 10 * number) for number, page in enumerate(pages)]
    seen = {"lone": read_pages(dialect, scrapes[:1], "server/x"), "window": read_pages(dialect, scrapes, "server/x")}
    for line in expected.splitlines():
        which, signal, subject, value = line.split()
        evidence = seen[which]
        found = [str(one.value) for one in evidence.readings if (one.signal, one.subject) == (signal, subject)]
        found += [
            f"{one.total:g}/{','.join(f'{bucket.count:g}' for bucket in one.buckets)}"
            for one in evidence.distributions
            if (one.signal, one.subject) == (signal, subject)
        ]
        assert (found or ["none"]) in ([value], [f"{value}.0"]), line


def test_limits_of_a_site(tmp_path: Path) -> None:
    (tmp_path / "overlays").mkdir()
    (tmp_path / "overlays" / "hall.yaml").write_text(example("Limits of your site"), encoding="utf-8")
    rules = rule_loader.read([resources.folder("rules"), tmp_path])
    assert [limit.text for limit in rules.finding["gpu-hot"].site] == ["gpu.temperature > 80C"]
    assert rules.finding["kernels-tiny"].disabled
    assert rules.cause["app.load.burst"].disabled


def test_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the page, taken literally, passes the commands of the page beside the shipped playbooks."""
    monkeypatch.chdir(tmp_path)
    commands, text = examples("A playbook")
    Path("own").mkdir()
    Path("own/app.batching.tighter.yaml").write_text(text, encoding="utf-8")
    asked = re.findall(r"^\$ latdoctor (.*)$", commands, re.MULTILINE)
    assert [run(command.split()).code for command in asked] == [0, 0]
