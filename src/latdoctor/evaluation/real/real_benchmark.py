"""The benchmark on real servers: which runs are due, recording them, and scoring what a folder has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import OperationError
from latdoctor.evaluation.real.real_run import Log, RealRunOrder, record_real_run
from latdoctor.evaluation.real.real_scores import RealScores, score_real, score_run
from latdoctor.evaluation.real.real_store import HEALTHY_BUNDLE, INCIDENT_BUNDLE, RealRecording, real_recordings
from latdoctor.lab.real.real_scenario import RealScenario
from latdoctor.lab.real.server_definition import find_server


def skipped_servers(scenarios: Sequence[RealScenario], root: Path | None) -> dict[str, str]:
    """The servers of `scenarios` that cannot be started here, each with the reason."""
    found = {name: find_server(name).missing(root) for name in sorted({one.server for one in scenarios})}
    return {name: why for name, why in found.items() if why}


def record_real_runs(
    scenarios: Sequence[RealScenario], seeds: Sequence[int], root: Path | None, folder: Path, log: Log
) -> dict[str, str]:
    """Record the runs that `folder` lacks or has spoiled.

    Returns the skipped servers, and the runs that failed, with the reason. Raises BundleError for a damaged recording.
    """
    skipped = skipped_servers(scenarios, root)
    complete = {one.truth.run for one in real_recordings(folder) if not one.truth.spoiled} if folder.is_dir() else set()
    orders = [
        RealRunOrder(scenario, seed, root)
        for seed in seeds
        for scenario in scenarios
        if root is not None and scenario.server not in skipped
    ]
    due = [order for order in orders if order.run not in complete]
    for number, order in enumerate(due, 1):
        log(f"run {number} of {len(due)}: {order.scenario.title} ({order.run}, {order.scenario.phases.seconds:.0f} s)")
        try:
            recording = record_real_run(order, folder, log)
        except OperationError as error:
            skipped[order.run] = str(error)
            log(f"{order.run} failed: {error}")
            continue
        if recording.truth.spoiled:
            log(f"{order.run} is spoiled: {'; '.join(recording.truth.spoiled)}")
    return skipped


def score_recordings(recordings: Sequence[RealRecording], rules: RuleSet, skipped: dict[str, str]) -> RealScores:
    """Diagnose and score `recordings`, without the spoiled ones that have no bundle. Raises BundleError."""
    whole = [one for one in recordings if _has_bundles(one)]
    return score_real([score_run(one, rules) for one in whole], skipped)


def _has_bundles(recording: RealRecording) -> bool:
    return all((recording.folder / name).exists() for name in (HEALTHY_BUNDLE, INCIDENT_BUNDLE))
