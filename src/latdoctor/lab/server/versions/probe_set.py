"""The probe set: requests whose right answers are known, sent to both versions of a canary.

A file with a JSON object per line, `{"text": "where is my order", "intent": "order-status"}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.regular_file import read_regular
from latdoctor.sanitize import clean

MAX_BYTES = 4 << 20
MAX_PROBES = 10_000


class ProbeRequest(Struct, frozen=True):
    """A text and its right intent."""

    text: Annotated[str, Meta(min_length=1, max_length=16_384)]
    intent: Annotated[str, Meta(min_length=1, max_length=80)]


def read_probe_set(path: Path) -> Sequence[ProbeRequest]:
    """Raises UsageError for a file that cannot be read or that has no probes."""
    try:
        content = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"the probe set cannot be read: {error.strerror}", where=str(path)) from error
    try:
        probes = [msgspec.json.decode(line, type=ProbeRequest) for line in content.splitlines() if line.strip()]
    except UNDECODABLE as error:
        raise UsageError(f"the probe set is not valid: {clean(str(error), 200)}", where=str(path)) from error
    if not probes or len(probes) > MAX_PROBES or len(content) > MAX_BYTES:
        raise UsageError(f"the probe set has {len(probes)} probes, not 1 to {MAX_PROBES}", where=str(path))
    return probes


def write_probe_set(path: Path, probes: Sequence[ProbeRequest]) -> None:
    """Raises OSError."""
    path.write_bytes(b"".join(msgspec.json.encode(probe) + b"\n" for probe in probes))
