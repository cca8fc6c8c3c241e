"""Numbers and durations as tools print them: `1,146.31`, `27.21s`, `1m2.5s`, `12901 usec`. None for anything else."""

from __future__ import annotations

import math
import re

UNIT_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0,
    "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0,
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d{1,3})?", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)\s*([a-zµ]+)", re.IGNORECASE)
_LONGEST = 30 * 86400.0  # seconds


def number(text: str) -> float | None:
    """A number with or without separators of thousands."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def seconds(text: str, unit: str = "") -> float | None:
    """A duration with its units; `unit` is that of a bare number."""
    text = text.strip().replace("\u03bc", "µ")
    bare = number(text)
    if bare is not None:
        factor = UNIT_SECONDS.get(unit.lower())
        return None if factor is None else _plausible(bare * factor)
    total, position = 0.0, 0
    for found in _PART.finditer(text):
        factor = UNIT_SECONDS.get(found[2].lower())
        if factor is None or text[position : found.start()].strip():
            return None
        total, position = total + float(found[1]) * factor, found.end()
    return _plausible(total) if position and not text[position:].strip() else None


def _plausible(value: float) -> float | None:
    return value if 0 <= value <= _LONGEST else None
