"""Whole answers, as a user sees them: each file in golden/ is a command, its exit code, and all that it prints.

The commands run in a folder where `SAMPLES` is the folder of sample files and `fixtures` is this repository's; those of
golden/remediation/ run against `remediation_stub.SlowService`, each after the commands in `RUNS`.
`LATDOCTOR_GOLDEN=write` writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.remediation_stub import slow_service
from tests.cli.running import run
from tests.cli.test_one_screen import check

FOLDER = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
FILES = sorted(FOLDER.glob("*.txt"))
REMEDIATIONS = sorted((FOLDER / "remediation").glob("*.txt"))
_HEAD = re.compile(r"\$ latdoctor (.*?)(?:  # exit \d+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
_CURL = re.compile("^  curl .*", re.MULTILINE)  # a command to paste is not broken
_TOO_LONG = re.compile(r"^(?! *\S+$).{81,}$", re.MULTILINE)  # one word alone cannot be broken


def test_there_are_golden_answers() -> None:
    assert FILES


def test_every_recorded_incident_has_its_whole_answer() -> None:
    """Here or, of the demonstration, in the README."""
    text = "".join(path.read_text() for path in (*FILES, ROOT / "README.md"))
    recorded = {path.name for path in (ROOT / "fixtures" / "incidents").iterdir()}
    assert {name for name in recorded if f"diagnose fixtures/incidents/{name}" not in text} == set()


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
    # Only what is read now has the time of now; a bundle's own time is printed as saved.
    printed = _MOMENT.sub("<time>", outcome.out) if "SAMPLES" in command[1] else outcome.out
    shown = f"$ latdoctor {command[1]}  # exit {outcome.code}\n{printed}"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        path.write_text(shown)
    assert shown == f"{head}\n{expected}"
    assert outcome.err == "", "nothing beside the answer"


PLAN = "remediate --playbook promo-rush-sop --server SERVER --slo 500ms"
RUN = f"{PLAN} --apply --yes"
# How the service behaves, and the commands, of which the last one is the golden one.
RUNS: dict[str, tuple[dict[str, bool], tuple[str, ...]]] = {
    "plan": ({}, (PLAN,)),
    "plan-nothing-to-do": ({}, (RUN, PLAN)),
    "run-fixed": ({}, (RUN,)),
    "run-pending": ({"remembers": False}, (RUN,)),
    "runs-show-pending": ({"remembers": False}, (RUN, "runs show RUN")),
    "run-improved": ({}, (RUN.replace("500ms", "200ms"),)),
    "run-rolled-back": ({"helps": False}, (RUN,)),
    "run-partly-rolled-back": ({"accepts_once": True}, (RUN,)),
    "run-interrupted": ({"interrupted": True}, (RUN,)),
    "run-not-needed": ({"healthy": True}, (RUN,)),
    "run-refused": ({}, (RUN, RUN)),
    "run-held": ({}, (PLAN + " --apply",)),
    "runs-show": ({}, (RUN, "runs show RUN")),
    "runs-show-rolled-back": ({"helps": False}, (RUN, "runs show RUN")),
    "runs-show-incomplete": ({"accepts_once": True}, (RUN, "rollback RUN", "runs show RUN")),
    "rollback": ({}, (RUN, "rollback RUN")),
    "rollback-incomplete": ({"accepts_once": True}, (RUN, "rollback RUN")),
    "recover-incomplete": ({"accepts_once": True}, (RUN, "rollback RUN", "recover")),
}


@pytest.mark.parametrize("name", RUNS)
def test_golden_remediation(name: str, apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every address, run and time replaced by one of the same width."""
    behaviour, commands = RUNS[name]
    monkeypatch.delenv("LATDOCTOR_ADMIN_TOKEN", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with slow_service(monkeypatch, **behaviour) as service:
        for command in commands:
            runs = json.loads(run(["runs", "list", "-o", "json"]).out)["runs"]
            known = runs[0]["run"] if runs else "none"
            outcome = run(shlex.split(command.replace("SERVER", service.url).replace("RUN", known)))
        shown = f"$ latdoctor {commands[-1]}  # exit {outcome.code}\n{_normalised(outcome.out, service.port)}"
    path = FOLDER / "remediation" / f"{name}.txt"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        path.write_text(shown)
    assert shown == path.read_text()


def _normalised(text: str, port: int) -> str:
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{6}", "20260202-024000-a1b2c3", text.replace(str(port), "37365"))
    text = re.sub(r"by \d\d:\d\d:\d\d UTC", "by 02:45:00 UTC", text)
    return re.sub(r"(?<=verified) in \d+ s", " in 37 s", text)


def test_every_golden_remediation_has_its_commands() -> None:
    assert {path.stem for path in REMEDIATIONS} == RUNS.keys()


ANSWERS = [
    path for path in FILES if not re.search(r"-v|-o |explain|playbooks list|rules", path.read_text().partition("\n")[0])
]


@pytest.mark.parametrize("path", [*ANSWERS, *REMEDIATIONS], ids=lambda path: path.stem)
def test_a_default_answer_fits_one_screen(path: Path) -> None:
    check(_CURL.sub("  curl", path.read_text().partition("\n")[2]))


@pytest.mark.parametrize("path", [*FILES, *REMEDIATIONS], ids=lambda path: path.stem)
def test_golden_is_fit_to_read(path: Path) -> None:
    """What every printed answer keeps to, so that a careless `write` is noticed."""
    text = path.read_text()
    answer = text.partition("\n")[2]
    assert not re.findall(r"[ \t]+$", answer, re.MULTILINE), "blanks at the end of a line"
    assert not re.findall(r"\x1b|\bNone\b|\bnan\b|<[A-Za-z_.]+ object|unknown", answer)
    assert not re.findall(r"\{[a-z_]+\.[a-z_.]+\}", answer), "an unfilled placeholder"
    assert not re.search(r"/(?:home|tmp|work|root)/", answer), "a path of one machine"
    if "-o markdown" not in text.partition("\n")[0]:
        assert not _TOO_LONG.findall(_CURL.sub("  curl", answer)), "wider than 80 columns"
