"""`latdoctor forecast`: the request rate 10 to 15 minutes ahead."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from latdoctor.evidence.model import Series
    from latdoctor.planning.replica_plan import ReplicaCapacity

NOTHING_FORECAST = 4
_HISTORY = 7 * 86400.0  # seconds of Prometheus' history without --since
_TIMEOUT = 60.0  # seconds of one query


@dataclass(frozen=True, slots=True)
class _HistoryOptions:
    """The source of the history; exactly one of the first three is named."""

    prometheus: str
    csv: Path | None
    log: Path | None
    query: str
    select: str
    log_pattern: str
    since: str
    until: str
    counts: bool


@dataclass(frozen=True, slots=True)
class _History:
    """What was read. `now`: the time by which the forecast must not be past."""

    series: Sequence[Series]
    source: str
    unit: str
    now: float | None = None


PrometheusUrl = Annotated[
    str, typer.Option("--prometheus", metavar="URL", help="A Prometheus server, for its history.")
]
CsvFile = Annotated[Path | None, typer.Option("--csv", metavar="FILE", readable=False, help="A CSV file: time,value.")]
LogFile = Annotated[Path | None, typer.Option("--log", metavar="FILE", readable=False, help="An access log.")]
Query = Annotated[
    str, typer.Option("--query", metavar="PROMQL", help="The rate (default: arrivals of a recognised server).")
]
Select = Annotated[str, typer.Option("--select", metavar="SELECTOR", help="Only series with these labels.")]
LogPattern = Annotated[str, typer.Option("--log-pattern", metavar="PATTERN", help="The format of the access log.")]
Since = Annotated[
    str,
    typer.Option("--since", metavar="TIME", help="Begin of the history (default: 7d, all of a file)."),
]
Until = Annotated[
    str, typer.Option("--until", metavar="TIME", help="End of the history, from which the forecast counts.")
]
Counts = Annotated[
    bool, typer.Option("--counts", help="The values of the CSV file are counts per step: print rates per second.")
]
Ahead = Annotated[str, typer.Option("--ahead", metavar="TIME", help="How far ahead, at most 4h.")]
PerReplica = Annotated[
    str,
    typer.Option("--per-replica", metavar="RATE", help="What a replica can take, such as 140/s."),
]
Reserve = Annotated[str, typer.Option("--reserve", metavar="SHARE", help="Kept free of --per-replica (default 30%).")]
Replicas = Annotated[int | None, typer.Option("--replicas", metavar="N", min=0, help="Replicas that run now.")]
StartUp = Annotated[
    str, typer.Option("--start-up", metavar="TIME", help="From the start of a replica to its first answer (2min).")
]


def forecast(
    prometheus: PrometheusUrl = "",
    csv: CsvFile = None,
    log: LogFile = None,
    query: Query = "",
    select: Select = "",
    log_pattern: LogPattern = "",
    since: Since = "",
    until: Until = "",
    counts: Counts = False,
    ahead: Ahead = "15min",
    per_replica: PerReplica = "",
    reserve: Reserve = "",
    replicas: Replicas = None,
    start_up: StartUp = "",
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Forecast the request rate 10 to 15 minutes ahead.

    From a history in Prometheus, a CSV file or an access log. Last value, seasonal naive, ETS, ridge and an LSTM
    compete in a backtest of it; the .9 quantile is the figure to plan for. With --per-replica also: how many replicas,
    and by when.

    Exit codes: 0 forecast · 1 the history cannot be read · 2 usage · 4 no forecast, with the reason.
    """
    from msgspec import structs

    from latdoctor.cli.console import progress
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.planning.forecast.forecaster import ForecastRequest
    from latdoctor.planning.forecast.forecaster import forecast as forecast_of
    from latdoctor.planning.replica_plan import replica_plan
    from latdoctor.report.forecast import render_json, render_text

    options = _HistoryOptions(prometheus, csv, log, query, select, log_pattern, since, until, counts)
    _check(options)
    seconds = _ahead(ahead)
    capacity = _capacity(per_replica, reserve, replicas, start_up)
    with interruptible(None), progress("testing methods on the history", takes_time=False):
        history = _read(options)
        request = ForecastRequest(history.source, seconds, history.unit, counts, history.now)
        found = forecast_of(history.series, request)
    if capacity is not None:
        found = structs.replace(found, plan=replica_plan(found, capacity))
    typer.echo(render_json(found) if output is OutputFormat.JSON else render_text(found), nl=False)
    raise typer.Exit(NOTHING_FORECAST if found.no_forecast is not None else 0)


