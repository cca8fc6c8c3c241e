"""`server.config.set` and `router.config.set`: settings of the reference server and its router, guarded by If-Match.

A field is `group.setting` (of the router: `setting`, and `weights.REPLICA`, which is absent while the replica's weight
is 1). Only settings that can be changed at run time are fields; the server lists them at `GET /admin/knobs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.admin_api import (
    AdminRequest,
    curl_command,
    decode_response,
    json_object,
    send,
    validate_base_url,
)
from latdoctor.remediation.change import Deadline, Receipt, Refused, State, Undo, Value, Values
from latdoctor.remediation.target import Access, Target, TargetKind

PATH = "/admin/config"
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z0-9][A-Za-z0-9_.-]*)?")
_WEIGHTS = "weights."
SelectFields = Callable[["ConfigEndpoint", dict[str, Value], Deadline], dict[str, Value]]


@dataclass(frozen=True, slots=True)
class ConfigAction:
    """Sets fields of a configuration. `select` returns the fields that can be changed at run time."""

    name: str
    kinds: frozenset[TargetKind]
    select: SelectFields
    undos: frozenset[Undo] = frozenset({Undo.RESTORE})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if not arguments:
            yield "no setting given: use `group.setting: value`"
        for name in arguments:
            if not _NAME.fullmatch(name):
                yield f"{name!r} is not the name of a setting, such as batching.max_wait_ms"

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        return validate_base_url(target.admin) + PATH

    def resource(self, access: Access, resource_id: str) -> ConfigEndpoint:
        return ConfigEndpoint(access, resource_id, self.select)

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        for name in arguments:
            if name not in state.values:
                hint = field_values.suggest(name, state.values)
                raise UsageError(f"no setting {name!r} can be changed at run time", next_step=hint)
        return {name: _value(name, text, state.values[name]) for name, text in arguments.items()}


@dataclass(slots=True)
class ConfigEndpoint:
    """A configuration behind GET and PATCH."""

    access: Access
    url: str
    select: SelectFields
    known: frozenset[str] | None = field(default=None, repr=False)  # constant names that `select` has fetched

    def read(self, deadline: Deadline) -> State:
        response = send(AdminRequest("GET", self.url), self.access.token, deadline)
        if not response.version:
            raise Refused("the response has no ETag, which a safe change needs", where=self.url)
        flat = flatten(json_object(response, self.url), self.url)
        return State(self.select(self, flat, deadline), response.version, instance=response.instance)

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        content = msgspec.json.encode(merge_patch(values))
        return send(AdminRequest("PATCH", self.url, content, version, operation), self.access.token, deadline).receipt

    def manual_command(self, values: Values) -> str:
        return curl_command("PATCH", self.url, msgspec.json.encode(merge_patch(values)))

    def fetch(self, path: str, kind: type[Any], deadline: Deadline) -> Any:
        """Another page of the same admin interface, decoded as `kind`. Raises Refused for another shape."""
        url = self.url.removesuffix(PATH) + path
        return decode_response(send(AdminRequest("GET", url), self.access.token, deadline), kind, url)


def _value(name: str, text: str, now: Value) -> Value:
    """A weight may be removed, so its present value does not determine its type."""
    if not name.startswith(_WEIGHTS):
        return field_values.parse(name, text, now)
    return None if text.strip() == "null" else field_values.parse_number(name, text.strip())


def flatten(config: Mapping[str, Any], where: str) -> dict[str, Value]:
    """`{group: {setting: value}}` as `{group.setting: value}`; top-level settings keep their name. Raises Refused."""
    flat: dict[str, Value] = {}
    try:
        for name, value in config.items():
            if isinstance(value, dict):
                flat.update({f"{name}.{key}": field_values.from_json(inner) for key, inner in value.items()})
            else:
                flat[name] = field_values.from_json(value)
    except ValueError as error:
        raise Refused(f"the response is not a configuration: {error}", where=where) from error
    return flat


def merge_patch(fields: Values) -> dict[str, Any]:
    """The merge patch (RFC 7396) that sets these fields and no others."""
    patch: dict[str, Any] = {}
    for name, value in fields.items():
        group, dot, key = name.partition(".")
        if dot:
            patch.setdefault(group, {})[key] = field_values.to_json(value)
        else:
            patch[group] = field_values.to_json(value)
    return patch


def _live_settings(endpoint: ConfigEndpoint, flat: dict[str, Value], deadline: Deadline) -> dict[str, Value]:
    """The settings that the server lists as changeable at run time."""
    if endpoint.known is None:
        listed = endpoint.fetch("/admin/knobs", dict[str, bool], deadline)
        endpoint.known = frozenset(name for name, live in listed.items() if live)
    return {name: value for name, value in flat.items() if name in endpoint.known}


class _Replica(msgspec.Struct, frozen=True):
    name: str


def _with_weights(endpoint: ConfigEndpoint, flat: dict[str, Value], deadline: Deadline) -> dict[str, Value]:
    """The router's settings, and the weight of every replica: None while none is set."""
    if endpoint.known is None:
        replicas = endpoint.fetch("/admin/replicas", list[_Replica], deadline)
        endpoint.known = frozenset(_WEIGHTS + one.name for one in replicas)
    absent: dict[str, Value] = dict.fromkeys(sorted(endpoint.known))
    return {**absent, **flat}


SERVER_CONFIG = ConfigAction("server.config.set", frozenset({TargetKind.REFERENCE}), _live_settings)
ROUTER_CONFIG = ConfigAction("router.config.set", frozenset({TargetKind.REFERENCE_ROUTER}), _with_weights)
