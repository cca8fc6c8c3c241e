"""The time at the beginning of a log line, in the forms of loggers, servers and system logs. Pure.

* Dates: `2025-05-19`, `2025/05/19`, `20250519`, `19.05.2025`, `05/19/2025`, `19/May/2025`, `19 mai 2025`,
  `May 19, 2025`; without a year `05-19`, `May 19`, `5月 19`, `19. Mai`, and glog's `I0519`. `a/b/2025` is month and day
  unless only the reverse is a date.
* Times: `10:13:13`, with a fraction behind `.`, `,` or `:`, with AM or PM, and with a zone (`time_zones.py`).
* Unix times in seconds, milliseconds, microseconds or nanoseconds.

A time without a zone is read as UTC. A missing year is the latest in which the time is not after the log was written,
so that a log across New Year is read rightly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from latdoctor.collectors.logs.month_names import MONTH, month_number
from latdoctor.collectors.logs.time_zones import zone_at

_MINUTES = r"(?P<H>\d{1,2}):(?P<M>\d\d)"
_SECONDS = r":(?P<S>\d\d)(?:[.,](?P<f>\d{1,9})|:(?P<f3>\d{3})(?!\d))?"
_END = r"(?!\d|:\d)(?: ?(?P<half>[AaPp])\.?[Mm]\b\.?)?"
_CLOCK = rf"{_MINUTES}(?:{_SECONDS})?{_END}"
_FULL_CLOCK = rf"{_MINUTES}{_SECONDS}{_END}"
_GAP = r"(?:[Tt_]|,? {1,3}(?:at )?|-| - |:)"
_DAY = r"(?:(?:[^\W\d_]{1,3}\.?|[^\W\d_]{2,8}(?:day|tag)),? {1,2})?"  # of the week

# The first that matches is taken. Groups: y, mo or mon, d or md, and those of the clock.
_FORMS = tuple(
    re.compile(form)
    for form in (
        # 2025-05-19 10:13:13, 2025/05/19 - 20:20:32, Mon 2025-05-19 10:13:13 CEST
        rf"{_DAY}(?P<y>\d{{4}})(?P<sep>[-/.])(?P<mo>\d{{1,2}})(?P=sep)(?P<d>\d{{1,2}}){_GAP}{_CLOCK}",
        # 20250519T101313Z
        r"(?P<y>\d{4})(?P<mo>\d\d)(?P<d>\d\d)[Tt](?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?(?!\d)",
        # 20250519 10:13:13, 20250519-10:13:13
        rf"(?P<y>\d{{4}})(?P<mo>\d\d)(?P<d>\d\d)[Tt _-]{_CLOCK}",
        # 19/May/2025:10:13:13 +0000, 19-Mai-2025 10:13:13, Mo 19. Mai 2025 10:13:13
        rf"{_DAY}(?P<d>\d{{1,2}})\.?[/ -](?P<mon>{MONTH})[/ -](?P<y>\d{{4}}){_GAP}{_CLOCK}",
        # 19.05.2025 10:13:13, 05/19/2025-10:13:13, 05/19/25 10:13:13
        rf"(?P<a>\d{{1,2}})(?P<sep>[./-])(?P<b>\d{{1,2}})(?P=sep)(?P<y>\d{{4}}|\d\d){_GAP}{_CLOCK}",
        # May 19, 2025 10:13:13 AM, Feb 23 2025 16:24:18
        rf"{_DAY}(?P<mon>{MONTH}) {{1,3}}(?P<d>\d{{1,2}}),? (?P<y>\d{{4}}){_GAP}{_CLOCK}",
        # 05-19 10:13:13
        rf"(?P<mo>\d\d)[-/](?P<d>\d\d)[T ]{_FULL_CLOCK}",
        # May 19 10:13:13, févr. 03 10:13:13, Sun Feb 23 16:24:18 CET 2025
        rf"{_DAY}(?P<mon>{MONTH}) {{1,3}}(?P<d>\d{{1,2}}) {_FULL_CLOCK}",
        # 19. Mai 10:13:13, So 23. Feb 16:24:18 CET 2025
        rf"{_DAY}(?P<d>\d{{1,2}})\.? (?P<mon>{MONTH}) {_FULL_CLOCK}",
        # I0519 10:13:13.123456, E519 of PyTorch, I20250519 of glog 0.6
        rf"[IWEFDCV](?P<y>\d{{4}})?(?P<md>\d{{3,4}}) {_FULL_CLOCK}",
        # W0000 00:00:1716113593.123456 of programs without a calendar (JAX)
        r"[IWEFDC]0000 00:00:(?P<epoch>\d{10}\.\d{6})",
        # 1747649593.123456, 1747649593123
        r"(?P<epoch>\d{10}(?:\.\d{1,9})?|\d{13}(?:\.\d{1,6})?|\d{16}|\d{19})(?![\w.:/-])",
    )
)
_FROM_DIGITS = (*_FORMS[:5], *_FORMS[6:9], _FORMS[11])
_FROM_WORDS = (_FORMS[0], _FORMS[3], _FORMS[5], *_FORMS[7:11])
_FROM_WORDS_LIKE = re.compile(r"[IWEFDCV](?:\d{4})?\d{3,4} |(?:[^\W\d_]{1,12}\.?,? {1,3}){1,2}\d")
_YEAR_BEHIND = re.compile(r" (\d{4})(?!\d)")
_EPOCH_UNITS = {10: 1.0, 13: 1e-3, 16: 1e-6, 19: 1e-9}  # by the number of digits
_EARLIEST, _LATEST = 946684800.0, 4102444800.0  # 2000 and 2100: other numbers are no times


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time at one place of a text, and the index behind it. `time` is None for a date that does not exist."""

    time: float | None  # unix seconds UTC
    zoned: bool
    end: int
    epoch: bool = False  # a plain number, which may be something else


