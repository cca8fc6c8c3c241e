"""The router's configuration: its knobs, settings from the command line, and patches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import UsageError
from latdoctor.lab.server.load_balancing import (
    PolicyName,
)

Weight = Annotated[float, Meta(ge=0, le=1000)]


class RouterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The router's knobs, all of them live."""

    policy: PolicyName = "least-loaded"
    weights: dict[str, Weight] = {}  # by replica; 1 where none is given
    slow_start_ms: Annotated[float, Meta(ge=0, le=600_000)] = 10_000
    timeout_ms: Annotated[float, Meta(gt=0, le=600_000)] = 30_000  # of one request at one replica
    sticky: bool = False  # whether a session goes to the same replica for as long as that one is ready


def etag(config: RouterConfig) -> str:
    """Equal configurations have equal tags."""
    return _digest(config)


def patched_router_config(config: RouterConfig, changes: dict[str, Any]) -> RouterConfig:
    """`config` with some fields changed; weights are merged by replica. Raises UsageError."""
    whole = msgspec.to_builtins(config)
    weights = changes.get("weights", {})
    if not isinstance(weights, dict):
        raise UsageError("weights must be an object: replica → weight")
    merged = {name: weight for name, weight in {**whole["weights"], **weights}.items() if weight is not None}
    try:
        return msgspec.convert({**whole, **changes, "weights": merged}, RouterConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"the router's configuration is not valid: {error}") from error


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


GROUP = "router."


def parse_router_settings(given: Sequence[str]) -> tuple[RouterConfig, tuple[str, ...]]:
    """The router's configuration by those of the settings that are for it, and the others. Raises UsageError.

    Weights are written `router.weights=0:9,1:1`.
    """
    own: dict[str, Any] = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if name.startswith(GROUP):
            if not equals:
                raise UsageError(f"{setting!r} sets no knob", next_step=f"write {GROUP}KNOB=VALUE")
            knob = name.removeprefix(GROUP)
            own[knob] = _weights(value) if knob == "weights" else value
    try:
        config = msgspec.convert(own, RouterConfig, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the router's configuration is not valid: {error}") from error
    return config, tuple(setting for setting in given if not setting.startswith(GROUP))


def _weights(text: str) -> dict[str, str]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(colon for _, colon, _ in pairs):
        raise UsageError(f"{text!r} are no weights", next_step=f"write {GROUP}weights=0:9,1:1")
    return {name.strip(): weight for name, _, weight in pairs}
