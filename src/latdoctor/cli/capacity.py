"""`latdoctor capacity`: the limit of a service, and replicas for a rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption

if TYPE_CHECKING:
    from latdoctor.load.target import Target
    from latdoctor.planning.capacity.binding import ReadSignals
    from latdoctor.planning.capacity.measure import MeasureSettings

SPOILED = 4

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
    from latdoctor.evidence.model import to_json
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
    typer.echo(
        to_json(found).decode() if output is OutputFormat.JSON else measurement_text(found),
        nl=output is OutputFormat.TEXT,
    )
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
    from latdoctor.evidence.model import to_json
    from latdoctor.planning.capacity.measurement import read_measurement
    from latdoctor.planning.capacity.plan import plan_replicas
    from latdoctor.units import parse_share

    measured = read_measurement(measurement)
    try:
        found = plan_replicas(measured, rate, parse_share(reserve))
    except ValueError as error:
        raise UsageError(str(error), where=str(measurement)) from error
    is_json = output is OutputFormat.JSON
    typer.echo(to_json(found).decode() if is_json else plan_text(found), nl=not is_json)
    if found.problems:
        raise typer.Exit(SPOILED)
