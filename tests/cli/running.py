"""Running the command line in this process, as `main` does."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

from latdoctor.cli.main import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run(arguments: Sequence[str]) -> Outcome:
    """`latdoctor ARGUMENTS`: its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
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
