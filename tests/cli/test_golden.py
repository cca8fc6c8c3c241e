"""Whole answers, as a user sees them: each file in golden/ is a command, its exit code, and all that it prints.

`LATDOCTOR_GOLDEN=write` writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.running import run

FOLDER = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "<time>"),
    (re.compile(r'"(run_id|generated_at|start|end|version)": ("[^"]*"|[\d.]+)'), r'"\1": <varies>'),
)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_golden(path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    head, _, expected = path.read_text().partition("\n")
    command = head.removeprefix("$ latdoctor ").rpartition("  # exit ")[0] or head.removeprefix("$ latdoctor ")
    arguments = [word.replace("SAMPLES", str(samples)) for word in shlex.split(command)]
    outcome = run(arguments)
    printed = outcome.out.replace(str(samples), "SAMPLES")
    for pattern, name in _VARYING:
        printed = pattern.sub(name, printed)
    shown = f"$ latdoctor {command}  # exit {outcome.code}\n{printed}"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        path.write_text(shown)
    assert shown == f"{head}\n{expected}"
