"""`latdoctor lab run`: runs a scenario and prints its phases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latdoctor.lab.run_report import CauseEffect, RunReport


def run(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A shipped scenario, or a YAML file.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the load.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as load.rate=60.")
    ] = None,
    severity: Annotated[
        str, typer.Option("--severity", metavar="NAME", help="A severity of the scenario: mild, usual, severe.")
    ] = "usual",
    output: Annotated[str, typer.Option("--output", "-o", metavar="text|json", help="Format of the report.")] = "text",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Repeat the run without each cause that can be left out.")
    ] = False,
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Write the ground truth to this file.")
    ] = None,
) -> None:
    """Run a scenario and print its phases.

    Starts a real server and its load, injects the scenario's faults, and removes them.

    Exit codes: 0 done · 1 server or generator failed · 2 usage or an invalid scenario · 3 the run is spoiled.
    """
    from latdoctor.cli.lab import need_extra

    need_extra()
    import msgspec

    from latdoctor.cli.console import notice_console
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.errors import UsageError
    from latdoctor.lab import runner
    from latdoctor.lab.run_report import truth_file
    from latdoctor.lab.scenario import find, graded, overridden

    if output not in ("text", "json"):
        raise UsageError(f"must be text or json (got {output!r})", where="--output")
    pairs = [text.partition("=") for text in set_ or ()]
    if any(not sign for _, sign, _ in pairs):
        raise UsageError("must be KEY=VALUE", where="--set")
    if truth is not None and not truth.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {truth.parent}", where="--truth", next_step="create it first")
    chosen = overridden(graded(find(scenario), severity), iter([(key, value) for key, _, value in pairs]))
    notices = notice_console()
    observer = runner.RunObserver(
        on_phase=lambda phase: notices.print(f"phase {phase.phase}: {' '.join(phase.pages)}"), log=notices.print
    )
    with ended_by_sigterm():
        report = runner.run_scenario(chosen, seed, observer)
        if confirm:
            report = runner.confirm_causes(chosen, report, observer)
    if truth is not None:
        truth.write_bytes(msgspec.json.encode(truth_file(report)))
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=1).decode())
    else:
        print_report(report)
    raise typer.Exit(3 if report.problems else 0)


def print_report(report: RunReport) -> None:
    from rich.table import Table

    from latdoctor.cli.console import result_console

    console = result_console()
    console.print(f"{report.scenario}, seed {report.seed}, {report.rate:.1f} requests/s")
    rows = {
        "P50": [_ms(phase.p50) for phase in report.phases],
        "P95": [_ms(phase.p95) for phase in report.phases],
        "P99": [_ms(phase.p99) for phase in report.phases],
        "goodput": [f"{phase.goodput:.1f}/s" for phase in report.phases],
        "answered": [f"{phase.answered} of {phase.requests}" for phase in report.phases],
        "refused · failed": [f"{phase.refused} · {phase.failed}" for phase in report.phases],
        "timed out": [str(phase.timed_out) for phase in report.phases],
        "forward calls": [f"{phase.forward_calls:.0f}" for phase in report.phases],
        "calls per answer": [_number(phase.calls_per_answer) for phase in report.phases],
        "mean batch size": [_number(phase.batch_size_mean) for phase in report.phases],
        "padding waste": [_number(phase.padding_waste) for phase in report.phases],
        "allocations per call": [_number(phase.allocations_per_call) for phase in report.phases],
        "page faults per call": [_number(phase.page_faults_per_call) for phase in report.phases],
    }
    table = Table("", *(phase.name for phase in report.phases), box=None)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)
    for one in report.truth:
        console.print(_truth_line(one, report))
    if report.recovered is False:
        console.print("not recovered: P99 afterwards exceeds the SLO and twice its value before")
    for problem in report.problems:
        console.print(f"spoiled: {problem.text}")
    console.print("Next: latdoctor lab serve, and latdoctor diagnose --server URL while it is under load")


def _truth_line(one: CauseEffect, report: RunReport) -> str:
    if one.moves is None:
        return f"injected: {one.cause} (effect on P99 not tested: --confirm)"
    verb, p99 = "raises" if one.moves else "does not raise", report.phase(report.incident).p99
    return f"injected: {one.cause}; it {verb} P99: {_ms(p99)}, {_ms(one.p99_without)} without it"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:,.0f}".replace(",", " ")
