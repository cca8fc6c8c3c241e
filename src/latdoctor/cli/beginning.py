"""When the trouble began, as a human says it: `--began 10min`, `--began 02:47`, and how that was understood."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from latdoctor.cli.past import DAY, moment, time_of_day
from latdoctor.errors import UsageError
from latdoctor.report.sop import span
from latdoctor.text import clean

# An SOP counts minutes; what lies further back than a week is a mistyped date rather than an incident of now.
LONGEST = 7 * 86400.0  # seconds
_WHERE = "--began"


@dataclass(frozen=True, slots=True)
class Began:
    """`at` is unix seconds; `says` is for whoever gave it."""

    at: float
    says: str


def began(text: str, now: float) -> Began:
    """Raises UsageError for what is no time, is still to come, or is longer ago than LONGEST."""
    today = time_of_day(text, now)
    at = moment(text, now, _WHERE) if today is None else _last(today, now)
    if at > now:
        raise UsageError("what has not begun yet is no incident", where=_WHERE, next_step="give a time that is past")
    if now - at > LONGEST:
        raise UsageError(
            f"{clean(text.strip(), 60)!r} is more than {LONGEST / 86400:g} days ago: the stages are due within minutes"
            " of it, so it is rather a mistyped date",
            where=_WHERE,
            next_step="leave it out to count from now; latdoctor diagnose BUNDLE looks at what is long over",
        )
    return Began(at, _understood(at, now))


def _last(today: datetime.datetime, now: float) -> float:
    """A time of day that is still to come is that of yesterday where that is nearer. Raises UsageError where not."""
    yesterday = today - DAY
    if today.timestamp() <= now:
        return today.timestamp()
    if now - yesterday.timestamp() <= today.timestamp() - now:
        return yesterday.timestamp()
    raise UsageError(
        f"{today.astimezone():%H:%M:%S %Z} is still to come today, and that of yesterday was"
        f" {span(now - yesterday.timestamp())} ago",
        where=_WHERE,
        next_step=f"say the day too, such as {_WHERE} {yesterday:%Y-%m-%dT%H:%M:%S}",
    )


def _understood(at: float, now: float) -> str:
    """`It began 2026-11-22 02:47:00 CET (local time), 0:12:10 ago.`"""
    told, today = (datetime.datetime.fromtimestamp(one).astimezone() for one in (at, now))
    day = ", yesterday" if told.date() == today.date() - DAY else ""
    return f"It began {told:%Y-%m-%d %H:%M:%S %Z} (local time){day}, {span(now - at)} ago."
