"""`latdoctor lab bench cluster`: faults of a Kubernetes cluster, diagnosed and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli.lab_bench_diagnosis import Folder, Only, ScoreOutput
from latdoctor.cli.options import OutputFormat


def cluster(
    folder: Folder = Path("bench-cluster"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Each fault and each healthy change once: 20 minutes.")
    ] = False,
    only: Only = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Record nothing: score the recordings in DIR.")] = False,
    output: ScoreOutput = OutputFormat.TEXT,
) -> None:
    """Score the diagnoses of faults of a Kubernetes cluster.

    Starts a cluster as `lab cluster` does. Each run deploys the reference server behind a router, loads it, injects a
    fault or makes a healthy change (a rollout, a scaling), and keeps what `latdoctor collect --kube` saves. A fault is
    then remediated by the playbook that its diagnosis leads to, if there is one. The ground truth is stored apart. The
    scores are those of all runs in DIR.

    Exit codes: 0 done · 1 a run failed, or the cluster does not start · 2 usage, or a damaged recording.
    """
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.cli.lab import FOR_LOAD, need_extra
    from latdoctor.cli.lab_bench_diagnosis import log

    need_extra((*FOR_LOAD, "kubernetes", "starlette", "uvicorn"))
    from latdoctor.diagnosis.rule_loader import shipped
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.cluster.cluster_benchmark import record_cluster_runs
    from latdoctor.evaluation.cluster.cluster_run import cluster_recordings
    from latdoctor.evaluation.cluster.cluster_run_spec import planned_cluster_runs
    from latdoctor.evaluation.cluster.cluster_scores import cluster_summary, score_cluster, score_cluster_run
    from latdoctor.evidence.model import to_json
    from latdoctor.output_file import must_be_a_folder

    must_be_a_folder(folder, "a folder of recordings")
    specs = planned_cluster_runs(quick=quick, only=only)
    failed: dict[str, str] = {}
    if not no_run:
        with ended_by_sigterm():
            failed = record_cluster_runs(specs, folder, shipped(), log())
    recordings = [one for one in cluster_recordings(folder) if only in (None, one.truth.scenario)]
    if not recordings:
        raise UsageError("no run of a cluster is recorded", where=str(folder), next_step="leave --no-run out")
    rules = shipped()
    scores = score_cluster([score_cluster_run(one, rules) for one in recordings], failed)
    is_json = output is OutputFormat.JSON
    typer.echo(to_json(scores).decode() if is_json else cluster_summary(scores), nl=not is_json)
    if failed:
        raise typer.Exit(1)
