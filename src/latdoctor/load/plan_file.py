"""Writes a plan as YAML that `plan.read` reads: only what is not the default."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from latdoctor.load.plan import LoadPlan

_PLACES = 6  # significant digits of a number


def plan_yaml(plan: LoadPlan, comments: Sequence[str] = ()) -> str:
    """The plan below `comments`, one a line."""
    import yaml

    head = "".join(f"# {' '.join(line.split())}\n" for line in comments)
    return head + yaml.safe_dump(_plain(plan), sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        config = value.__struct_config__
        found: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
        for field in msgspec.structs.fields(value):
            own = getattr(value, field.name)
            if field.required or own != field.default:
                found[field.encode_name] = _plain(own)
        return found
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    return float(f"{value:.{_PLACES}g}") if isinstance(value, float) else value
