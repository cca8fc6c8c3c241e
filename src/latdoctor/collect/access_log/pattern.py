"""A pattern of one's own for the lines of an access log: `{time} {*} "{request}" {status} {seconds}`.

A place is `{name}`, or `$name` as nginx's log_format writes it. What stands between places is literal, and each place
ends where the text after it first occurs: so a line is read in one pass, whatever it holds. `{*}` skips, as do names
that tell nothing of latency, so that a log_format can be given as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from latdoctor.collect.access_log import times
from latdoctor.collect.access_log.entry import Duration, Entry
from latdoctor.errors import UsageError

MAX_LENGTH = 1000

# What each place means; nginx's own names beside ours.
_ROLES = {
    "time": "went", "exit": "went", "time_local": "went", "time_iso8601": "went", "msec": "went",
    "entry": "came", "start": "came",
    "seconds": "s", "request_time": "s", "duration": "named unit", "ms": "ms", "us": "us", "ns": "ns",
    "status": "status", "request": "request", "path": "path", "request_uri": "path", "uri": "path",
    "id": "id", "request_id": "id", "replica": "replica",
}  # fmt: skip
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "named unit": None}
_PLACE = re.compile(r"\{(\*|[a-z0-9_]{1,64})\}|\$([a-z0-9_]{1,64})")
_NEXT = "write it such as --log-pattern '{*} [{time}] \"{request}\" {status} {*} {seconds}'"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The text before the first place, and each place with what it means and the text after it."""

    head: str
    places: tuple[tuple[str, str], ...]

    def read(self, line: str) -> Entry | None:
        """`line` taken apart, or None where it is not written so."""
        if not line.startswith(self.head):
            return None
        position = len(self.head)
        parts: dict[str, str] = {}
        for role, after in self.places:
            end = line.find(after, position) if after else len(line)
            if end < 0:
                return None
            if role and role not in parts:
                parts[role] = line[position:end].strip()
            position = end + len(after)
        return _entry(parts)


def compiled(text: str) -> Pattern:
    """Raises UsageError where `text` is no pattern, or one that tells neither a time nor a duration."""
    found = list(_PLACE.finditer(text)) if len(text) <= MAX_LENGTH else []
    if not found:
        raise UsageError(f"{text[:80]!r} has no place in it", where="--log-pattern", next_step=_NEXT)
    places = []
    for number, place in enumerate(found):
        name = place[1] or place[2]
        if place[1] not in (None, "*") and name not in _ROLES:
            known = ", ".join(f"{{{one}}}" for one in _ROLES)
            raise UsageError(f"{{{name}}} is no place", where="--log-pattern", next_step=f"known are {known} and {{*}}")
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        after = text[place.end() : end]
        if not after and number + 1 < len(found):
            raise UsageError(f"nothing stands behind {place[0]}", where="--log-pattern", next_step=_NEXT)
        places.append((_ROLES.get(name, ""), after))
    roles = {role for role, _ in places}
    if not roles & _UNITS.keys() and not {"came", "went"} <= roles:
        raise UsageError("it has no place for how long a request took", where="--log-pattern", next_step=_NEXT)
    return Pattern(text[: found[0].start()], tuple(places))


def _entry(parts: dict[str, str]) -> Entry | None:
    came, went = (times.stamp(parts[role]) if role in parts else None for role in ("came", "went"))
    told = [_UNITS[role] for role in parts if role in _UNITS]
    took: Duration | None = None
    for role, unit in _UNITS.items():
        if role in parts and took is None:
            took = times.duration(parts[role], unit)
    status = parts.get("status", "")
    code = int(status) if status.isascii() and status.isdecimal() and len(status) <= 3 else None
    if (told and took is None) or ("status" in parts and code is None):
        return None
    if not told:
        took = times.between(came, went)
    if any(role in parts and one is None for role, one in (("came", came), ("went", went))):
        return None
    request = parts.get("request", "").split(" ")
    path = parts.get("path") or (request[1] if len(request) > 1 else "")
    return Entry(came, went, took, code, path, parts.get("id", ""), parts.get("replica", ""))
