"""Quantities of Kubernetes in bytes or units: `512Mi`, `2G`, `1e3`, `500m`."""

from __future__ import annotations

import re

_FORM = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(|m|k|Ki|[MGTPE]i?)")
_FACTORS = {"": 1.0, "m": 1e-3, "k": 1e3, "Ki": 1024.0}
for _power, _letter in enumerate("MGTPE", start=2):
    _FACTORS[_letter] = 1000.0**_power
    _FACTORS[f"{_letter}i"] = 1024.0**_power


def quantity(text: str) -> float:
    """Raises ValueError; the API server accepts no such text."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"not a quantity: {text!r}")
    return float(found[1]) * _FACTORS[found[2]]
