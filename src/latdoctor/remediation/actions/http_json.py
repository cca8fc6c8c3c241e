"""`http.json.set`: fields of a JSON object behind an address that the target allows.

The object is read with GET and changed with PATCH (a merge patch, RFC 7396) or PUT (the whole object). Where the
answer has a strong ETag, the write names it in If-Match; where it has none, somebody else's write between our look and
ours would be lost, and the plan says so.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from latdoctor.errors import UsageError
from latdoctor.remediation import admin_api
from latdoctor.remediation.actions import base, value_parsing
from latdoctor.remediation.actions.config_endpoint import patch
from latdoctor.remediation.admin_api import AdminRequest, exchange, json_object
from latdoctor.remediation.change import Contended, Deadline, Refused, State, Value, Values
from latdoctor.remediation.target import Access, Target

METHODS = ("PATCH", "PUT")
SET = "set."
CAUTION = "the page has no strong ETag: what somebody else writes there at the same moment would be lost"
_PART = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NAME = re.compile(rf"set\.{_PART.pattern}(\.{_PART.pattern})?")


@dataclass(frozen=True, slots=True)
class JsonAction:
    """`url: http://HOST/PAGE`, `method: PATCH` or `PUT`, and `set.FIELD: value` or `set.GROUP.FIELD: value`."""

    name: str = "http.json.set"
    kinds: frozenset[str] = frozenset({"http"})
    undos: frozenset[str] = frozenset({"restore"})

    def problems(self, given: Mapping[str, str]) -> Iterator[str]:
        if not given.get("url"):
            yield "it needs `url`"
        if given.get("method", METHODS[0]) not in METHODS:
            yield f"method is {' or '.join(METHODS)}"
        fields = [name for name in given if name not in ("url", "method")]
        if not fields:
            yield "it sets nothing: give `set.FIELD: value`"
        for name in fields:
            if not _NAME.fullmatch(name):
                yield f"{name!r} is neither url, method nor set.FIELD"

    def where(self, target: Target, given: Mapping[str, str]) -> str:
        method = given.get("method", METHODS[0])
        if method not in METHODS:
            raise UsageError(f"method is {' or '.join(METHODS)}")
        return f"{method} {admin_api.permitted(given.get('url', ''), target.allow)}"

    def resource(self, access: Access, where: str) -> JsonPage:
        method, _, url = where.partition(" ")
        if method not in METHODS:
            raise UsageError("it does not say how it is written", where=where)
        return JsonPage(access, method, admin_api.permitted(url, access.target.allow))

    def wanted(self, given: Mapping[str, str], state: State) -> Values:
        wanted: dict[str, Value] = {}
        for argument, text in given.items():
            if argument in ("url", "method"):
                continue
            name = argument.removeprefix(SET)
            if name not in state.values:
                raise UsageError(f"the page has no field {name!r}", next_step=value_parsing.near(name, state.values))
            wanted[name] = value_parsing.typed(name, text, state.values[name])
        return wanted


@dataclass(frozen=True, slots=True)
class JsonPage:
    """One page that holds a JSON object."""

    access: Access
    method: str
    url: str

    def read(self, deadline: Deadline) -> State:
        return self._read(deadline)[0]

    def write(self, values: Values, version: str, deadline: Deadline) -> None:
        state, whole = self._read(deadline)
        if state.version != version:
            raise Contended("somebody has changed it since it was read", where=self.url)
        content = patch(values) if self.method == "PATCH" else merged(whole, patch(values))
        named = "" if state.caution else version
        self._exchange(AdminRequest(self.method, self.url, msgspec.json.encode(content), named), deadline)

    def by_hand(self, values: Values) -> str:
        fields = msgspec.json.encode(patch(values))
        token = bool(self.access.token)
        if self.method == "PATCH":
            return base.curl("PATCH", self.url, fields, token=token)
        read = base.curl("GET", self.url, version="", token=token)
        change = f"jq {shlex.quote(f'. * {fields.decode()}')}"
        write = base.curl("PUT", self.url, version=base.ANY, token=token)
        return f"{read} | {change} | {write} -H 'Content-Type: application/json' --data-binary @-"

    def _read(self, deadline: Deadline) -> tuple[State, dict[str, Any]]:
        answer = self._exchange(AdminRequest("GET", self.url), deadline)
        whole = json_object(answer, self.url)
        if answer.version and not answer.version.startswith("W/"):
            return State(fields(whole), answer.version), whole
        digest = hashlib.sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()[:32]
        return State(fields(whole), f"sha256:{digest}", CAUTION), whole

    def _exchange(self, asked: AdminRequest, deadline: Deadline) -> Any:
        return exchange(
            asked, self.access.token, deadline, place=partial(admin_api.place, allow=self.access.target.allow)
        )


def fields(whole: Mapping[str, Any]) -> dict[str, Value]:
    """What can be set: values of the object, and of the objects in it as `group.field`. A null is not one of them."""
    found: dict[str, Value] = {}
    for name, value in whole.items():
        inner = {(name, field): one for field, one in value.items()} if isinstance(value, dict) else {(name,): value}
        for path, one in inner.items():
            if one is not None and all(_PART.fullmatch(part) for part in path):
                try:
                    found[".".join(path)] = value_parsing.scalar(one)
                except ValueError:  # an object deeper down is no value, and neither is an infinite number
                    continue
    return found


def merged(whole: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`whole` with the fields of `change` in place of its own. Raises Refused where a group is none any more."""
    result = dict(whole)
    for name, value in change.items():
        if isinstance(value, dict):
            group = result.get(name)
            if not isinstance(group, dict):
                raise Refused(f"{name!r} is no object any more")
            result[name] = {**group, **value}
        else:
            result[name] = value
    return result


JSON = JsonAction()
