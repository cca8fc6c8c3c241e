"""A timeline as a JSON document, with its JSON Schema: what every other form of it is made from."""

from __future__ import annotations

from typing import Any

import msgspec

from latdoctor.incident.document import Timeline


def render(timeline: Timeline) -> str:
    """Indented JSON, keys in the order of the types; every key is there, null or empty rather than omitted."""
    return msgspec.json.format(msgspec.json.encode(timeline), indent=2).decode() + "\n"


def parse(raw: bytes) -> Timeline:
    """A saved timeline. Raises msgspec.ValidationError or msgspec.DecodeError."""
    return msgspec.json.decode(raw, type=Timeline)


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, made from the types."""
    made = msgspec.json.schema(Timeline)
    for defined in made["$defs"].values():
        if "properties" in defined:
            defined["required"] = list(defined["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "latdoctor timeline", **made}
