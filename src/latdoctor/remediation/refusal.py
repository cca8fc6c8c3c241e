"""The refusal of a run before anything is touched, and the actions that refuse by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from latdoctor.remediation.change import Change, Deadline
from latdoctor.remediation.run_result import Reason
from latdoctor.remediation.target import Access


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a run must not start, and what to do."""

    guard: Reason
    reason: str
    next_step: str = ""


@runtime_checkable
class GuardedAction(Protocol):
    """An action that knows who else sets what it changes, and what it needs."""

    def refusals(self, access: Access, change: Change, deadline: Deadline) -> Iterator[Refusal]:
        """Yield why `change` must not be made. Raises OperationError if that cannot be found out."""
