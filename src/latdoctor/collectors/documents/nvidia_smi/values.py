"""How nvidia-smi writes a value: a number with a unit, or a word for why there is none (`N/A`, `ERR!`)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from latdoctor.collectors.nvml.readings import NotDerived
from latdoctor.collectors.nvml.samples import NvmlCode, Unavailable
from latdoctor.gap_code import GapCode

MISSING = NotDerived("the text does not contain it", None, GapCode.ABSENT)
MIB = float(1 << 20)

_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z%/]{0,6})")
_FACTORS = {
    "MHz": 1e6,
    "KiB": 1024.0,
    "MiB": MIB,
    "MB": MIB,
    "GiB": float(1 << 30),
    "KB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "%": 0.01,
    "mW": 1e-3,
    "W": 1.0,
    "C": 1.0,
    "us": 1e-6,
}
_CODES = {
    "n/a": NvmlCode.NOT_SUPPORTED,
    "-": NvmlCode.NOT_SUPPORTED,
    "not supported": NvmlCode.NOT_SUPPORTED,
    "requested functionality has been deprecated": NvmlCode.NOT_SUPPORTED,
    "function not found": NvmlCode.FUNCTION_NOT_FOUND,
    "insufficient permissions": NvmlCode.NO_PERMISSION,
    "gpu is lost": NvmlCode.GPU_IS_LOST,
    "gpu requires reset": NvmlCode.RESET_REQUIRED,
    "gpu requires restart": NvmlCode.RESET_REQUIRED,
    "reset required": NvmlCode.RESET_REQUIRED,
    "err!": NvmlCode.UNKNOWN,
    "unknown error": NvmlCode.UNKNOWN,
}
_CTIME = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SLASHED = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(\.\d{1,6})?")


def refusal(text: str | None) -> Unavailable | None:
    """Why `text` is no value; None where it is one."""
    if text is None:
        return MISSING
    word = text.strip().strip("[]").strip().lower()
    if not word:
        return MISSING
    if code := _CODES.get(word):
        return Unavailable({"err!": "unknown error", "n/a": "not available"}.get(word, word), code)
    return None


def number(text: str | None, factor: float = 1.0) -> float | Unavailable:
    """A number in base units; `factor` applies where the text has no unit."""
    why = refusal(text)
    if why is not None or text is None:
        return why or MISSING
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        return Unavailable("unreadable value")
    return float(found[1]) * _FACTORS.get(found[2], factor)


def word(text: str | None) -> str | Unavailable:
    """A text; unavailable where a word for its absence stands there."""
    if text is None:
        return MISSING
    return refusal(text) or text.strip()


def flag(text: str | None) -> float | Unavailable:
    """1 for Yes, Enabled, Active and On, 0 for their opposites."""
    why = refusal(text)
    if why is not None or text is None:
        return why or MISSING
    states = {"yes": 1.0, "enabled": 1.0, "active": 1.0, "on": 1.0}
    states |= {"no": 0.0, "disabled": 0.0, "not active": 0.0, "off": 0.0}
    return states.get(text.strip().lower(), Unavailable("unreadable value"))


def time_of(text: str) -> float | None:
    """`Thu Jan 15 02:04:13 2026` or `2026/01/15 02:04:13.120`, taken as UTC; None for anything else."""
    if (found := _CTIME.search(text)) and found[1] in _MONTHS:
        day, hour, minute, second, year = (int(part) for part in found.groups()[1:])
        month, fraction = _MONTHS.index(found[1]) + 1, 0.0
    elif found := _SLASHED.search(text):
        year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
        fraction = float(found[7] or 0)
    else:
        return None
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() + fraction
    except ValueError:
        return None
