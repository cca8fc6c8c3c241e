"""What an action is: it knows a kind of resource, and which fields its arguments ask for.

Planning, making, taking back and recovering are the same for all of them (`change.py`, `run.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from latdoctor.remedy.change import Resource, State, Values
from latdoctor.remedy.target import Access, Target


class Action(Protocol):
    """One module each; `ACTIONS` lists them."""

    @property
    def name(self) -> str:
        """As playbooks call it: `server.config.set`."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of target that it can act on."""

    @property
    def undos(self) -> frozenset[str]:
        """Which of playbook.UNDOS a step with it may promise."""

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        """What is wrong with the arguments of a step, seen without any target. `$name` may stand for any value."""

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        """The resource that a step with these arguments changes. Raises UsageError."""

    def resource(self, access: Access, where: str) -> Resource:
        """That resource, for the name that `where` gave: now or, from the journal, after a crash."""

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        """The fields that the arguments ask for, typed as they stand in `state`.

        Raises UsageError for a field that is not there and for a value that cannot be one of its kind.
        """
