"""The benchmark of the cluster: which runs are due, and recording them in one cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import OperationError
from latdoctor.evaluation.cluster.cluster_run import SETTINGS, Log, cluster_recordings, record_cluster_run
from latdoctor.evaluation.cluster.cluster_run_spec import ClusterRunSpec
from latdoctor.lab.cluster.cluster import Cluster


def record_cluster_runs(specs: Sequence[ClusterRunSpec], folder: Path, rules: RuleSet, log: Log) -> dict[str, str]:
    """Records the runs that `folder` lacks or has spoiled. Returns those that failed, with the reason.

    Raises OperationError where the cluster cannot be started, BundleError for a damaged recording.
    """
    complete = {one.truth.run for one in cluster_recordings(folder) if not one.truth.spoiled}
    due = [spec for spec in specs if spec.run not in complete]
    failed: dict[str, str] = {}
    if not due:
        return failed
    log("starting the cluster")
    with Cluster(SETTINGS) as cluster:
        for number, spec in enumerate(due, 1):
            log(f"run {number} of {len(due)}: {spec.run}")
            try:
                recording = record_cluster_run(spec, cluster.kubeconfig, folder, rules, log)
            except OperationError as error:
                cluster.control_plane.must_run()
                failed[spec.run] = str(error)
                log(f"{spec.run} failed: {error}")
                continue
            if recording.truth.spoiled:
                log(f"{spec.run} is spoiled: {'; '.join(recording.truth.spoiled)}")
    return failed
