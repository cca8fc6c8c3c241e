"""`server.warm-up`, `server.worker.restart`, `server.reload` and `server.draining.set`: what is no knob of the server.

What is done once leaves a count behind that is one higher: by that one sees whether it was done. A count has no way
back, and what it counts leaves nothing behind that would need one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.remediation.actions import base, value_parsing
from latdoctor.remediation.admin_api import AdminRequest, checked, exchange
from latdoctor.remediation.change import Contended, Deadline, Refused, State, Values
from latdoctor.remediation.target import Access, Target

PATH = "/admin/acts"
DRAINING = "draining"
_PATHS = {
    "warm_ups": "/admin/warm-up",
    "worker_restarts": "/admin/restart-worker",
    "reloads": "/admin/reload",
    DRAINING: "/admin/draining",
}


class _Acts(Struct, frozen=True):
    draining: bool
    warm_ups: int
    worker_restarts: int
    reloads: int


@dataclass(frozen=True, slots=True)
class OnceAction:
    """Does one thing once. It takes no arguments."""

    name: str
    count: str
    kinds: frozenset[str] = frozenset({"reference"})
    undos: frozenset[str] = frozenset({"none-needed"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        if given:
            yield f"it takes no arguments, and was given {', '.join(given)}"

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return checked(target.admin) + PATH

    def resource(self, access: Access, where: str) -> ActsEndpoint:
        return ActsEndpoint(access, where)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        return {self.count: int(state.values[self.count] or 0) + 1}


@dataclass(frozen=True, slots=True)
class DrainingAction:
    """Sets the server aside, or calls it back: `draining: true`."""

    name: str = "server.draining.set"
    kinds: frozenset[str] = frozenset({"reference"})
    undos: frozenset[str] = frozenset({"restore"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        if set(given) != {DRAINING}:
            yield "it takes one argument, `draining: true` or `draining: false`"
        for text in given.values():
            if text.strip().lower() not in ("true", "false") and "$" not in text:
                yield "draining is true or false"

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return checked(target.admin) + PATH

    def resource(self, access: Access, where: str) -> ActsEndpoint:
        return ActsEndpoint(access, where)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        unknown = next((name for name in given if name != DRAINING), None)
        if unknown is not None:
            raise UsageError(f"there is no {unknown!r} to set", next_step=f"the one argument is {DRAINING}")
        return {DRAINING: value_parsing.typed(DRAINING, given.get(DRAINING, ""), state.values[DRAINING])}


@dataclass(frozen=True, slots=True)
class ActsEndpoint:
    """The acts of a server. One field is written at a time: each has a page of its own."""

    access: Access
    url: str

    def read(self, deadline: Deadline) -> State:
        answer = exchange(AdminRequest("GET", self.url), self.access.token, deadline)
        try:
            acts = msgspec.json.decode(answer.body, type=_Acts)
        except UNDECODABLE as error:
            raise Refused("the answer does not tell what was done", where=self.url) from error
        if not answer.version:
            raise Refused("the answer has no ETag: nothing could be done just once", where=self.url)
        return State(msgspec.structs.asdict(acts), answer.version)

    def write(self, values: Values, version: str, deadline: Deadline) -> None:
        name = _only(values)
        if name != DRAINING:
            self._must_be_next(name, values, version, deadline)
        exchange(self._asked(name, values, version), self.access.token, deadline)

    def _must_be_next(self, name: str, values: Values, version: str, deadline: Deadline) -> None:
        state = self.read(deadline)
        if state.version != version:
            raise Contended("something was done meanwhile", where=self.url)
        if values[name] != int(state.values[name] or 0) + 1:
            raise Refused(f"{name} are {state.values[name]}: what was done is done", where=self.url)

    def by_hand(self, values: Values) -> str:
        asked = self._asked(_only(values), values, base.ANY)
        return base.curl(asked.method, asked.url, asked.content)

    def _asked(self, name: str, values: Values, version: str) -> AdminRequest:
        url = self.url.removesuffix(PATH) + _PATHS[name]
        if name == DRAINING:
            return AdminRequest("PUT", url, msgspec.json.encode({DRAINING: values[name]}), version)
        return AdminRequest("POST", url, None, version)


def _only(values: Values) -> str:
    names = [name for name in values if name in _PATHS]
    if len(names) != 1 or len(values) != 1:
        raise Refused(f"one thing can be done at a time, not {', '.join(values) or 'none'}")
    return names[0]


WARM_UP = OnceAction("server.warm-up", "warm_ups")
RESTART_WORKER = OnceAction("server.worker.restart", "worker_restarts")
RELOAD = OnceAction("server.reload", "reloads")
SET_DRAINING = DrainingAction()
