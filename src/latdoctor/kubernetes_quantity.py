"""Quantities as Kubernetes writes them: `500Mi`, `400m`, `2G`, `1e3`."""

from __future__ import annotations

import math
import re

_QUANTITY = re.compile(r"([+-]?\d{1,18}(?:\.\d{1,18})?)(m|u|n|k|[KMGTPE]i?|[eE][+-]?\d{1,2})?")
_SUFFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}


def quantity(text: object) -> float | None:
    """`500Mi`, `400m`, `2` or `1e3` in base units; None for anything else, such as `<none>`."""
    found = _QUANTITY.fullmatch(str(text).strip())
    if not found:
        return None
    number, suffix = float(found[1]), found[2] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1] != "i":
        value = number * 10.0 ** int(suffix[1:])
    else:
        value = number * _SUFFIXES.get(suffix, _BINARY.get(suffix, 1.0))
    return value if math.isfinite(value) else None
