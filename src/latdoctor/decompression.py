"""Limit of what a compressed file may unpack to, against decompression bombs."""

from __future__ import annotations

from typing import Final

MAX_RATIO: Final = 100  # real logs, traces and metrics pages: up to 30
ALWAYS_ALLOWED: Final = 64 << 20  # bytes; a second or two of work, whatever the ratio


def unpacked_limit(packed: int, most: int) -> int:
    """Bytes that `packed` compressed bytes may unpack to, at most `most`."""
    return min(most, max(ALWAYS_ALLOWED, MAX_RATIO * packed))
