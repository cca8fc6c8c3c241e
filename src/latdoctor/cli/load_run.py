"""Runs a load plan for a command: progress, live changes, and the printed result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from latdoctor.load.openloop import Progress
    from latdoctor.load.plan import LoadPlan
    from latdoctor.load.summary import LoadResult, Summary

SPOILED = 4
# Without a terminal, a line of progress every so many seconds.
_PLAIN_EVERY_S = 5.0
CONTROL_OPTION = typer.Option(
    "--control", metavar="FILE", help="Follow this YAML file while it runs: rate, users, mix."
)


class LoadFormat(StrEnum):
    """The output format; CSV is the per-second series."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def run_plan(
    plan: LoadPlan, server: str, *, remote: bool, metrics_port: int | None = None, control: Path | None = None
) -> LoadResult:
    """The result. Ctrl-C stops sending; a second one exits at once.

    The load follows the file `control`. Raises UsageError for a plan that cannot run, OperationError.
    """
    from latdoctor.cli.console import notice_console
    from latdoctor.cli.load_control import ControlFile
    from latdoctor.load.process import start_load

    console = notice_console()
    adjustable = control is not None
    with start_load(plan, server, remote=remote, metrics_port=metrics_port, adjustable=adjustable) as process:
        if metrics_port is not None:
            process.wait_started()
            console.print(f"metrics of the client: {process.metrics}/metrics", soft_wrap=True)
        follow = ControlFile(control, process.adjust).follow if control is not None else None
        if console.is_terminal:
            with console.status("starting") as status:
                show = _also(follow, lambda progress: status.update(_line(progress)))
                return _wait(process.wait, process.stop, show)
        log = _plain_lines(lambda text: console.print(text, soft_wrap=True))
        return _wait(process.wait, process.stop, _also(follow, log))


def _also(first: Callable[[], None] | None, then: Callable[[Progress], None]) -> Callable[[Progress], None]:
    def on_progress(progress: Progress) -> None:
        if first is not None:
            first()
        then(progress)

    return on_progress


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
    if progress.users:
        parts.append(f"users {progress.users}")
    if progress.rate != 1:
        parts.append(f"rate ×{progress.rate:g}")
    return " · ".join([*parts, *([f"errors {progress.errors}"] if progress.errors else [])])


def finish(result: LoadResult, output: LoadFormat) -> None:
    """Print the result, then what spoiled it. Exits with SPOILED in that case."""
    from latdoctor.cli.console import notice_console

    _print(result, output)
    for problem in result.problems:
        notice_console().print(f"spoiled: {problem.text}")
    if result.problems:
        raise typer.Exit(SPOILED)


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
        for line in (*_sessions(result), *_changes(result)):
            console.print(line, soft_wrap=True)
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


def _sessions(result: LoadResult) -> Iterator[str]:
    """How the sessions of users ended, if the plan has users."""
    if (counts := result.sessions) is not None:
        yield (
            f"\nusers: {counts.arrived} arrived · {counts.completed} completed · {counts.abandoned} abandoned "
            f"({counts.abandoned_slow} slow, {counts.abandoned_failed} failed) · "
            f"{counts.unfinished} unfinished · {counts.turns} turns"
        )


def _changes(result: LoadResult) -> Iterator[str]:
    """What was changed when, and the figures between the changes."""
    from latdoctor.cli.load_control import adjustment_text

    for change in result.changes:
        yield f"\nchanged at {change.at:.1f} s: {adjustment_text(change.adjustment)}"
    for one in result.stretches:
        whole = one.whole
        yield (
            f"  {one.name} {one.start:.1f}–{one.start + whole.seconds:.1f} s: {whole.counts.requests} requests, "
            f"{whole.offered:.1f}/s, P50 {_time(whole.p50)}, P99 {_time(whole.p99)}, good {whole.goodput:.1f}/s"
        )


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
