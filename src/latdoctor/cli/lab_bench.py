"""`latdoctor lab bench`: the commands of the benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.lab_bench_cluster import cluster
from latdoctor.cli.lab_bench_diagnosis import (
    Folder,
    Once,
    Only,
    ScoreOutput,
    Tables,
    diagnosis,
    of_scenario,
    record_missing,
)
from latdoctor.cli.lab_bench_regression import regression
from latdoctor.cli.options import OutputFormat

if TYPE_CHECKING:
    from latdoctor.evaluation.remediation.scores import RemediationScores, RemediationStore


app = typer.Typer(help="Measure latdoctor on incidents of a real server.", no_args_is_help=True)

app.command()(cluster)
app.command()(diagnosis)
app.command()(regression)


@app.command()
def remediation(
    folder: Folder = Path("bench-remediation"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Three incidents only, promo-rush among them: 8 minutes.")
    ] = False,
    only: Only = None,
    once: Once = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing: score the reports in DIR.")] = False,
    tables: Tables = None,
    output: ScoreOutput = OutputFormat.TEXT,
) -> None:
    """Run incidents, have each remediated, and measure the result.

    Every fault with a playbook is diagnosed and remediated as an operator would; promo-rush also with the emergency
    bundle; and wrong playbooks, which must be refused or rolled back. Faults last until they are remediated. Complete
    runs are not repeated; spoiled ones are, at most twice.

    Exit codes: 0 done · 1 server or generator failed · 2 usage, or a damaged report · 3 --once, and more runs are due.
    """
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.evaluation.remediation.report import summary
    from latdoctor.evaluation.remediation.report import tables as result_tables
    from latdoctor.evaluation.remediation.run_specs import planned_runs
    from latdoctor.evaluation.remediation.scores import RemediationStore
    from latdoctor.evaluation.report import write_tables
    from latdoctor.evidence.model import to_json
    from latdoctor.output_file import must_be_a_folder
    from latdoctor.remediation.playbook_library import shipped

    must_be_a_folder(folder, "a folder of runs")
    specs = of_scenario(planned_runs(shipped(), quick=quick), only)
    store = RemediationStore(folder)
    if not no_run:
        from latdoctor.evaluation.remediation.runner import attempt

        record_missing(store, specs, attempt, once=once)
    scores = _scores(store, tuple(spec.run for spec in specs))
    if tables is not None:
        write_tables(result_tables(scores), tables)
    is_json = output is OutputFormat.JSON
    typer.echo(to_json(scores).decode() if is_json else summary(scores), nl=is_json)


def _scores(store: RemediationStore, planned: tuple[str, ...]) -> RemediationScores:
    """Raises UsageError where no planned run has a report."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.remediation.scores import score

    complete = set(store.runs())
    runs = [store.report(run) for run in planned if run in complete]
    if not runs:
        raise UsageError("no report of these runs", where=str(store.folder), next_step="leave --no-run out")
    return score(runs, *store.losses(planned), missing=[run for run in planned if run not in complete])


@app.command()
def mapping(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", readable=False, help="The folder for the CSV files.")],
    folder: Folder = Path("bench-recordings"),
) -> None:
    """Write which causes the baseline methods infer by metric.

    The baseline methods rank metrics. The causes of each metric are learned from the runs of tuned families; these
    tables have the learned shares.

    Exit codes: 0 written · 2 no training runs, or a table cannot be written.
    """
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.baselines.adapter import METRIC_SOURCES, readings
    from latdoctor.evaluation.baselines.methods import BASELINES
    from latdoctor.evaluation.ground_truth import split
    from latdoctor.evaluation.method_comparison import comparable_runs
    from latdoctor.evaluation.report import mapping_tables, write_tables
    from latdoctor.evaluation.store import recordings

    families = split()
    training = [one for one in comparable_runs(tuple(recordings(folder))) if not families.is_held_out(one.causes)]
    if not training:
        raise UsageError(
            "no training runs are recorded", where=str(folder), next_step="latdoctor lab bench diagnosis --folder DIR"
        )
    fitted = {metrics.name: tuple(readings(BASELINES, metrics, training)) for metrics in METRIC_SOURCES}
    write_tables(mapping_tables(fitted, {method.name: method.title for method in BASELINES}), to)
    typer.echo(f"wrote the tables of {len(training)} training runs to {to}")


@app.command()
def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A recorded run: the name of its file in DIR/truths.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="PATH", readable=False, help="The bundle to write: a folder or a .tar.zst.")
    ],
    folder: Folder = Path("bench-recordings"),
) -> None:
    """Write a recorded incident as a small fixture bundle.

    The bundle is redacted, and the cgroups of the recording machine are renamed.

    Exit codes: 0 written · 1 a cgroup name could not be removed · 2 no such run, or the bundle cannot be written.
    """
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.store import RecordingStore, recordings
    from latdoctor.evaluation.store import promote as export

    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder), next_step="name the folder: --folder DIR")
    if run not in RecordingStore(folder).runs():
        raise UsageError(f"there is no run {run!r}", where=str(folder), next_step="list its folder truths")
    export(next(one for one in recordings(folder, (run,))), to)
    typer.echo(f"wrote {to}. Next: latdoctor diagnose {to}")
