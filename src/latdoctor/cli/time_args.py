"""The past time range and the Prometheus server of the options: `--since 2h --until 03:10`."""

from __future__ import annotations

import datetime
import re
import time
from dataclasses import dataclass

from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.credential_files import warn_if_readable
from latdoctor.cli.options import SourceOptions
from latdoctor.collectors.base import PrometheusServer
from latdoctor.collectors.log_end import last_end
from latdoctor.collectors.promql.client import AUTH_FILE, prometheus_endpoint
from latdoctor.collectors.time_range import TimeRange
from latdoctor.dialects.promql import parse_matchers
from latdoctor.errors import UsageError
from latdoctor.sanitize import clean
from latdoctor.units import elapsed, parse_duration

SINCE = 3600.0  # seconds before the end
WINDOW = 300.0  # twenty samples, where one is taken every 15 s
SHORTEST, LONGEST_RANGE = 10.0, 90 * 86400.0
DAY = datetime.timedelta(days=1)
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")


def past_of(sources: SourceOptions, settings: TargetSettings) -> TimeRange | None:
    """The requested time range; the last hour where only a Prometheus server is named. Raises UsageError.

    `--until` counts from now, and `--since` from `--until`, written or not: `2h` is two hours before it, `02:30` the
    last time before it that it was that late. Where `--until` is not written and only logs are read, which ended before
    the window that would be judged, it is the end of the last of them.
    """
    named = sources.prometheus or settings.prometheus
    if sources.select and not named:
        raise UsageError("--select is for --prometheus URL", next_step="name the server, or leave it out")
    for option, value in (("--since", sources.since), ("--until", sources.until)):
        if value and not (named or sources.log or settings.log):
            step = "name one of them, or leave it out"
            raise UsageError(f"{option} is for --prometheus URL and --log FILE", next_step=step)
    if not (named or sources.since or sources.until):
        return None
    now = time.time()
    until = moment(sources.until, now, "--until") if sources.until else now
    if not (named or sources.until or sources.server or settings.server or sources.pid is not None):
        until = _end_of_logs(sources, settings, now)
    since = moment(sources.since, until, "--since") if sources.since else until - SINCE
    wrong = _wrong(since, until, now)
    if wrong:
        raise UsageError(
            f"from {_shown(since)} to {_shown(until)} {wrong}",
            where="--since",
            next_step="write it such as --since 2h (before --until), or --since 02:30 --until 03:10",
        )
    window = parse_duration(sources.window) if sources.window else min(WINDOW, until - since)
    return TimeRange(since, until, min(window, until - since))


def _end_of_logs(sources: SourceOptions, settings: TargetSettings, now: float) -> float:
    """The end of logs that ended before the judged window; `now` where they go on, or begin only after `--since`."""
    end = last_end(sources.log or settings.log, now)
    window = parse_duration(sources.window) if sources.window else WINDOW
    if end is None or end >= now - window:
        return now
    return end if moment(sources.since, end, "--since") < end - SHORTEST else now


def _wrong(since: float, until: float, now: float) -> str:
    if until > now + 60:
        return "is in the future"
    if until <= since:
        return "is empty: --since is not before --until"
    if until - since < SHORTEST:
        return "is shorter than 10 s"
    return "is longer than 90 days" if until - since > LONGEST_RANGE else ""


def _shown(moment: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # the year 1 of one zone is the year 0 of another
        return "an invalid time"


def server_of(sources: SourceOptions, settings: TargetSettings, past: TimeRange | None) -> PrometheusServer | None:
    """The named Prometheus server. Raises UsageError."""
    url = sources.prometheus or settings.prometheus
    if not url or past is None:
        return None
    warn_if_readable(settings.prometheus_auth, AUTH_FILE)
    return PrometheusServer(
        access=prometheus_endpoint(url, settings.prometheus_auth, settings.prometheus_ca),
        since=past.since,
        until=past.until,
        window=past.window,
        select=_select(sources.select or settings.select),
    )


def moment(text: str, now: float, where: str) -> float:
    """`2h` (before `now`), `02:30` (the last time before `now` that it was that late) or `2026-11-22T02:30:00Z` → unix
    seconds.

    A time without a zone is this machine's. Raises UsageError.
    """
    today = time_of_day(text, now)
    if today is not None:
        return (today if today.timestamp() <= now else today - DAY).timestamp()
    stripped = text.strip()
    try:
        return now - parse_duration(stripped)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(stripped).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{clean(stripped, 60)!r} is not a time",
            where=where,
            next_step=f"write it such as {where} 2h, {where} 02:30",
        ) from error


def time_of_day(text: str, now: float) -> datetime.datetime | None:
    """`02:30` or `02:30:15` as that time of today, by this machine's clock; None for other texts."""
    clock = _CLOCK.fullmatch(text.strip())
    if clock is None:
        return None
    hour, minute, second = (int(part or 0) for part in clock.groups())
    return datetime.datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=second, microsecond=0)


def name_of(sources: SourceOptions) -> str:
    """The name of a target of which only a Prometheus server is named."""
    return prometheus_endpoint(sources.prometheus).name


def _select(text: str) -> tuple[str, ...]:
    try:
        return parse_matchers(text)
    except ValueError as error:
        raise UsageError(
            f"{clean(text, 80)!r}: {error}", where="--select", next_step="write it such as --select '{job=\"vllm\"}'"
        ) from error


# An SOP counts minutes; a start more than a week ago is a mistyped date rather than a current incident.
LONGEST_AGO = 7 * 86400.0  # seconds
_WHERE = "--began"


@dataclass(frozen=True, slots=True)
class IncidentStart:
    """When the incident began: `at` in unix seconds; `message` confirms it to the user."""

    at: float
    message: str


def began(text: str, now: float) -> IncidentStart:
    """Raises UsageError for an invalid time, one in the future, and one more than LONGEST_AGO back."""
    today = time_of_day(text, now)
    at = moment(text, now, _WHERE) if today is None else _last(today, now)
    if at > now:
        raise UsageError("must not be in the future", where=_WHERE, next_step="give a past time")
    if now - at > LONGEST_AGO:
        raise UsageError(
            f"{clean(text.strip(), 60)!r} is more than {LONGEST_AGO / 86400:g} days ago: the stages are due within"
            " minutes of it, so it is probably a mistyped date",
            where=_WHERE,
            next_step="leave it out to count from now; latdoctor diagnose BUNDLE analyses a past incident",
        )
    return IncidentStart(at, _understood(at, now))


def _last(today: datetime.datetime, now: float) -> float:
    """A time of day that is still to come is that of yesterday where that is nearer. Raises UsageError where not."""
    yesterday = today - DAY
    if today.timestamp() <= now:
        return today.timestamp()
    if now - yesterday.timestamp() <= today.timestamp() - now:
        return yesterday.timestamp()
    raise UsageError(
        f"{today.astimezone():%H:%M:%S %Z} is in the future today, and that of yesterday was"
        f" {elapsed(now - yesterday.timestamp())} ago",
        where=_WHERE,
        next_step=f"add the day, such as {_WHERE} {yesterday:%Y-%m-%dT%H:%M:%S}",
    )


def _understood(at: float, now: float) -> str:
    """`It began 2026-11-22 02:47:00 CET (local time), 0:12:10 ago.`"""
    known, today = (datetime.datetime.fromtimestamp(one).astimezone() for one in (at, now))
    day = ", yesterday" if known.date() == today.date() - DAY else ""
    return f"It began {known:%Y-%m-%d %H:%M:%S %Z} (local time){day}, {elapsed(now - at)} ago."
