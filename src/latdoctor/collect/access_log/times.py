"""Times and durations as access logs write them.

Times: `10/Oct/2000:13:55:36 -0700` (Apache, nginx; HAProxy with milliseconds), ISO 8601 with or without a zone, and
unix time in seconds, milliseconds, microseconds or nanoseconds, which are told apart by their size. Durations: a number
with its unit (`12ms`, `0.5 s`, `1m2.5s` as Go writes it), or a number whose unit its name tells.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache

from latdoctor.collect.access_log.entry import Duration, Stamp

_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: n for n, name in enumerate(_NAMES, 1)}
_CLF = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: ?([+-]\d{4}|Z))?")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII)
_NUMBER = re.compile(r"\d{9,19}(?:\.\d{1,9})?")
_QUANTITY = re.compile(
    r"(\d{1,15}(?:\.\d{1,12})?(?:e[+-]?\d{1,2})?)\s*(h|msec|ms|min|m|seconds?|sec|s|us|µs|ns)?(?![a-z])", re.I
)
_UNITS = {
    "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3,
    "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
}  # fmt: skip
_LONGEST = 30 * 86400.0  # seconds; no request takes longer, so that such a number is none


def stamp(text: str) -> Stamp | None:
    """The time that `text` as a whole is, or None."""
    found = _CLF.fullmatch(text)
    if found:
        day, month, year, *rest = found.groups()
        return _stamp((year, str(_MONTHS.get(month, 0)), day), *rest)
    found = _ISO.fullmatch(text)
    if found:
        return _stamp(found.group(1, 2, 3), *found.groups()[3:])
    return unix(float(text), fine="." in text) if _NUMBER.fullmatch(text) else None


def unix(number: float, *, fine: bool) -> Stamp | None:
    """Unix time in whatever unit: 10¹¹ seconds are the year 5138, as milliseconds 1973."""
    for limit, factor in ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6), (1e20, 1e-9)):
        if 0 < number < limit:
            return Stamp(number * factor, fine or factor < 1, True)
    return None


def _stamp(
    date: tuple[str, ...], hour: str, minute: str, second: str, fraction: str | None, zone: str | None
) -> Stamp | None:
    whole = _whole(date, hour, minute, second, zone or "")
    if whole is None:
        return None
    return Stamp(whole + float(f"0.{fraction}") if fraction else whole, bool(fraction), zone is not None)


@lru_cache(maxsize=4096)
def _whole(date: tuple[str, ...], hour: str, minute: str, second: str, zone: str) -> float | None:
    """Unix seconds without their fraction. Many lines share a second."""
    try:
        year, month, day = (int(part) for part in date)
        told = datetime(year, month, day, int(hour), int(minute), min(int(second), 59), tzinfo=UTC).timestamp()
    except ValueError:  # 31 February and the like
        return None
    if zone in ("", "Z", "UTC"):
        return told
    digits = zone[1:].replace(":", "")
    offset = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return told + offset if zone[0] == "-" else told - offset


def duration(text: str, unit: float | None = None) -> Duration | None:
    """`text` as a duration; `unit` (seconds) is that of a number which names none. None where it is no duration."""
    total, step, position = 0.0, math.inf, 0
    text = text.strip().replace("\u03bc", "µ")  # the Greek letter that Go writes, for the sign
    while position < len(text):
        found = _QUANTITY.match(text, position)
        factor = None if not found else _UNITS[found[2].lower()] if found[2] else unit
        if found is None or factor is None or (position and not found[2]):
            return None
        total += float(found[1]) * factor
        step = min(step, factor * 10.0 ** -_decimals(found[1]))
        position = found.end()
    return Duration(total, step) if position and 0 <= total <= _LONGEST else None


def _decimals(number: str) -> int:
    return 0 if "e" in number.lower() else len(number.partition(".")[2])


def took(number: float, unit: float) -> Duration | None:
    """A number of JSON as a duration. How finely it is told cannot be seen of a whole float, so its unit tells."""
    seconds = number * unit
    if not (math.isfinite(seconds) and 0 <= seconds <= _LONGEST):
        return None
    return Duration(seconds, unit if number == int(number) else unit * 1e-3)


def between(came: Stamp | None, went: Stamp | None) -> Duration | None:
    """The duration that entry and exit tell; None where the clock was set back in between."""
    if came is None or went is None or not 0 <= went.time - came.time <= _LONGEST:
        return None
    return Duration(went.time - came.time, 1e-6 if came.fine and went.fine else 1.0)
