"""`torch.cuda.memory_stats()` saved as JSON, flat or nested. Counts and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import SourceError

MAX_BYTES = 16 << 20
_KEYS = ("allocated_bytes.all.current", "reserved_bytes.all.current", "num_alloc_retries")
_HOW = "json.dump(torch.cuda.memory_stats(), open(FILE, 'w')) writes one"
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of one device by their flat names (`reserved_bytes.all.current`)."""

    values: Mapping[str, float]

    def get(self, name: str) -> float | None:
        return self.values.get(name)

    @property
    def age(self) -> float:
        """Grows with every allocation: of two statistics of one process the one with more of it is the later."""
        return self.values.get("allocation.all.allocated", 0.0)


def looks_like(content: bytes) -> bool:
    """Is it JSON, by its first byte that is no blank?"""
    return content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def stats(content: bytes, where: str) -> Stats:
    """Raises SourceError for what is no JSON, or holds no statistics of the allocator."""
    try:
        told = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except UNDECODABLE as error:
        raise SourceError(f"is no readable JSON: {error}", where=where, next_step=_HOW) from error
    values: dict[str, float] = {}
    _flatten(told, "", values, _DEPTH)
    if not any(key in values for key in _KEYS):
        raise SourceError("holds no statistics of PyTorch's allocator", where=where, next_step=_HOW)
    return Stats(values)


def _flatten(value: object, prefix: str, into: dict[str, float], depth: int) -> None:
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            _flatten(inner, f"{prefix}.{key}" if prefix else str(key), into, depth - 1)
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        into[prefix] = float(value)
