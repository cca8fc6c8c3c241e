"""Knobs of the server as people write them, and as its admin interface takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from latdoctor.lab.server.config import ServerConfig, patched


def typed(knobs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """`knobs` with each value of its own type. Raises UsageError for an unknown one or a bad value."""
    whole = msgspec.to_builtins(patched(ServerConfig(), knobs, strict=False))
    return {group: {name: whole[group][name] for name in values} for group, values in knobs.items()}
