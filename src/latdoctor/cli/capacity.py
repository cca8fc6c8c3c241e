"""`latdoctor capacity`: the limit of a service, and replicas for a rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption

if TYPE_CHECKING:
    from latdoctor.collectors.base import PrometheusServer
    from latdoctor.load.target import Target
    from latdoctor.planning.capacity.binding import ReadSignals
    from latdoctor.planning.capacity.measure import MeasureSettings
    from latdoctor.planning.capacity.measurement import CapacityMeasurement
    from latdoctor.planning.capacity.plan import CapacityPlan

SPOILED = 4
_QUERY_TIMEOUT = 60.0  # seconds of one query
_LONGEST = 3600.0  # seconds of a step, or of an objective

app = typer.Typer(help="How much load a service takes, and replicas for a rate.", no_args_is_help=True)


@app.command()
def measure(
    address: Annotated[str, typer.Argument(metavar="URL", help="The server, such as http://127.0.0.1:8000.")],
    slo: Annotated[str, typer.Option("--slo", metavar="TIME", help="The latency objective.")] = "500ms",
    attainment: Annotated[
        str, typer.Option("--attainment", metavar="SHARE", help="Share of requests within it: 99% is P99.")
    ] = "99%",
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", metavar="URL", help="The server's metrics page (default: URL/metrics)."),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Of an OpenAI-compatible server or Triton (default: first).")
    ] = "",
    path: Annotated[str, typer.Option("--path", metavar="PATH", help="What a request is sent to.")] = "",
    body: Annotated[
        Path | None, typer.Option("--body", metavar="FILE", help="The JSON that is sent; $PROMPT becomes words.")
    ] = None,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", min=1, metavar="N", help="Of each answer of a language model.")
    ] = 16,
    long_share: Annotated[str, typer.Option("--long", metavar="SHARE", help="Share of long requests.")] = "15%",
    start: Annotated[
        float, typer.Option("--from", min=0, metavar="N", help="First rate, requests per second (default: by itself).")
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of arrivals and contents.")] = 0,
    remote: Annotated[bool, typer.Option("--allow-remote", help="Allow a server on another machine.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Find the highest request rate that meets the SLO.

    Overloads the server on purpose: never measure one that has users. Sends open-loop load at rising rates, halves the
    gap around the first that fails, and repeats the rates near the limit; the limit comes from an isotonic fit with a
    bootstrap interval. Recognised by themselves are the reference server, OpenAI-compatible servers (vLLM, SGLang,
    llama.cpp, TGI) and Triton; for others say --path and --body.

    A closed loop before it gives a queueing model, whose limit is printed beside the measured one.

    Exit codes: 0 measured · 1 the server does not answer · 2 usage · 4 measured, but the machine was busy or the
    generator late.
    """
    from latdoctor.cli.capacity_text import measurement_text
    from latdoctor.cli.console import notice_console
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.cli.lab import FOR_LOAD, need_extra
    from latdoctor.load.plan import check_address
    from latdoctor.planning.capacity.measure import Measuring

    need_extra((*FOR_LOAD, "scipy"), "plan")
    address = address.rstrip("/")
    check_address(address, remote=remote)
    settings = _settings(slo, attainment, long_share, seed, start, remote=remote)
    target = _target(address, model, path, body, output_tokens)
    notice_console().print(f"measuring {target.name} of {address}, which will be overloaded for seconds at a time")
    with ended_by_sigterm():
        found = Measuring(target, settings, _reader(tuple(metrics or (f"{address}/metrics",))), _log).run()
    _print(found, measurement_text(found), output)


def _print(found: CapacityMeasurement | CapacityPlan, text: str, output: OutputFormat) -> None:
    """Prints it and ends with exit code 4 where it has problems."""
    from latdoctor.evidence.model import to_json

    is_json = output is OutputFormat.JSON
    typer.echo(to_json(found).decode() if is_json else text, nl=not is_json)
    if found.problems:
        raise typer.Exit(SPOILED)


