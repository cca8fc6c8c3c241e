"""`latdoctor lab load`: sends a load and prints the latencies."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from latdoctor.load.openloop import Progress
    from latdoctor.load.plan import LoadPlan
    from latdoctor.load.summary import LoadResult, Summary

SPOILED = 4
# Without a terminal, a line of progress every so many seconds.
_PLAIN_EVERY_S = 5.0


class LoadFormat(StrEnum):
    """The output format; CSV is the per-second series."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


class ArrivalProcess(StrEnum):
    """Arrival processes that need a rate only; a plan file has the others."""

    POISSON = "poisson"
    CONSTANT = "constant"
    GAMMA = "gamma"


class Retry(StrEnum):
    """The retry policy of the clients."""

    NONE = "none"
    IMMEDIATE = "immediate"
    BACKOFF = "backoff"


def load(
    server: Annotated[str, typer.Argument(metavar="URL", help="The reference server, such as http://127.0.0.1:8080.")],
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Phases of load in YAML, instead of a rate.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Requests per second.")] = 50.0,
    seconds: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to send.")] = "10s",
    arrivals: Annotated[
        ArrivalProcess, typer.Option("--arrivals", help="The arrival process.")
    ] = ArrivalProcess.POISSON,
    long_share: Annotated[str, typer.Option("--long", metavar="SHARE", help="Share of long requests.")] = "15%",
    audio_share: Annotated[str, typer.Option("--audio", metavar="SHARE", help="Share of audio requests.")] = "30%",
    malformed_share: Annotated[
        str, typer.Option("--malformed", metavar="SHARE", help="Share of malformed bodies.")
    ] = "0%",
    sessions: Annotated[int, typer.Option("--sessions", metavar="N", help="Conversations; 0: none.")] = 0,
    retry: Annotated[
        Retry, typer.Option("--retry", help="What clients do when a request is refused or fails.")
    ] = Retry.NONE,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Timeout of an attempt.")] = "10s",
    slo: Annotated[str, typer.Option("--slo", metavar="TIME", help="Answers within it count as goodput.")] = "500ms",
    warm_up: Annotated[str, typer.Option("--warm-up", metavar="TIME", help="Sent first, not measured.")] = "0s",
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="The same seed gives the same load.")] = None,
    output: Annotated[LoadFormat, typer.Option("--output", "-o", help="Format of the result.")] = LoadFormat.TEXT,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", min=0, max=65535, metavar="N", help="Serve the client's metrics page; 0: a free port."
        ),
    ] = None,
    remote: Annotated[bool, typer.Option("--allow-remote", help="Allow a server on another machine.")] = False,
) -> None:
    """Send an open-loop load and measure client latency.

    The schedule is fixed before the run: a slow server does not delay later requests, and latency counts from the time
    a request was due. With --plan, only --seed, --output, --metrics-port and --allow-remote of the other options apply.
    Ctrl-C stops sending and prints the result so far.

    --metrics-port serves the client's metrics (latency, bytes, retries) during the run: `latdoctor diagnose --server
    SERVER --server http://127.0.0.1:N` can then separate network time from server time.

    Exit codes: 0 measured · 1 no server, or the generator failed · 2 usage or an invalid plan · 4 measured, but the run
    is spoiled.
    """
    from latdoctor.cli.console import notice_console
    from latdoctor.cli.lab import FOR_LOAD, need_extra

    need_extra(FOR_LOAD)
    if plan is not None:
        load_plan = _from_file(plan, seed)
    else:
        mix = {"long_share": long_share, "audio_share": audio_share, "malformed_share": malformed_share}
        times = {"seconds": seconds, "timeout_s": timeout, "slo_s": slo, "warm_up_s": warm_up}
        load_plan = _from_options({"kind": arrivals.value, "rate": rate}, mix, sessions, times, retry.value, seed or 0)
    result = _run(load_plan, server, remote=remote, metrics_port=metrics_port)
    _print(result, output)
    for problem in result.problems:
        notice_console().print(f"spoiled: {problem.text}")
    if result.problems:
        raise typer.Exit(SPOILED)


def _from_file(path: Path, seed: int | None) -> LoadPlan:
    import msgspec

    from latdoctor.load import plan as plans

    read = plans.read(path)
    return read if seed is None else msgspec.structs.replace(read, seed=seed)


