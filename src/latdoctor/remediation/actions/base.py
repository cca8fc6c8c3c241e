"""What an action is: it knows a kind of resource, and which fields its arguments ask for.

Planning, making, taking back and recovering are the same for all of them (`change.py`, `run.py`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Protocol

from latdoctor.remediation.change import Resource, State, Values
from latdoctor.remediation.target import Access, Target


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


VARIABLE = "LATDOCTOR_ADMIN_TOKEN"
ANY = "*"  # whatever stands there: a person has looked


def curl(method: str, url: str, content: bytes | None = None, *, version: str = ANY, token: bool = True) -> str:
    """One request with curl. The token comes from the environment; `version` goes into If-Match, if there is one."""
    parts = ["curl", "-fsS", "-X", method, shlex.quote(url)]
    if token:
        parts += ["-H", f'"Authorization: Bearer ${VARIABLE}"']
    if version:
        parts += ["-H", shlex.quote(f"If-Match: {version}")]
    if content is not None:
        parts += ["-H", shlex.quote("Content-Type: application/json"), "--data-raw", shlex.quote(content.decode())]
    return " ".join(parts)
