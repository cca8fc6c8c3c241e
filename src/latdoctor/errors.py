"""Every error latdoctor raises on purpose.

LatdoctorError
├── UsageError      the command line or the configuration asks for something that cannot be done   (exit 2)
├── DefinitionError a rule, dialect, catalogue or case file is invalid; carries every problem       (exit 2)
├── BundleError     a bundle, baseline or archive cannot be read                                    (exit 2)
├── SourceError     one source could not be read; the collectors turn it into a gap and go on       (exit 1)
└── OperationError  anything else that keeps the command from finishing                             (exit 1)

A message says what happened, where, and what to do next. It is printed once, in `cli.main`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


class LatdoctorError(Exception):
    """What happened, where (file, URL, place) and what to do next. `listed`: lines to choose from."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", next_step: str = "", listed: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step
        self.listed = tuple(listed)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" — {self.next_step}" if self.next_step else ""
        return f"{place}{self.what}{hint}"


class UsageError(LatdoctorError):
    exit_code = 2


class BundleError(LatdoctorError):
    exit_code = 2


class SourceError(LatdoctorError):
    exit_code = 1


class OperationError(LatdoctorError):
    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a definition file, with its place (`file:line`)."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class DefinitionError(LatdoctorError):
    """A set of definition files has problems; all of them are carried, not only the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem], *, next_step: str = "") -> None:
        count = len(problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} found", next_step=next_step)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([*(str(problem) for problem in self.problems), super().__str__()])


# A text that is not UTF-8 is no error of msgspec's own, and neither is what is nested too deep for the stack.
UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
