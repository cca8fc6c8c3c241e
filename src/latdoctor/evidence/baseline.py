"""Baselines: what the signals of a target were at a healthy time, as one JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.errors import BundleError
from latdoctor.evidence.model import Evidence, is_unknown

SCHEMA_VERSION = "1"
MAX_BYTES = 16 << 20


class Remembered(Struct, frozen=True):
    """One value of the healthy time, in base units."""

    signal: str
    subject: str
    value: float
    note: str = ""


class Baseline(Struct, frozen=True, dict=True):
    """Every numeric reading of one healthy look. `recorded_at` is RFC 3339 UTC."""

    target: str
    recorded_at: str
    values: tuple[Remembered, ...]
    schema_version: str = SCHEMA_VERSION

    @cached_property
    def lookup(self) -> Mapping[tuple[str, str], float]:
        return {(row.signal, row.subject): row.value for row in self.values}


def record(evidence: Evidence, target: str, at: str) -> Baseline:
    """The numeric readings of `evidence` without label splits, known ones only, in a stable order."""
    rows = {
        (reading.signal, reading.subject): Remembered(
            reading.signal, reading.subject, float(reading.value), reading.note
        )
        for reading in evidence.readings
        if not isinstance(reading.value, str) and not is_unknown(reading.value) and not reading.labels
    }
    return Baseline(target, at, tuple(rows[key] for key in sorted(rows)))


def save(baseline: Baseline, path: Path) -> None:
    """Raises BundleError where the file cannot be written."""
    try:
        path.write_bytes(encoded(baseline))
    except OSError as error:
        raise BundleError(
            f"the baseline cannot be written: {error.strerror}", where=str(path), next_step="choose another place"
        ) from error


def encoded(baseline: Baseline) -> bytes:
    return msgspec.json.format(msgspec.json.encode(baseline, order="sorted"), indent=1)


def load(path: Path) -> Baseline:
    """Raises BundleError where `path` is not a readable baseline of this version."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BundleError(f"larger than {MAX_BYTES >> 20} MiB: not a baseline", where=str(path))
        return decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise BundleError(
            f"the baseline cannot be read: {error.strerror}",
            where=str(path),
            next_step="check the path of the baseline",
        ) from error


def decoded(raw: bytes, where: str) -> Baseline:
    try:
        found = msgspec.json.decode(raw, type=Baseline)
    except msgspec.MsgspecError as error:
        raise BundleError(
            f"not a baseline: {error}", where=where, next_step="record one: latdoctor baseline record --to FILE"
        ) from error
    if found.schema_version != SCHEMA_VERSION:
        raise BundleError(f"baseline of version {found.schema_version}, {SCHEMA_VERSION} is read", where=where)
    return found
