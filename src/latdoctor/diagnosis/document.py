"""Saved diagnoses: the document of the present schema version, and of the one before."""

from __future__ import annotations

from typing import Any

import msgspec

from latdoctor.diagnosis.result import Diagnosis

_KEYS_OF_VERSION_1 = {"says": "message", "mend": "remediation", "standing": "impact"}
_IMPACT_OF_VERSION_1 = {"present, not hurting": "not-hurting", "harm not seen": "not-measured"}


def parse_diagnosis(raw: bytes) -> Diagnosis:
    """A saved diagnosis, of schema version 1 too. Raises msgspec.ValidationError or msgspec.DecodeError."""
    document = msgspec.json.decode(raw)
    if isinstance(document, dict) and document.get("schema_version") == "1":
        document = _from_version_1(document)
    return msgspec.convert(document, Diagnosis)


def _from_version_1(value: Any, key: str | None = "") -> Any:
    """The document with the keys and codes of version 2."""
    if isinstance(value, dict):
        return {(name := _KEYS_OF_VERSION_1.get(old, old)): _from_version_1(one, name) for old, one in value.items()}
    if isinstance(value, list):
        return [_from_version_1(one, key) for one in value]
    return _IMPACT_OF_VERSION_1.get(value, value) if key == "impact" else value
