"""`server.config.set` and `router.config.set`: knobs of the reference server and of its router, by If-Match.

A field is `group.knob` (of the router: `knob`, and `weights.REPLICA`, which is not there where the replica's weight is
1). Only what can be turned while the server runs is a field at all: a server says which that is (`GET /admin/knobs`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.remediation.actions import base, value_parsing
from latdoctor.remediation.admin_api import AdminRequest, checked, exchange, json_object
from latdoctor.remediation.change import Deadline, Refused, State, Value, Values
from latdoctor.remediation.target import Access, Target

PATH = "/admin/config"
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z0-9][A-Za-z0-9_.-]*)?")
_WEIGHTS = "weights."
Amend = Callable[["ConfigEndpoint", dict[str, Value], Deadline], dict[str, Value]]


@dataclass(frozen=True, slots=True)
class ConfigAction:
    """One of the two; they differ in what besides the configuration says which fields there are."""

    name: str
    kind: str
    amend: Amend
    undos: frozenset[str] = frozenset({"restore"})

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({self.kind})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        if not given:
            yield "it sets nothing: give `group.knob: value`"
        for name in given:
            if not _NAME.fullmatch(name):
                yield f"{name!r} is not the name of a knob, such as batching.max_wait_ms"

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        return checked(target.admin) + PATH

    def resource(self, access: Access, where: str) -> ConfigEndpoint:
        return ConfigEndpoint(access, where, self.amend)

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        for name in given:
            if name not in state.values:
                hint = value_parsing.near(name, state.values)
                raise UsageError(f"there is no knob {name!r} that can be turned while it runs", next_step=hint)
        return {name: _value(name, text, state.values[name]) for name, text in given.items()}


@dataclass(slots=True)
class ConfigEndpoint:
    """A configuration behind GET and PATCH."""

    access: Access
    url: str
    amend: Amend
    known: frozenset[str] | None = field(default=None, repr=False)  # what `amend` has learnt; it does not change

    def read(self, deadline: Deadline) -> State:
        answer = exchange(AdminRequest("GET", self.url), self.access.token, deadline)
        if not answer.version:
            raise Refused("the answer has no ETag: nothing could be changed safely", where=self.url)
        flat = flattened(json_object(answer, self.url), self.url)
        return State(self.amend(self, flat, deadline), answer.version)

    def write(self, values: Values, version: str, deadline: Deadline) -> None:
        content = msgspec.json.encode(patch(values))
        exchange(AdminRequest("PATCH", self.url, content, version), self.access.token, deadline)

    def by_hand(self, values: Values) -> str:
        return base.curl("PATCH", self.url, msgspec.json.encode(patch(values)))

    def beside(self, path: str, deadline: Deadline) -> bytes:
        """What another page of the same admin interface says."""
        url = self.url.removesuffix(PATH) + path
        return exchange(AdminRequest("GET", url), self.access.token, deadline).body


def _value(name: str, text: str, now: Value) -> Value:
    """A weight may be taken away, so what stands there says nothing of what it may become."""
    if not name.startswith(_WEIGHTS):
        return value_parsing.typed(name, text, now)
    return None if text.strip() == "null" else value_parsing.number(name, text.strip())


def flattened(whole: Mapping[str, Any], where: str) -> dict[str, Value]:
    """`{group: {knob: value}}` as `{group.knob: value}`; a knob without a group keeps its name. Raises Refused."""
    flat: dict[str, Value] = {}
    try:
        for name, value in whole.items():
            if isinstance(value, dict):
                flat.update({f"{name}.{knob}": value_parsing.scalar(inner) for knob, inner in value.items()})
            else:
                flat[name] = value_parsing.scalar(value)
    except ValueError as error:
        raise Refused(f"the answer is not a configuration: {error}", where=where) from error
    return flat


def patch(fields: Values) -> dict[str, Any]:
    """The merge patch (RFC 7396) that sets these fields and no others."""
    whole: dict[str, Any] = {}
    for name, value in fields.items():
        group, dot, knob = name.partition(".")
        if dot:
            whole.setdefault(group, {})[knob] = value_parsing.as_json(value)
        else:
            whole[group] = value_parsing.as_json(value)
    return whole


def _live(endpoint: ConfigEndpoint, flat: dict[str, Value], deadline: Deadline) -> dict[str, Value]:
    """The knobs that the server says can be turned while it runs."""
    if endpoint.known is None:
        knobs = _decoded(endpoint.beside("/admin/knobs", deadline), dict[str, bool], endpoint.url)
        endpoint.known = frozenset(name for name, live in knobs.items() if live)
    return {name: value for name, value in flat.items() if name in endpoint.known}


class _Replica(msgspec.Struct, frozen=True):
    name: str


def _weights(endpoint: ConfigEndpoint, flat: dict[str, Value], deadline: Deadline) -> dict[str, Value]:
    """The router's knobs, and the weight of every replica: None where none is set."""
    if endpoint.known is None:
        replicas = _decoded(endpoint.beside("/admin/replicas", deadline), list[_Replica], endpoint.url)
        endpoint.known = frozenset(_WEIGHTS + one.name for one in replicas)
    absent: dict[str, Value] = dict.fromkeys(sorted(endpoint.known))
    return {**absent, **flat}


def _decoded(body: bytes, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise Refused("the admin interface answers otherwise than it should", where=where) from error


SERVER = ConfigAction("server.config.set", "reference", _live)
ROUTER = ConfigAction("router.config.set", "reference-router", _weights)
