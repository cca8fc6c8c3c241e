"""Whole answers, as a user sees them: each file in golden/ is a command, its exit code, and all that it prints.

The commands run in a folder where `SAMPLES` is the folder of sample files and `fixtures` is this repository's.
`LATDOCTOR_GOLDEN=write` writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.cli.test_one_screen import check

FOLDER = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
FILES = sorted(FOLDER.glob("*.txt"))
_HEAD = re.compile(r"\$ latdoctor (.*?)(?:  # exit \d+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
_TOO_LONG = re.compile(r"^(?! *\S+$).{81,}$", re.MULTILINE)  # one word alone cannot be broken


def test_there_are_golden_answers() -> None:
    assert FILES


def test_every_recorded_incident_has_its_whole_answer() -> None:
    """Here or, of the demonstration, in the README."""
    told = "".join(path.read_text() for path in (*FILES, ROOT / "README.md"))
    recorded = {path.name for path in (ROOT / "fixtures" / "incidents").iterdir()}
    assert {name for name in recorded if f"diagnose fixtures/incidents/{name}" not in told} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden(path: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, _, expected = path.read_text().partition("\n")
    command = _HEAD.fullmatch(head)
    assert command, f"{path.name} does not begin with a command"
    if "SAMPLES" in command[1]:
        (tmp_path / "SAMPLES").symlink_to(request.getfixturevalue("samples"))
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    outcome = run(shlex.split(command[1]))
    # Only what is read now has the time of now; a bundle's own time is told as it was kept.
    printed = _MOMENT.sub("<time>", outcome.out) if "SAMPLES" in command[1] else outcome.out
    shown = f"$ latdoctor {command[1]}  # exit {outcome.code}\n{printed}"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        path.write_text(shown)
    assert shown == f"{head}\n{expected}"
    assert outcome.err == "", "a look at files has nothing to tell beside its answer"


ANSWERS = [
    path for path in FILES if not re.search(r"-v|-o |explain|playbooks|rules", path.read_text().partition("\n")[0])
]


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_a_default_answer_fits_one_screen(path: Path) -> None:
    check(path.read_text().partition("\n")[2])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_is_fit_to_read(path: Path) -> None:
    """What every printed answer keeps to, so that a careless `write` is noticed."""
    text = path.read_text()
    answer = text.partition("\n")[2]
    assert not re.findall(r"[ \t]+$", answer, re.MULTILINE), "blanks at the end of a line"
    assert not re.findall(r"\x1b|\bNone\b|\bnan\b|<[A-Za-z_.]+ object|unknown", answer)
    assert not re.findall(r"\{[a-z_]+\.[a-z_.]+\}", answer), "a place that nobody filled"
    assert not re.search(r"/(?:home|tmp|work|root)/", answer), "a path of one machine"
    if "-o markdown" not in text.partition("\n")[0]:
        assert not _TOO_LONG.findall(answer), "wider than 80 columns"
