"""Baselines: what the signals of a target were at a healthy time, as one JSON file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import BundleError
from latdoctor.evidence.model import Evidence, Gap, is_unknown
from latdoctor.gap_code import GapCode
from latdoctor.output_file import cannot_write, must_be_writable, stands

SCHEMA_VERSION = "1"
MAX_BYTES = 16 << 20
_RECORD = "record one: latdoctor baseline record --to FILE"


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
    """The numeric readings of `evidence` without label splits, in a stable order.

    Only known ones: a multiple of "at least 1 s" would be no limit.
    """
    rows = {
        (reading.signal, reading.subject): Remembered(
            reading.signal, reading.subject, float(reading.value), reading.note
        )
        for reading in evidence.readings
        if not (reading.labels or reading.bound)
        if not isinstance(reading.value, str) and not is_unknown(reading.value)
    }
    return Baseline(target, at, tuple(rows[key] for key in sorted(rows)))


def left_out(evidence: Evidence, recorded: Baseline, wanted: frozenset[str]) -> tuple[Gap, ...]:
    """Why signals of `wanted` are not in `recorded`, though the sources that were read might show them."""
    absent = wanted - {row.signal for row in recorded.values}
    bounds = (
        Gap("bounds", f"no more is known than {reading.bound} a value", (reading.signal,), code=GapCode.INSUFFICIENT)
        for reading in evidence.readings
        if reading.signal in absent and reading.bound
    )
    hidden = (
        Gap(gap.source, gap.reason, tuple(name for name in gap.signals if name in absent), code=gap.code)
        for gap in evidence.gaps
        if absent.intersection(gap.signals)
    )
    return tuple(dict.fromkeys((*bounds, *hidden)))


def may_be_written(path: Path, *, force: bool) -> None:
    """Raises BundleError where no baseline can be written to `path`, or one is there and not to be lost."""
    if not path.parent.is_dir():
        raise BundleError(
            "the baseline cannot be written: its folder does not exist",
            where=str(path),
            next_step="make the folder, or choose another place",
        )
    must_be_writable(path, "the baseline")
    if not stands(path):
        return
    if not path.is_file():
        raise BundleError("is not a regular file", where=str(path), next_step="choose another place")
    if not force:
        raise BundleError("already exists", where=str(path), next_step="choose another name, or overwrite it: --force")


def save(baseline: Baseline, path: Path, *, force: bool = False) -> None:
    """Writes the whole file or nothing. Raises BundleError where it cannot, or (without `force`) where one is."""
    may_be_written(path, force=force)
    real = path.resolve()
    try:
        with tempfile.TemporaryDirectory(prefix=".latdoctor-", dir=real.parent) as scratch:
            made = Path(scratch) / "baseline.json"
            made.write_bytes(encoded(baseline))
            made.replace(real)
    except OSError as error:
        raise cannot_write(path, "the baseline", error) from error


def encoded(baseline: Baseline) -> bytes:
    return msgspec.json.format(msgspec.json.encode(baseline, order="sorted"), indent=1)


def load(path: Path) -> Baseline:
    """Raises BundleError where `path` is not a readable baseline of this version."""
    try:
        if path.exists() and not path.is_file():
            raise BundleError("not a regular file", where=str(path), next_step=_RECORD)
        if path.stat().st_size > MAX_BYTES:
            raise BundleError(f"larger than {MAX_BYTES >> 20} MiB: not a baseline", where=str(path), next_step=_RECORD)
        return decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise BundleError(
            f"the baseline cannot be read: {error.strerror}",
            where=str(path),
            next_step=f"check the path, or record one at a healthy time: latdoctor baseline record --to {path}",
        ) from error


def decoded(raw: bytes, where: str) -> Baseline:
    try:
        found = msgspec.json.decode(raw, type=Baseline)
    except UNDECODABLE as error:
        raise BundleError(f"not a baseline: {error}", where=where, next_step=_RECORD) from error
    if found.schema_version != SCHEMA_VERSION:
        raise BundleError(
            f"baseline of version {found.schema_version}, {SCHEMA_VERSION} is read", where=where, next_step=_RECORD
        )
    return found
