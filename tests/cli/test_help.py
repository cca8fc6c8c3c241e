"""Every command and every option says what it is for, and the documentation says the same."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run

ROOT = Path(__file__).parents[2]
DOCS = runpy.run_path(str(ROOT / "docs" / "generate.py"))
COMMANDS: dict[tuple[str, ...], Any] = dict(DOCS["commands"]())
by_name = pytest.mark.parametrize("name", COMMANDS, ids=" ".join)


def test_the_commands_are_all_there() -> None:
    assert {("diagnose",), ("collect",), ("preflight",), ("baseline", "record"), ("rules", "test")} <= COMMANDS.keys()


@by_name
def test_every_option_and_argument_has_help(name: tuple[str, ...]) -> None:
    for parameter in COMMANDS[name].params:
        assert (parameter.help or "").endswith((".", ")")), f"{parameter.name} of {' '.join(name)}"


@by_name
def test_help_is_short_then_long_and_lists_exit_codes(name: tuple[str, ...]) -> None:
    outcome = run([*name, "--help"])
    assert outcome.code == 0
    assert outcome.err == ""
    assert re.search(r"^  Exit codes: 0 \w+", outcome.out, re.MULTILINE)
    first = COMMANDS[name].help.splitlines()[0]
    assert len(first) <= 60, "the list of commands would cut it"
    assert first.endswith(".")


@pytest.mark.parametrize("group", [(), *sorted({name[:-1] for name in COMMANDS if len(name) > 1})], ids=" ".join)
def test_no_short_help_is_cut_in_the_list_of_commands(group: tuple[str, ...]) -> None:
    listed = run([*group, "--help"]).out
    assert not re.search(r"[^\]]\.\.\.$", listed, re.MULTILINE)
    for name in COMMANDS:
        if name[:-1] == group:
            assert re.search(rf"^  {name[-1]} +\S", listed, re.MULTILINE)


def test_the_generated_pages_are_current() -> None:
    made: dict[str, str] = DOCS["pages"]()
    assert {"commands.md", "diagnosis.schema.json", "signals.md", "causes/README.md"} <= made.keys()
    kept = {name: (ROOT / "docs" / name).read_text() for name in made if (ROOT / "docs" / name).is_file()}
    assert [name for name in made if kept.get(name) != made[name]] == [], "run: python docs/generate.py"


def test_there_is_a_page_of_every_cause_and_of_nothing_else() -> None:
    made = {name for name in DOCS["pages"]() if name.startswith("causes/")}
    assert {f"causes/{path.name}" for path in (ROOT / "docs" / "causes").iterdir()} == made


@by_name
def test_every_command_is_documented(name: tuple[str, ...]) -> None:
    assert f"\n## latdoctor {' '.join(name)}\n" in (ROOT / "docs" / "commands.md").read_text()


def test_the_version_is_printed() -> None:
    from latdoctor import __version__

    assert run(["--version"]).out == f"latdoctor {__version__}\n"