def _settings(slo: str, attainment: str, long_share: str, seed: int, start: float, *, remote: bool) -> MeasureSettings:
    """Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.load.mix import Mix
    from latdoctor.planning.capacity.measure import MeasureSettings
    from latdoctor.planning.capacity.search import SearchSettings
    from latdoctor.units import parse_duration, parse_share

    try:
        search = SearchSettings(attainment=parse_share(attainment))
        mix = Mix(long_share=parse_share(long_share))
        return MeasureSettings(parse_duration(slo), search, mix, seed, start, remote=remote)
    except ValueError as error:
        raise UsageError(f"invalid measurement: {error}") from error


def _target(address: str, model: str, path: str, body: Path | None, output_tokens: int) -> Target:
    from latdoctor.errors import UsageError
    from latdoctor.load.target import plain, recognise
    from latdoctor.regular_file import read_regular

    if not path and body is None:
        return recognise(address, output_tokens, model)
    if not path or body is None:
        raise UsageError("--path and --body belong together")
    return plain(address, path, read_regular(body, 1 << 20).decode(errors="replace"))


def _reader(pages: tuple[str, ...]) -> ReadSignals:
    """Reads the metrics pages; what cannot be read shows nothing."""
    from latdoctor.case_from_bundle import seen
    from latdoctor.collectors import COLLECTORS
    from latdoctor.collectors.base import CollectRequest
    from latdoctor.collectors.runner import SystemClock, collect_bundle
    from latdoctor.evidence.bundle import Context
    from latdoctor.evidence.model import is_unknown

    def read(seconds: float) -> dict[str, float]:
        request = CollectRequest(servers=pages, window=seconds)
        evidence, _ = seen(collect_bundle(COLLECTORS, request, Context(", ".join(pages)), SystemClock()))
        found: dict[str, float] = {}
        for one in evidence.readings:
            if not isinstance(one.value, str) and not is_unknown(one.value):
                found[one.signal] = max(found.get(one.signal, float("-inf")), float(one.value))
        return found

    return read


def _log(line: str) -> None:
    from latdoctor.cli.console import notice_console

    notice_console().print(line, soft_wrap=True, highlight=False)


@app.command()
def history(
    prometheus: Annotated[str, typer.Option("--prometheus", metavar="URL", help="A Prometheus server.")],
    slo: Annotated[str, typer.Option("--slo", metavar="TIME", help="The latency objective, of P99.")] = "500ms",
    select: Annotated[str, typer.Option("--select", metavar="SELECTOR", help="Only series with these labels.")] = "",
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="Begin of the history.")] = "24h",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="End of the history (default: now).")] = "",
    step: Annotated[str, typer.Option("--step", metavar="TIME", help="Four scrapes or more, at least 5s.")] = "1min",
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Estimate the limit from ordinary operation, without load.

    From request rates and latencies in Prometheus, of each replica: the time of a request at low load, the rate by
    concurrency, the highest rate within the SLO. Where the history has come at least half-way, a queueing model gives
    the limit with an interval; else the answer is that it is at least so much.

    Exit codes: 0 estimated · 1 the history cannot be read, or is too short · 2 usage · 4 only a lower bound.
    """
    from latdoctor.cli.capacity_text import history_text
    from latdoctor.cli.console import notice, progress
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.lab import need_extra
    from latdoctor.collectors.promql.load_history import load_history
    from latdoctor.planning.capacity.history import HistorySettings, from_history
    from latdoctor.planning.capacity.load_window import load_windows

    need_extra(("scipy",), "plan")
    seconds, objective = _duration(step, "--step", 5.0), _duration(slo, "--slo", 0.0)
    server = _prometheus(prometheus, select, since, until)
    with interruptible(None), progress("reading the history", takes_time=True):
        read = load_history(server, seconds, _QUERY_TIMEOUT)
        found = from_history(
            load_windows(read.series, seconds), HistorySettings(server.access.name, read.title, objective)
        )
    for text in read.warnings:
        notice(f"{server.access.name}: {text}")
    _print(found, history_text(found), output)


def _duration(text: str, where: str, least: float) -> float:
    """Seconds. Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.units import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error), where=where) from error
    if not max(least, 1e-9) <= seconds <= _LONGEST:
        raise UsageError(f"must be at least {least:g} s and at most 1h (got {text!r})", where=where)
    return seconds


def _prometheus(url: str, select: str, since: str, until: str) -> PrometheusServer:
    """Raises UsageError."""
    import time

    from latdoctor.cli.time_args import moment
    from latdoctor.collectors.base import PrometheusServer
    from latdoctor.collectors.promql.client import prometheus_endpoint
    from latdoctor.dialects.promql import parse_matchers
    from latdoctor.errors import UsageError
    from latdoctor.sanitize import clean

    now = time.time()
    end = moment(until, now, "--until") if until else now
    begin = moment(since, end, "--since")
    if begin >= end:
        raise UsageError("is not before --until", where="--since")
    try:
        matchers = parse_matchers(select)
    except ValueError as error:
        step = "write it such as --select '{job=\"vllm\"}'"
        raise UsageError(f"{clean(select, 80)!r}: {error}", where="--select", next_step=step) from error
    access = prometheus_endpoint(url)
    return PrometheusServer(access=access, since=begin, until=end, window=end - begin, select=matchers)


@app.command()
def plan(
    measurement: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `capacity measure -o json` printed, of one replica.")
    ],
    rate: Annotated[float, typer.Option("--rate", min=0.001, metavar="N", help="Requests per second in all.")],
    reserve: Annotated[str, typer.Option("--reserve", metavar="SHARE", help="Of the limit, kept free.")] = "30%",
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Say how many replicas a request rate takes.

    Each replica gets at most its measured limit less the reserve. The queueing model says the P99 to expect then, and
    what happens if one replica is lost.

    Exit codes: 0 planned · 2 usage, or no such measurement · 4 planned, but the measurement is spoiled.
    """
    from latdoctor.cli.capacity_text import plan_text
    from latdoctor.errors import UsageError
    from latdoctor.planning.capacity.measurement import read_measurement
    from latdoctor.planning.capacity.plan import plan_replicas
    from latdoctor.units import parse_share

    measured = read_measurement(measurement)
    try:
        found = plan_replicas(measured, rate, parse_share(reserve))
    except ValueError as error:
        raise UsageError(str(error), where=str(measurement)) from error
    _print(found, plan_text(found), output)
