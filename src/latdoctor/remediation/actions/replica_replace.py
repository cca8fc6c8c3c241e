"""`router.replica.replace`: a replica is drained and ended, and a new process takes its place.

By how many processes a replica has had one sees whether it was done. A new process leaves nothing to take back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.remediation.actions import base, value_parsing
from latdoctor.remediation.admin_api import AdminRequest, Answer, checked, exchange
from latdoctor.remediation.change import Contended, Deadline, Refused, State, Unreachable, Values
from latdoctor.remediation.target import Access, Target

PATH = "/admin/replicas"
_FIELD = "starts."


class _Replica(Struct, frozen=True):
    name: str
    state: str
    pid: int
    starts: int


@dataclass(frozen=True, slots=True)
class ReplaceAction:
    """`replica: NAME`."""

    name: str = "router.replica.replace"
    kinds: frozenset[str] = frozenset({"reference-router"})
    undos: frozenset[str] = frozenset({"none-needed"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        if set(given) != {"replica"}:
            yield "it takes one argument, `replica: NAME`"
        elif not given["replica"].strip():
            yield "the replica has no name"

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return checked(target.admin) + PATH

    def resource(self, access: Access, where: str) -> Replicas:
        return Replicas(access, where)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        replica = given.get("replica", "")
        field = _FIELD + replica
        if field not in state.values:
            known = [name.removeprefix(_FIELD) for name in state.values]
            raise UsageError(f"there is no replica {replica!r}", next_step=value_parsing.near(replica, known))
        return {field: int(state.values[field] or 0) + 1}


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many processes each replica has had."""

    access: Access
    url: str

    def read(self, deadline: Deadline) -> State:
        replicas, version = self._replicas(deadline)
        return State({_FIELD + one.name: one.starts for one in replicas}, version)

    def write(self, values: Values, version: str, deadline: Deadline) -> None:
        """Returns when the new process runs; it need not be ready yet."""
        field, wanted = _only(values)
        name = field.removeprefix(_FIELD)
        now, seen = self._one(name, deadline)
        if seen != version:
            raise Contended("a replica was started meanwhile", where=self.url)
        if wanted != now.starts + 1:
            raise Refused(f"replica {name} has had {now.starts} processes: that has no way back", where=self.url)
        if now.state == "draining" or not now.pid:
            raise Contended(f"replica {name} is being replaced already", where=self.url)
        exchange(AdminRequest("POST", self._page(name), None, version), self.access.token, deadline)
        try:
            while self._one(name, deadline)[0].starts <= now.starts:
                if not deadline.pause():
                    raise Unreachable("there was no time left", where=self.url)
        except Unreachable as error:  # also where the last of the time went by during a look
            what = f"replica {name} has ended, and there is no new process yet"
            raise Unreachable(what, where=self.url) from error

    def by_hand(self, values: Values) -> str:
        return base.curl("POST", self._page(_only(values)[0].removeprefix(_FIELD)))

    def _page(self, name: str) -> str:
        return f"{self.url}/{quote(name, safe='')}/replace"

    def _one(self, name: str, deadline: Deadline) -> tuple[_Replica, str]:
        replicas, version = self._replicas(deadline)
        for one in replicas:
            if one.name == name:
                return one, version
        raise Refused(f"there is no replica {name!r} any more", where=self.url)

    def _replicas(self, deadline: Deadline) -> tuple[list[_Replica], str]:
        answer: Answer = exchange(AdminRequest("GET", self.url), self.access.token, deadline)
        if not answer.version:
            raise Refused("the answer has no ETag: nothing could be done just once", where=self.url)
        try:
            return msgspec.json.decode(answer.body, type=list[_Replica]), answer.version
        except UNDECODABLE as error:
            raise Refused("the answer does not tell of replicas", where=self.url) from error


def _only(values: Values) -> tuple[str, int]:
    (field, wanted), *more = values.items() or (("", 0),)
    if more or not field.startswith(_FIELD) or not isinstance(wanted, int):
        raise Refused(f"one replica can be replaced at a time, not {', '.join(values) or 'none'}")
    return field, wanted


REPLACE = ReplaceAction()
