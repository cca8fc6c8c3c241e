"""The diagnosis as a JSON document, and its JSON Schema. Every key is there, null or empty rather than omitted."""

from __future__ import annotations

from typing import Any

import msgspec

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.incident.timeline_model import Timeline


def render_diagnosis(diagnosis: Diagnosis) -> str:
    """Indented JSON, keys in the order of the types."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode()


def diagnosis_line(diagnosis: Diagnosis) -> str:
    """The same on one line, for streams of diagnoses."""
    return msgspec.json.encode(diagnosis).decode()


def diagnosis_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, made from the types."""
    made = msgspec.json.schema(Diagnosis)
    for defined in made["$defs"].values():
        if "properties" in defined:  # a key with a default is written too: null or empty rather than omitted
            defined["required"] = list(defined["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "latdoctor diagnosis", **made}


def render_timeline(timeline: Timeline) -> str:
    """Indented JSON, keys in the order of the types; every key is there, null or empty rather than omitted."""
    return msgspec.json.format(msgspec.json.encode(timeline), indent=2).decode() + "\n"


def parse_timeline(raw: bytes) -> Timeline:
    """A saved timeline. Raises msgspec.ValidationError or msgspec.DecodeError."""
    return msgspec.json.decode(raw, type=Timeline)


def timeline_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, made from the types."""
    made = msgspec.json.schema(Timeline)
    for defined in made["$defs"].values():
        if "properties" in defined:
            defined["required"] = list(defined["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "latdoctor timeline", **made}
