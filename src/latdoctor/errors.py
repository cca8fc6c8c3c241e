"""The errors that latdoctor raises.

LatdoctorError
├── UsageError      an invalid command line or configuration                              (exit 2)
├── DefinitionError an invalid rule, dialect, catalogue or case file; has every problem   (exit 2)
├── BundleError     an unreadable bundle, baseline or archive                             (exit 2)
├── SourceError     an unreadable source; collectors record a gap and continue            (exit 1)
└── OperationError  any other failure of a command                                        (exit 1)

A message states what failed, where, and what to do next. `cli.main` prints it, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.gap_code import GapCode


class LatdoctorError(Exception):
    """What failed, where (file, URL, option) and what to do next. `listed`: lines to choose from."""

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
    """`code` becomes that of the gap."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        next_step: str = "",
        listed: Sequence[str] = (),
        code: GapCode = GapCode.UNREADABLE,
    ) -> None:
        super().__init__(what, where=where, next_step=next_step, listed=listed)
        self.code = code


class OperationError(LatdoctorError):
    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a definition file, with its place (`file:line`)."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class DefinitionError(LatdoctorError):
    """All problems of a set of definition files."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem], *, next_step: str = "") -> None:
        count = len(problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} found", next_step=next_step)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([*(str(problem) for problem in self.problems), super().__str__()])