def stamp_at(text: str, start: int, written_at: float) -> Stamp | None:
    """The time at `start` of a cleaned text, or None. `written_at` (unix seconds) supplies a missing year."""
    head = text[start : start + 1]
    if head.isdigit():
        forms = _FROM_DIGITS
    elif head.isalpha() and _FROM_WORDS_LIKE.match(text, start):
        forms = _FROM_WORDS
    else:
        return None
    for form in forms:
        if (found := form.match(text, start)) and (stamp := _stamp(text, found, written_at)):
            return stamp
    return None


def epoch_time(number: str) -> float | None:
    """The unix seconds that a text of digits is, in whatever unit; None if it is not a time of this century."""
    whole = number.partition(".")[0]
    unit = _EPOCH_UNITS.get(len(whole))
    if unit is None or not whole.isascii() or not whole.isdigit():
        return None
    seconds = float(number) * unit
    return seconds if _EARLIEST < seconds < _LATEST else None


def _stamp(text: str, found: re.Match[str], written_at: float) -> Stamp | None:
    """None for what has the form of a time but names no month."""
    named = found.groupdict()
    if named.get("epoch"):
        time = epoch_time(found["epoch"])
        return None if time is None else Stamp(time, True, found.end(), epoch=True)
    end = found.end()
    zone = zone_at(text, end)
    end = zone.end if zone else end
    year = int(named["y"]) if named.get("y") else None
    # Behind the time of glog stands the number of a thread.
    if year is None and named.get("mon") and (behind := _YEAR_BEHIND.match(text, end)):
        year, end = int(behind[1]), behind.end()
    dates = tuple(_dates(named))
    if year is not None and year < 100:
        if "a" not in named:  # four digits that begin with zeros
            return Stamp(None, False, end)
        year, dates = _short_year(named, year + 2000, dates, written_at)
    if not dates:
        return None
    clock = (_hour(named), int(named["M"] or 0), int(named["S"] or 0))
    readings = (
        _without_year(*date, *clock, written_at) if year is None else _unix(year, *date, *clock) for date in dates
    )
    local = next((one for one in readings if one is not None), None)
    if local is None:
        return Stamp(None, False, end) if year is not None or named.get("mon") else None
    fraction = named.get("f") or named.get("f3")
    local += float(f"0.{fraction}") if fraction else 0.0
    offset = zone.offset(local) if zone else None
    return Stamp(local - (offset or 0.0), offset is not None, end)


def _dates(named: dict[str, str | None]) -> Iterator[tuple[int, int]]:
    """Month and day that the groups may mean, the likelier first."""
    if (month_day := named.get("md")) is not None:
        yield int(month_day[:-2]), int(month_day[-2:])
    elif (first := named.get("a")) is not None:
        a, b = int(first), int(named["b"] or 0)
        yield from ((a, b), (b, a)) if named["sep"] == "/" else ((b, a), (a, b))
    elif (name := named.get("mon")) is not None:
        month = month_number(name)
        if month is not None:
            yield month, int(named["d"] or 0)
    else:
        yield int(named["mo"] or 0), int(named["d"] or 0)


def _short_year(
    named: dict[str, str | None], year: int, dates: tuple[tuple[int, int], ...], written_at: float
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Year and dates of `17/06/09`: the year is last, or first (as Spark writes) where that is nearer to the log."""
    first, day = 2000 + int(named["a"] or 0), year - 2000
    if named["sep"] == "/" and year < first <= _latest(written_at)[0]:
        return first, ((int(named["b"] or 0), day),)
    return year, dates


def _hour(named: dict[str, str | None]) -> int:
    hour, half = int(named["H"] or 0), named.get("half")
    if half and 1 <= hour <= 12:
        return hour % 12 + (12 if half in "pP" else 0)
    return hour


@lru_cache(maxsize=4096)
def _unix(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    try:
        return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:  # 31 February and the like
        return None


def _without_year(month: int, day: int, hour: int, minute: int, second: int, written_at: float) -> float | None:
    """The latest such time that is not after `written_at`, with a day's tolerance for time zones."""
    last_year, latest = _latest(written_at)
    for year in range(last_year, last_year - 9, -1):  # nine years: 29 February around 1900 and 2100
        time = _unix(year, month, day, hour, minute, second)
        if time is not None and time <= latest:
            return time
    return None


@lru_cache(maxsize=64)
def _latest(written_at: float) -> tuple[int, float]:
    """The last year and time that are possible; the year 0 if `written_at` is not a time at all."""
    try:
        latest = datetime.fromtimestamp(written_at, tz=UTC) + timedelta(days=1)
    except (OverflowError, ValueError, OSError):
        return 0, 0.0
    return latest.year, latest.timestamp()
