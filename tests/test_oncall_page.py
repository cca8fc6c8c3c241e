"""docs/oncall.md is a path that can be walked: its commands exist, and its tables say what the program says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from latdoctor.cli.main import app
from latdoctor.cli.timeline import TimelineFormat
from latdoctor.incident.timeline import timeline
from tests.incident.scenarios import promo_rush

PAGE = (Path(__file__).parents[1] / "docs" / "oncall.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^\$ (latdoctor .*)$", PAGE, re.MULTILINE)
QUOTED = re.findall(r"`(latdoctor [^`]*)`", PAGE)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` begin with, and what is left of them."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "get_command"):
        context = command.make_context(command.name, ["--help"], resilient_parsing=True)
        inner = command.get_command(context, words[0])
        if inner is None:
            break
        command, words = inner, words[1:]
    return command, words


@pytest.mark.parametrize("line", [*TYPED, *QUOTED])
def test_what_is_typed_is_a_command(line: str) -> None:
    command, rest = command_of(shlex.split(line)[1:])
    assert not hasattr(command, "get_command"), f"{line}: no such command"
    known = {name for parameter in command.params for name in parameter.opts}
    assert [word for word in rest if word.startswith("-") and word not in known] == []


def test_the_path_is_walked_from_the_alert_to_the_next_time() -> None:
    walked = [" ".join(line.split()[1:3]) for line in TYPED]
    assert walked == [
        "listen --server",
        "sop start",  # where nobody listens
        "sop status",
        "diagnose --server",
        "sop note",
        "remediate --playbook",
        "sop close",
        "timeline --format",
        "incidents list",
    ]


def test_every_form_and_every_measure_stands_on_it() -> None:
    assert [form.value for form in TimelineFormat if f"| `{form.value}` |" not in PAGE] == []
    measures = timeline(promo_rush().incident).measures
    assert [one.id for one in measures if f"| {one.id} |" not in PAGE] == []
