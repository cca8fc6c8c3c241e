"""Error messages and exit codes."""

from __future__ import annotations

import pytest

from latdoctor.errors import (
    BundleError,
    DefinitionError,
    LatdoctorError,
    OperationError,
    Problem,
    SourceError,
    UsageError,
)


@pytest.mark.parametrize(
    ("where", "next_step", "shown"),
    [
        ("", "", "it broke"),
        ("trace.json", "", "trace.json: it broke"),
        ("", "try again", "it broke — try again"),
        ("trace.json", "try again", "trace.json: it broke — try again"),
    ],
)
def test_message_says_where_what_and_what_next(where: str, next_step: str, shown: str) -> None:
    assert str(SourceError("it broke", where=where, next_step=next_step)) == shown


@pytest.mark.parametrize(
    ("kind", "code"),
    [(UsageError, 2), (BundleError, 2), (SourceError, 1), (OperationError, 1)],
)
def test_exit_codes(kind: type[LatdoctorError], code: int) -> None:
    assert kind("x").exit_code == code
    assert issubclass(kind, LatdoctorError)


@pytest.mark.parametrize(("count", "summary"), [(1, "1 problem found"), (2, "2 problems found")])
def test_definition_error_shows_every_problem_with_its_place(count: int, summary: str) -> None:
    problems = [Problem(f"rule.yaml:{line}", "unknown key") for line in range(1, count + 1)]
    error = DefinitionError(problems, next_step="see docs/contributing.md")
    lines = str(error).splitlines()
    assert lines[:-1] == [f"rule.yaml:{line}: unknown key" for line in range(1, count + 1)]
    assert lines[-1] == f"{summary} — see docs/contributing.md"
    assert error.problems == tuple(problems)
    assert error.exit_code == 2
