"""Rules of the house that no tool checks: sizes, explicit lists, nothing of one machine in the repository."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
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
    "re2",
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


# Packages that the answer to a saved bundle of metrics pages does without.
UNUSED_BY_DIAGNOSE = (
    *(package for package in HEAVY if package not in ("numpy", "diptest", "zstandard", "re2")),
    "asyncio", "http.client", "jinja2", "sqlite3", "ssl",
    "latdoctor.evaluation", "latdoctor.incident", "latdoctor.lab", "latdoctor.load",
    "latdoctor.notify.journaled_delivery", "latdoctor.remediation.actions", "latdoctor.report.html",
)  # fmt: skip
READ_BY_DIAGNOSE = {"host", "prometheus"}  # the kinds of artifacts in that bundle


def test_an_answer_imports_only_what_it_uses(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "sys.argv = ['latdoctor', 'diagnose', 'fixtures/incidents/promo-rush.tar.zst', '--fail-on', 'never']\n"
        "from latdoctor.cli.main import main\nmain()"
    )
    environment = {**os.environ, "LATDOCTOR_STATE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CRITICAL")
    loaded = done.stderr.split()
    assert [package for package in UNUSED_BY_DIAGNOSE if package in loaded] == []
    parsers = [name.split(".")[2] for name in loaded if re.fullmatch(r"latdoctor\.collectors\.\w+\.\w+", name)]
    assert set(parsers) == READ_BY_DIAGNOSE


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
        yield from (Path(folder) / file for file in files if file != ".git")  # a file in a git worktree


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


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.name)
def test_every_locked_requirement_has_hashes(path: Path) -> None:
    assert pins(path)


def test_what_ci_installs_has_hashes() -> None:
    commands = ((ROOT / "Makefile").read_text() + (ROOT / ".ci" / "run").read_text()).replace("\\\n", " ")
    installs = re.findall(r"pip install [^\n;|]*", commands)
    own, by_hand = "--editable .", "uv==$(UV)"  # latdoctor itself, and what `make lock` uses
    assert len(installs) == 7
    assert [one for one in installs if "--require-hashes" not in one and not one.endswith((own, by_hand))] == []


# Banned words and the number of times they may still be used. Limits are only ever lowered.
WORD_LIMITS = {"nobody": 4, "somebody": 0, "whoever": 0, "told": 4}
# Words banned from names of classes and functions, with the number of names that still have them; only ever lowered.
NAME_LIMITS = {"told": 0, "tell": 0, "mend": 0, "played": 0, "put_in": 0, "sight": 0, "Outcome": 1}
TEXTS = (".py", ".yaml", ".yml", ".md", ".json", ".html", ".css", ".js")
PROSE = ("src", "docs", "rules", "playbooks", "sops")


def prose() -> Iterator[str]:
    """The text of every file that a reader of the product or of its source sees."""
    for folder in PROSE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in TEXTS and "__pycache__" not in path.parts:
                yield path.read_text(encoding="utf-8")
    yield (ROOT / "README.md").read_text(encoding="utf-8")


def test_banned_words_become_fewer() -> None:
    words = Counter(word.lower() for text in prose() for word in re.findall(r"\b[A-Za-z]+\b", text))
    used = {word: words[word] for word in WORD_LIMITS}
    assert {word: count for word, count in used.items() if count > WORD_LIMITS[word]} == {}


def defined_names() -> Iterator[tuple[str, str]]:
    """Every class and function of src/ with the path of its module."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, name(path)


def idioms(defined: str) -> set[str]:
    """The banned words in the name of a class or function."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", defined)
    lowered = {word.lower() for word in words}
    stems = {"mend": {"mend", "mends", "mended", "mending"}, "tell": {"tell", "tells"}, "sight": {"sight", "sights"}}
    found = {idiom for idiom in ("told", "played", *stems) if lowered & stems.get(idiom, {idiom})}
    found |= {"put_in"} if "put_in" in defined else set()
    return found | ({"Outcome"} if defined == "Outcome" else set())


def test_private_idioms_in_names_become_fewer() -> None:
    used = Counter(idiom for defined, _ in defined_names() for idiom in idioms(defined))
    assert {idiom: used[idiom] for idiom, limit in NAME_LIMITS.items() if used[idiom] > limit} == {}


@pytest.mark.parametrize(
    ("defined", "expected"),
    [
        ("Told", {"told"}),
        ("_without_told", {"told"}),
        ("tell_results", {"tell"}),
        ("Mending", {"mend"}),
        ("amend", set()),
        ("Outcome", {"Outcome"}),
        ("RunOutcome", set()),
        ("put_in_place", {"put_in"}),
        ("intelligence", set()),
    ],
)
def test_which_names_are_idioms(defined: str, expected: set[str]) -> None:
    assert idioms(defined) == expected


def test_no_class_name_is_defined_in_three_modules() -> None:
    modules: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name, set()).add(name(path))
    assert {defined: sorted(paths) for defined, paths in modules.items() if len(paths) > 2} == {}


def gaps_without_code(tree: ast.AST) -> Iterator[int]:
    """The lines of `tree` that make a Gap without a reason code (by keyword, or as the seventh argument)."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Gap"), args=arguments, keywords=keywords) if len(arguments) < 7:
                if all(keyword.arg != "code" for keyword in keywords):
                    yield node.lineno


def test_every_gap_has_a_reason_code() -> None:
    trees = {name(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: lines for path, tree in trees.items() if (lines := list(gaps_without_code(tree)))} == {}
    assert list(gaps_without_code(ast.parse("Gap('logs', 'is empty')"))) == [1]
    assert list(gaps_without_code(ast.parse("Gap('logs', 'is empty', code=GapCode.EMPTY)"))) == []
