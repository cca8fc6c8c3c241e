"""Time zones as logs write them behind a time: `Z`, `+0200`, `-07:00`, `UTC+8`, `CEST`, `-0700 PDT`, `Europe/Berlin`.

Abbreviations that stand for several zones have the meaning of RFC 5322 (CST is that of North America), else the one of
most people (IST is that of India).
"""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime
from functools import lru_cache

# Hours ahead of UTC.
_HOURS = {
    "Z": 0, "UTC": 0, "GMT": 0, "UCT": 0, "WET": 0, "WEST": 1, "BST": 1, "CET": 1, "MEZ": 1, "CEST": 2, "MESZ": 2,
    "MET": 1, "MEST": 2, "EET": 2, "EEST": 3, "SAST": 2, "CAT": 2, "EAT": 3, "WAT": 1, "MSK": 3, "TRT": 3, "IDT": 3,
    "GST": 4, "PKT": 5, "IST": 5.5, "NPT": 5.75, "WIB": 7, "ICT": 7, "SGT": 8, "HKT": 8, "PHT": 8, "MYT": 8, "AWST": 8,
    "JST": 9, "KST": 9, "ACST": 9.5, "ACDT": 10.5, "AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13, "NST": -3.5,
    "NDT": -2.5, "AST": -4, "ADT": -3, "BRT": -3, "ART": -3, "CLT": -4, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5,
    "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10,
}  # fmt: skip
_MOST = 14 * 3600 + 1  # seconds that a zone is ahead of or behind UTC, at most

_NAMES = "|".join(sorted((name for name in _HOURS if len(name) > 1), key=len, reverse=True))
_AREA = r"(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific|Etc|US)/[\w+-]{2,30}(?:/\w{2,30})?"
_ZONE = re.compile(
    r"[ ]?(?:(?P<prefix>UTC|GMT)?(?P<sign>[+\u2212-])(?P<hours>\d\d?)(?::?(?P<minutes>\d\d))?(?::\d\d)?(?![\d:.])"
    rf"(?: (?:{_NAMES}|[+-]\d\d(?:\d\d)?)\b)?(?: m=[+-][\d.]{{1,30}}|\[{_AREA}\])?"
    rf"|[\[(]?(?P<area>{_AREA})[\])]?|(?P<name>(?:Z|{_NAMES}))(?![\w/.+-]))"
)


class Zone:
    """A zone of a time: `end` is the index behind it, `offset` gives its seconds ahead of UTC at a local time."""

    __slots__ = ("_area", "_offset", "end")

    def __init__(self, end: int, offset: float, area: str = "") -> None:
        self.end = end
        self._offset = offset
        self._area = area

    def offset(self, local: float) -> float | None:
        """Seconds ahead of UTC at `local`, unix seconds as if it were UTC; None if the zone is unknown here."""
        return _offset_of_area(self._area, local // 900 * 900) if self._area else self._offset


def zone_at(text: str, start: int) -> Zone | None:
    """The zone at `start`, behind a time; None if there is none."""
    found = _ZONE.match(text, start)
    if found is None:
        return None
    if found["area"]:
        return Zone(found.end(), 0.0, found["area"])
    if found["name"]:
        return Zone(found.end(), _HOURS[found["name"]] * 3600.0)
    hours, minutes, spaced = found["hours"], found["minutes"], text[start : start + 1] == " "
    # ` -5 items`: a number of one or two digits is an offset only if nothing stands between it and the time.
    if minutes is None and not found["prefix"] and (spaced or len(hours) < 2):
        return None
    if len(hours) == 1 and not found["prefix"]:
        return None
    seconds = int(hours) * 3600.0 + int(minutes or 0) * 60.0
    if seconds > _MOST or int(minutes or 0) > 59:
        return None
    return Zone(found.end(), seconds if found["sign"] == "+" else -seconds)


@lru_cache(maxsize=4096)
def _offset_of_area(area: str, local: float) -> float | None:
    try:
        moment = datetime.fromtimestamp(local, tz=UTC).replace(tzinfo=zoneinfo.ZoneInfo(area))
        ahead = moment.utcoffset()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OverflowError, OSError):  # no database here, or no such area
        return None
    return None if ahead is None else ahead.total_seconds()
