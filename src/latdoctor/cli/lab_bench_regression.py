"""`latdoctor lab bench regression`: the reference server's latency against stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.lab_bench_diagnosis import ScoreOutput
from latdoctor.cli.options import OutputFormat

if TYPE_CHECKING:
    from latdoctor.planning.comparison.regression import RegressionRuns, RunLoad

PROVEN = 3
_LOAD = 0.6  # of the measured capacity
_SATURATE = 6.0  # seconds
_WARM_UP = 2.0


def regression(
    baseline: Annotated[Path, typer.Option("--baseline", metavar="FILE", help="The stored runs.")],
    record: Annotated[bool, typer.Option("--record", help="Store the runs in FILE, and compare nothing.")] = False,
    runs: Annotated[int, typer.Option("--runs", min=2, max=50, metavar="N", help="Runs to store.")] = 6,
    seconds: Annotated[float, typer.Option("--seconds", min=3, max=300, metavar="N", help="Of one run.")] = 10.0,
    margin: Annotated[float, typer.Option("--difference", min=0.01, help="The smallest that matters.")] = 0.1,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a report as a page.")] = None,
    output: ScoreOutput = OutputFormat.TEXT,
) -> None:
    """Compare the reference server's latency with stored runs.

    Stored runs were made at 60 % of the capacity that was measured then. Today's have the same requests at the same
    times, and each is compared with its own. Only a proven regression of P99 fails: another machine, a late generator
    or too much noise is inconclusive, and printed.

    Exit codes: 0 stored, or no regression is proven · 1 the server or the generator failed · 2 usage · 3 a regression
    is proven.
    """
    from latdoctor.cli.comparison_text import comparison_text
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.cli.lab import need_extra
    from latdoctor.evidence.model import to_json
    from latdoctor.output_file import must_be_writable, write_text
    from latdoctor.planning.comparison.effect import ComparisonVerdict, Quantity
    from latdoctor.planning.comparison.regression import read_runs
    from latdoctor.planning.comparison.regression import regression as compared
    from latdoctor.planning.comparison.regression_page import regression_page

    need_extra()
    must_be_writable(html or baseline, "the report" if html else "the stored runs")
    stored = None if record else read_runs(baseline)
    with ended_by_sigterm():
        now = _measured(stored, runs, seconds)
    if stored is None:
        write_text(baseline, to_json(now).decode(), "the stored runs")
        typer.echo(f"stored {len(now.runs)} runs at {now.rate:.3g} requests/s in {baseline}")
        return
    found = compared(stored, now, Quantity.P99, margin)
    text = comparison_text(found)
    if html is not None:
        write_text(html, regression_page(found, stored, now, text.partition("\n")[0]), "the report")
    is_json = output is OutputFormat.JSON
    typer.echo(to_json(found).decode() if is_json else text, nl=not is_json)
    if found.verdict is ComparisonVerdict.WORSE:
        raise typer.Exit(PROVEN)


def _measured(stored: RegressionRuns | None, runs: int, seconds: float) -> RegressionRuns:
    """Today's runs, of the stored load where there is one."""
    import os
    import time

    from latdoctor import __version__
    from latdoctor.lab.processes import ServerProcess
    from latdoctor.lab.server.config import ServerConfig
    from latdoctor.load import machine_state
    from latdoctor.planning.comparison.regression import RegressionRuns

    with ServerProcess(ServerConfig(), faults=False) as server:
        server.wait_ready()
        rate = stored.rate if stored else _LOAD * _capacity(server.url)
        length = stored.seconds if stored else seconds
        seeds = [one.seed for one in stored.runs] if stored else list(range(1, runs + 1))
        run = _load(server.url, rate, length)
        made = tuple(run(seed) for seed in seeds)
    return RegressionRuns(
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        tool_version=__version__,
        machine=f"{machine_state.model()}, {os.cpu_count()} processors",
        rate=rate,
        seconds=length,
        runs=made,
    )


def _capacity(address: str) -> float:
    from latdoctor.load.arrivals import Poisson
    from latdoctor.load.plan import LoadPhase, LoadPlan
    from latdoctor.load.process import saturate

    return saturate(LoadPlan((LoadPhase("load", 1.0, Poisson(1.0)),)), address, _SATURATE).rate


def _load(address: str, rate: float, seconds: float) -> RunLoad:
    from latdoctor.load.arrivals import Poisson
    from latdoctor.load.plan import LoadPhase, LoadPlan
    from latdoctor.load.process import run_load
    from latdoctor.planning.comparison.regression import StoredRun
    from latdoctor.planning.comparison.run_figures import figures

    def run(seed: int) -> StoredRun:
        plan = LoadPlan((LoadPhase("load", seconds, Poisson(rate)),), seed=seed, warm_up_s=_WARM_UP)
        result = run_load(plan, address)
        return StoredRun(seed, result.schedule, figures(result))

    return run
