"""Running the command line in this process, as `main` does."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from latdoctor.cli.config_file import FILE, trust_store
from latdoctor.cli.config_trust import digest
from latdoctor.cli.main import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class _Stream(io.StringIO):
    """What is printed, on something that may call itself a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def run(arguments: Sequence[str], *, terminal: bool = False) -> Outcome:
    """`latdoctor ARGUMENTS`: its exit code and what it printed."""
    out, err = _Stream(terminal=terminal), _Stream(terminal=terminal)
    code = 0
    with (
        mock.patch.object(sys, "argv", ["latdoctor", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())


def write_trusted(text: str, folder: Path | None = None) -> None:
    """Writes latdoctor.yaml into `folder` (here by default), and trusts it as `latdoctor trust` does."""
    place = (folder or Path()).resolve() / FILE
    place.write_text(text)
    trust_store().add(place, digest(place.read_bytes()))


def private_file(path: Path | str, text: str) -> None:
    """A file with credentials that only its user can read."""
    Path(path).write_text(text)
    Path(path).chmod(0o600)


def diagnosed(*arguments: str, code: int | None = None) -> dict[str, Any]:
    """The JSON document of `latdoctor diagnose ARGUMENTS`, which left with `code` (one of 0, 3, 4 where not given)."""
    outcome = run(["diagnose", *arguments, "-o", "json"])
    assert outcome.code in ((0, 3, 4) if code is None else (code,)), outcome.err
    document = json.loads(outcome.out)
    assert isinstance(document, dict)
    return document


def checks(document: dict[str, Any], status: str) -> dict[str, dict[str, Any]]:
    """The checks of `document` that have `status`, by id."""
    return {check["id"]: check for check in document["checks"] if check["status"] == status}


def named(document: dict[str, Any]) -> list[str]:
    return [cause["id"] for cause in document["causes"] if cause["named"]]
