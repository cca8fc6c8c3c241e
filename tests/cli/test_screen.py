"""Colours on a terminal only, and only where they are wanted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.running import run

BUNDLE = str(Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal")
COMMANDS = pytest.mark.parametrize(
    "command",
    [f"diagnose {BUNDLE}", f"diagnose {BUNDLE} -v", "explain infra.gpu.lost", f"bundle inspect {BUNDLE}", "rules list"],
    ids=lambda command: command.replace(BUNDLE, "BUNDLE"),
)
_CODES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def _a_plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


@COMMANDS
def test_a_pipe_gets_no_escape_codes(command: str) -> None:
    assert "\x1b" not in run(command.split()).out


@COMMANDS
def test_a_pipe_is_80_columns_wide_whatever_the_terminal_is(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = run(command.split()).out
    monkeypatch.setenv("COLUMNS", "200")
    assert run(command.split()).out == wide


@COMMANDS
def test_a_terminal_gets_the_same_words_in_colour(command: str) -> None:
    shown = run(command.split(), terminal=True).out
    assert _CODES.search(shown)
    assert _CODES.sub("", shown) == run(command.split()).out


@COMMANDS
def test_no_color_is_heeded(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run(command.split(), terminal=True).out
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown), "bold is no colour and may stay"
    assert _CODES.sub("", shown) == run(command.split()).out


@pytest.mark.parametrize("output", ["json", "markdown"])
def test_documents_have_no_codes_on_a_terminal_either(output: str) -> None:
    assert "\x1b" not in run(["diagnose", BUNDLE, "-o", output], terminal=True).out


@pytest.mark.parametrize("columns", ["40", "60", "120"])
def test_a_terminal_is_filled_and_not_overrun(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = _CODES.sub("", run(["diagnose", BUNDLE], terminal=True).out).splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert not [line for line in lines if line != line.rstrip()]


LONG = f"{'/'.join(['a-long-folder'] * 9)}/none.log"


@pytest.mark.parametrize("columns", [40, 80])
def test_messages_are_wrapped_between_words_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command = ["diagnose", "--log", LONG, "--trace", "none.json", "--metrics", "none.prom"]
    shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", run(command, terminal=True).err)
    told = shown[shown.index("could not be read") :]  # behind what said who is being waited for
    plain = run(command).err
    lines = [line for line in told.splitlines() if LONG not in line]
    assert max(map(len, lines)) <= columns
    assert len(plain.splitlines()) == 5, "a program gets one line for each message"
    assert max(map(len, plain.splitlines())) > 80
    assert told.split() == plain.split(), "and the same words, none of them broken"