def _from_options(
    arrivals: dict[str, object], mix: dict[str, str], sessions: int, times: dict[str, str], retry: str, seed: int
) -> LoadPlan:
    """A plan of one phase. Raises UsageError."""
    import msgspec

    from latdoctor.errors import UsageError
    from latdoctor.load.plan import LoadPlan
    from latdoctor.units import parse_duration, parse_share

    try:
        shares = {name: parse_share(text) for name, text in mix.items()}
        lengths = {name: parse_duration(text) for name, text in times.items()}
        phase = {
            "name": "load",
            "seconds": lengths.pop("seconds"),
            "arrivals": arrivals,
            "mix": {**shares, "sessions": sessions},
        }
        return msgspec.convert({"phases": [phase], "seed": seed, "retry": {"kind": retry}, **lengths}, LoadPlan)
    except ValueError as error:  # msgspec's own is one of these
        raise UsageError(f"invalid load: {error}") from error


def _run(plan: LoadPlan, server: str, *, remote: bool, metrics_port: int | None) -> LoadResult:
    """The result. Ctrl-C stops sending; a second one exits at once."""
    from latdoctor.cli.console import notice_console
    from latdoctor.load.process import start_load

    console = notice_console()
    with start_load(plan, server, remote=remote, metrics_port=metrics_port) as process:
        if metrics_port is not None:
            process.wait_started()
            console.print(f"metrics of the client: {process.metrics}/metrics", soft_wrap=True)
        if console.is_terminal:
            with console.status("starting") as status:
                return _wait(process.wait, process.stop, lambda progress: status.update(_line(progress)))
        return _wait(process.wait, process.stop, _plain_lines(lambda text: console.print(text, soft_wrap=True)))


def _wait(
    wait: Callable[[Callable[[Progress], None]], LoadResult],
    stop: Callable[[], None],
    on_progress: Callable[[Progress], None],
) -> LoadResult:
    try:
        return wait(on_progress)
    except KeyboardInterrupt:
        stop()
        return wait(on_progress)


def _plain_lines(log: Callable[[str], None]) -> Callable[[Progress], None]:
    """Logs the first progress line, then one every few seconds."""
    due = time.monotonic()

    def on_progress(progress: Progress) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _PLAIN_EVERY_S
            log(_line(progress))

    return on_progress


def _line(progress: Progress) -> str:
    """One line: the position in the schedule, and the current latencies."""
    parts = [
        f"{min(progress.elapsed, progress.of):.0f}/{progress.of:.0f} s {progress.phase}",
        f"sent {progress.sent}",
        f"now P50 {_time(progress.p50)} P99 {_time(progress.p99)}",
        f"waiting {progress.in_flight}" + (f" (oldest {_time(progress.oldest)})" if progress.in_flight else ""),
    ]
    return " · ".join([*parts, *([f"errors {progress.errors}"] if progress.errors else [])])


def _print(result: LoadResult, output: LoadFormat) -> None:
    import msgspec

    from latdoctor.cli.console import result_console
    from latdoctor.load.summary import series_csv

    if output is LoadFormat.JSON:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
    elif output is LoadFormat.CSV:
        sys.stdout.write(series_csv(result))
    else:
        console = result_console()
        console.print(_table(result))
        health = result.generator
        console.print(
            f"\ngenerator: late {_time(health.late_p50)} (P50), {_time(health.late_p99)} (P99) · "
            f"{health.cpu_share:.0%} of a core · schedule {result.schedule}"
        )


def _table(result: LoadResult) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("", "requests", "per s", "P50", "P95", "P99", "good/s", "not answered"):
        table.add_column(name, justify="left" if name in {"", "not answered"} else "right")
    for phase in result.phases:
        table.add_row(phase.name, *_row(phase.whole))
        for kind, summary in phase.kinds.items():
            table.add_row(f"  {kind}", *_row(summary), style="dim")
    if len(result.phases) > 1:
        table.add_row("all", *_row(result.total), style="bold")
    return table


def _row(summary: Summary) -> list[str]:
    counts = summary.counts
    lost = {
        "refused": counts.refused,
        "rejected": counts.rejected,
        "failed": counts.failed,
        "timed out": counts.timed_out,
        "not sent": counts.not_sent,
        "retries": counts.retries,
    }
    return [
        str(counts.requests),
        f"{summary.offered:.1f}",
        *(_time(value) for value in (summary.p50, summary.p95, summary.p99)),
        f"{summary.goodput:.1f}",
        ", ".join(f"{count} {what}" for what, count in lost.items() if count),
    ]


def _time(seconds: float | None) -> str:
    from latdoctor.units import format_value

    return "–" if seconds is None else format_value(seconds, "time")