def _check(options: _HistoryOptions) -> None:
    """Raises UsageError unless exactly one source is named, with options that belong to it."""
    from latdoctor.errors import UsageError

    sources = [bool(options.prometheus), options.csv is not None, options.log is not None]
    if sum(sources) != 1:
        count = "no history is named" if not any(sources) else "only one history can be read"
        raise UsageError(count, next_step="name one of --prometheus URL, --csv FILE, --log FILE")
    for name, value, fits, source in (
        ("--query", options.query, options.prometheus, "--prometheus"),
        ("--select", options.select, options.prometheus, "--prometheus"),
        ("--log-pattern", options.log_pattern, options.log, "--log"),
        ("--counts", options.counts, options.csv, "--csv"),
    ):
        if value and not fits:
            raise UsageError(f"{name} is for {source}", next_step="leave it out")
    if options.query and options.select:
        raise UsageError("--select is for a recognised rate", next_step="write the labels into --query")


def _ahead(text: str) -> float:
    """Seconds. Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.planning.forecast.forecaster import LONGEST_AHEAD
    from latdoctor.units import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error), where="--ahead") from error
    if not 0 < seconds <= LONGEST_AHEAD:
        raise UsageError(f"must be greater than 0 and at most 4h (got {text!r})", where="--ahead")
    return seconds


def _capacity(per_replica: str, reserve: str, replicas: int | None, start_up: str) -> ReplicaCapacity | None:
    """Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.planning.replica_plan import ReplicaCapacity
    from latdoctor.units import parse_duration, parse_quantity, parse_share

    if not per_replica:
        if reserve or start_up or replicas is not None:
            step = "add --per-replica RATE, or leave them out"
            raise UsageError("--reserve, --replicas and --start-up are for --per-replica", next_step=step)
        return None
    where = "--per-replica"
    try:
        rate = parse_quantity(per_replica)
        where = "--reserve"
        kept = parse_share(reserve or "30%")
        where = "--start-up"
        seconds = parse_duration(start_up or "2min")
    except ValueError as error:
        raise UsageError(str(error), where=where) from error
    if rate.dimension not in ("rate", "count") or rate.value <= 0:
        raise UsageError(f"must be a rate above 0, such as 140/s (got {per_replica!r})", where="--per-replica")
    if kept >= 1:
        raise UsageError("must be less than 100%", where="--reserve")
    return ReplicaCapacity(rate.value, kept, replicas, seconds)


def _read(options: _HistoryOptions) -> _History:
    """Raises SourceError, UsageError, OperationError."""
    from latdoctor.cli.time_args import moment
    from latdoctor.collectors.time_range import TimeRange
    from latdoctor.errors import UsageError

    now = time.time()
    end = moment(options.until, now, "--until") if options.until else now
    begin = moment(options.since, end, "--since") if options.since else None
    if begin is not None and begin >= end:
        raise UsageError("is not before --until", where="--since")
    if options.prometheus:
        return _from_prometheus(options, end - _HISTORY if begin is None else begin, end)
    limited = TimeRange(begin or 0.0, end, end - (begin or 0.0)) if options.since or options.until else None
    if options.log is not None:
        from latdoctor.cli.resolve_request import print_gaps
        from latdoctor.collectors.access_log.arrival_history import arrival_history

        found = arrival_history(options.log, limited, options.log_pattern)
        print_gaps(found.gaps)
        return _History(found.series, str(options.log), "/s")
    from latdoctor.collectors.time_value_csv import read_series
    from latdoctor.planning.forecast.rate_series import within

    assert options.csv is not None  # checked by _check
    series = read_series(options.csv)
    unit = "/s" if options.counts else ""
    return _History([within(series, limited.since, limited.until) if limited else series], str(options.csv), unit)


def _from_prometheus(options: _HistoryOptions, since: float, until: float) -> _History:
    from latdoctor.cli.console import notice
    from latdoctor.collectors.base import PrometheusServer
    from latdoctor.collectors.promql.client import prometheus_endpoint
    from latdoctor.collectors.promql.rate_history import rate_history
    from latdoctor.dialects.promql import parse_matchers
    from latdoctor.errors import UsageError
    from latdoctor.sanitize import clean

    try:
        select = parse_matchers(options.select)
    except ValueError as error:
        step = "write it such as --select '{job=\"vllm\"}'"
        raise UsageError(f"{clean(options.select, 80)!r}: {error}", where="--select", next_step=step) from error
    access = prometheus_endpoint(options.prometheus)
    server = PrometheusServer(access=access, since=since, until=until, window=until - since, select=select)
    found = rate_history(server, options.query, _TIMEOUT)
    for text in found.warnings:
        notice(f"{access.name}: {text}")
    source = f"{access.name}: {found.expression}"
    return _History(found.series, source, "" if options.query else "/s", until)
