"""`http.json.set`: fields of a JSON object at a URL that the target allows.

The object is read with GET and changed with PATCH (a merge patch, RFC 7396) or PUT (the whole object). The write names
a strong ETag in If-Match. Without one, a concurrent write by another client is lost, and the plan contains a warning.
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
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.actions.config_endpoint import merge_patch
from latdoctor.remediation.admin_api import AdminRequest, curl_command, json_object, send
from latdoctor.remediation.change import (
    Contended,
    Deadline,
    Receipt,
    Refused,
    State,
    Undo,
    Unreachable,
    Value,
    Values,
    has_values,
)
from latdoctor.remediation.target import Access, Target, TargetKind

METHODS = ("PATCH", "PUT")
SET = "set."
NO_ETAG = "the page has no strong ETag: a concurrent write by another client would be lost"
_PART = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NAME = re.compile(rf"set\.{_PART.pattern}(\.{_PART.pattern})?")


@dataclass(frozen=True, slots=True)
class JsonAction:
    """`url: http://HOST/PAGE`, `method: PATCH` or `PUT`, and `set.FIELD: value` or `set.GROUP.FIELD: value`."""

    name: str = "http.json.set"
    kinds: frozenset[TargetKind] = frozenset({TargetKind.HTTP})
    undos: frozenset[Undo] = frozenset({Undo.RESTORE})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if not arguments.get("url"):
            yield "`url` is missing"
        if arguments.get("method", METHODS[0]) not in METHODS:
            yield f"method must be {' or '.join(METHODS)}"
        names = [name for name in arguments if name not in ("url", "method")]
        if not names:
            yield "no field given: use `set.FIELD: value`"
        for name in names:
            if not _NAME.fullmatch(name):
                yield f"{name!r} is neither url, method nor set.FIELD"

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        method = arguments.get("method", METHODS[0])
        if method not in METHODS:
            raise UsageError(f"method must be {' or '.join(METHODS)}")
        return f"{method} {admin_api.require_allowed(arguments.get('url', ''), target.allow)}"

    def resource(self, access: Access, resource_id: str) -> JsonPage:
        method, _, url = resource_id.partition(" ")
        if method not in METHODS:
            raise UsageError(f"a page is named METHOD URL, with method {' or '.join(METHODS)}", where=resource_id)
        return JsonPage(access, method, admin_api.require_allowed(url, access.target.allow))

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        desired: dict[str, Value] = {}
        for argument, text in arguments.items():
            if argument in ("url", "method"):
                continue
            name = argument.removeprefix(SET)
            if name not in state.values:
                raise UsageError(f"the page has no field {name!r}", next_step=field_values.suggest(name, state.values))
            desired[name] = field_values.parse(name, text, state.values[name])
        return desired


@dataclass(frozen=True, slots=True)
class JsonPage:
    """A page that contains one JSON object."""

    access: Access
    method: str
    url: str

    def read(self, deadline: Deadline) -> State:
        return self._read(deadline)[0]

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        state, document = self._read(deadline)
        if state.version != version:
            raise Contended("the page has changed since it was read", where=self.url)
        content = merge_patch(values) if self.method == "PATCH" else merge(document, merge_patch(values))
        etag = "" if state.caution else version
        request = AdminRequest(self.method, self.url, msgspec.json.encode(content), etag, operation)
        response = self._send(request, deadline)
        if state.caution or response.version.startswith("W/"):
            return Receipt(instance=response.instance)
        return response.receipt if response.version else self._read_receipt(values, deadline)

    def manual_command(self, values: Values) -> str:
        content = msgspec.json.encode(merge_patch(values))
        token = bool(self.access.token)
        if self.method == "PATCH":
            return curl_command("PATCH", self.url, content, token=token)
        read = curl_command("GET", self.url, version="", token=token)
        change = f"jq {shlex.quote(f'. * {content.decode()}')}"
        write = curl_command("PUT", self.url, token=token)
        return f"{read} | {change} | {write} -H 'Content-Type: application/json' --data-binary @-"

    def _read_receipt(self, values: Values, deadline: Deadline) -> Receipt:
        """The version read straight after a write whose response had none; unknown if the values are not ours."""
        try:
            state = self.read(deadline)
        except (Unreachable, Refused):  # the write itself was answered, so it is not repeated
            return Receipt()
        return Receipt(state.version, state.instance) if has_values(state.values, values) else Receipt()

    def _read(self, deadline: Deadline) -> tuple[State, dict[str, Any]]:
        response = self._send(AdminRequest("GET", self.url), deadline)
        document = json_object(response, self.url)
        fields = settable_fields(document)
        version, caution = response.version, ""
        if not version or version.startswith("W/"):
            version, caution = f"sha256:{_digest(document)}", NO_ETAG
        rest = _digest(unsettable_fields(document, fields))
        return State(fields, version, caution, rest=rest, instance=response.instance), document

    def _send(self, request: AdminRequest, deadline: Deadline) -> admin_api.AdminResponse:
        resolve = partial(admin_api.resolve_allowed, allow=self.access.target.allow)
        return send(request, self.access.token, deadline, resolve)


def settable_fields(document: Mapping[str, Any]) -> dict[str, Value]:
    """The values of the object, and of its nested objects as `group.field`. A null cannot be set."""
    found: dict[str, Value] = {}
    for name, value in document.items():
        inner = {(name, key): one for key, one in value.items()} if isinstance(value, dict) else {(name,): value}
        for path, one in inner.items():
            if one is not None and all(_PART.fullmatch(part) for part in path):
                try:
                    found[".".join(path)] = field_values.from_json(one)
                except ValueError:  # deeper objects and infinite numbers cannot be set
                    continue
    return found


def unsettable_fields(document: Mapping[str, Any], settable: Mapping[str, Value]) -> dict[str, Any]:
    """The document without its `settable` fields."""
    rest: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            rest[name] = {key: one for key, one in value.items() if f"{name}.{key}" not in settable}
        elif name not in settable:
            rest[name] = value
    return rest


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()[:32]


def merge(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`document` with the fields of `patch`. Raises Refused if a group of `patch` is no longer an object."""
    result = dict(document)
    for name, value in patch.items():
        if isinstance(value, dict):
            group = result.get(name)
            if not isinstance(group, dict):
                raise Refused(f"{name!r} is no longer an object")
            result[name] = {**group, **value}
        else:
            result[name] = value
    return result


SET_JSON = JsonAction()
