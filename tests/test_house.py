"""Rules of the house that no tool checks: sizes, explicit lists, nothing of one machine in the repository."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor import collectors as collect
from latdoctor.collectors.base import Collector, SourceReader
from latdoctor.evidence.catalogue import catalogue

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "latdoctor").rglob("*.py"))

# A module is one idea; the aim of a function is 50 lines.
MODULE_LINES = 400
FUNCTION_LINES = 60

# Loaded where they are used, so that `latdoctor --help` answers at once.
HEAVY = (
    "numpy",
    "httpx",
    "prometheus_client",
    "pynvml",
    "diptest",
    "zstandard",
    "torch",
    "pandas",
    "kubernetes",
    "jinja2",
)
# What every command loads, and what every look loads before it reads anything.
START = ("latdoctor.cli.main", "latdoctor.collectors", "latdoctor.detectors", "latdoctor.dialects", "latdoctor.report")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MODULE_LINES
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert {function: length for function, length in lengths.items() if length > FUNCTION_LINES} == {}


def collectors() -> dict[str, Collector]:
    """The collector of every package of `collectors/`."""
    names = [info.name for info in pkgutil.walk_packages(collect.__path__, "latdoctor.collectors.")]
    modules = [importlib.import_module(module) for module in names]
    return {module.__name__: module.COLLECTOR for module in modules if hasattr(module, "COLLECTOR")}


def test_every_collector_is_listed_once() -> None:
    assert sorted(collector.name for collector in collect.COLLECTORS) == sorted(
        found.name for found in collectors().values()
    )
    assert all(isinstance(collector.reader(), SourceReader) for collector in collect.COLLECTORS)


def test_collectors_provide_only_catalogued_signals() -> None:
    assert collect.COLLECTORS
    unknown = {collector.name: sorted(collector.provides - catalogue().keys()) for collector in collect.COLLECTORS}
    assert {which: signals for which, signals in unknown.items() if signals} == {}


def test_heavy_packages_are_loaded_only_where_they_are_used() -> None:
    code = f"import sys, importlib\nfor m in {START}: importlib.import_module(m)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "latdoctor.cli.main" in loaded
    assert [package for package in HEAVY if package in loaded] == []


# Places that exist on one machine only, and where packages are fetched from: that is the reader's own business.
FOREIGN = re.compile(
    r"(?<![\w.~-])/(?:work|root|home/\w+|opt/(?:pypi|wheels)[\w-]*)/"
    r"|/tmp/(?:tmp|bash|pytest-of|claude)\w*"
    r"|\b(?:pypi\.org|files\.pythonhosted\.org|registry\.npmjs\.org)\b"
    r"|--(?:extra-)?index-url|--find-links"
)
PRUNED = {"__pycache__", "build", "dist", "node_modules"}
HIDDEN_BUT_OURS = {".ci"}


def repository_files() -> Iterator[Path]:
    """Every file below the root but for environments, caches and the history."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [x for x in folders if x not in PRUNED and (not x.startswith(".") or x in HIDDEN_BUT_OURS)]
        yield from (Path(folder) / file for file in files)


def test_nothing_of_one_machine_stands_in_the_repository() -> None:
    told = []
    for path in repository_files():
        if path == Path(__file__):
            continue
        found = FOREIGN.search(path.read_bytes().decode("utf-8", "replace"))
        if found:
            told.append(f"{name(path)}: {found[0]}")
    assert told == []


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("see /work/main/x", True),
        ("/root/.cache", True),
        ("--extra-index-url=x", True),
        ("../shared/data", False),
        ("net/work/load", False),
        ("https://example.com/work/", False),
        ("/tmp/bundle", False),
    ],
)
def test_what_counts_as_one_machines_own(text: str, foreign: bool) -> None:
    assert bool(FOREIGN.search(text)) is foreign


def pins(path: Path) -> set[str]:
    """The pinned requirements of a lock file; every one must carry hashes."""
    entries = path.read_text().replace("\\\n", " ").splitlines()
    locked = [entry.partition("--hash=sha256:") for entry in entries if not entry.startswith("#")]
    assert all("==" in requirement and hashes for requirement, _, hashes in locked)
    return {requirement.strip() for requirement, _, _ in locked}


def test_what_is_checked_is_what_runs() -> None:
    base = pins(ROOT / "requirements" / "base.txt")
    assert base
    assert base <= pins(ROOT / "requirements" / "dev.txt")
