"""The scores of the cluster benchmark, of runs whose diagnoses are given."""

from __future__ import annotations

from typing import Any

import pytest

from latdoctor.diagnosis.codes import Level
from latdoctor.errors import UsageError
from latdoctor.evaluation.cluster.cluster_remediation import ClusterRemediation
from latdoctor.evaluation.cluster.cluster_run import ClusterTruth
from latdoctor.evaluation.cluster.cluster_run_spec import planned_cluster_runs
from latdoctor.evaluation.cluster.cluster_scores import ClusterRunScore, cluster_summary, score_cluster
from latdoctor.evaluation.real.real_scores import RealAnswer
from latdoctor.evaluation.real.real_store import ClientFigures
from latdoctor.lab.cluster.cluster_faults import names

LOST = "infra.kubernetes.node-lost"
SINCE = 1_000_000.0


def figures(requests: int, answered: int) -> ClientFigures:
    return ClientFigures(requests, answered, 0, requests - answered, 0, 0.1, 0.2)


def run(
    scenario: str,
    causes: tuple[str, ...],
    spoiled: tuple[str, ...] = (),
    remediation: ClusterRemediation | None = None,
    **said: Any,
) -> ClusterRunScore:
    truth = ClusterTruth(
        run=f"{scenario}-1",
        scenario=scenario,
        date="",
        tool_version="",
        causes=causes,
        since=SINCE,
        before=figures(100, 100),
        during=figures(100, 98),
        remediation=remediation,
        spoiled=spoiled,
    )
    answer = {"verdict": Level.HEALTHY, "named": (), "ranked": (), "probability": None, "onset": None}
    return ClusterRunScore(truth, RealAnswer(**{**answer, "fired": (), "unexplained": (), **said}))


RIGHT = run("node-lost", (LOST,), verdict=Level.CRITICAL, named=(LOST,), ranked=(LOST,), onset=SINCE + 9)
LATE = run("zone-lost", (LOST,), ranked=("app.load.burst", LOST), onset=SINCE + 11)
UNDATED = run("node-lost", (LOST,), ranked=())
CALM = run("healthy-rollout", ())
ALARM = run("healthy-scale-in", (), verdict=Level.WARNING, named=(LOST,))
CRITICAL = run("healthy-scale-out", (), verdict=Level.CRITICAL)
SPOILED = run("node-lost", (LOST,), ("not healthy before",))


def test_faults_and_healthy_changes_are_scored_apart() -> None:
    scores = score_cluster([RIGHT, LATE, UNDATED, CALM, ALARM, CRITICAL, SPOILED], {"quota-1": "no answer"})
    assert (scores.runs, scores.spoiled) == (6, 1)
    assert (scores.ac1.right, scores.ac1.of) == (1, 3)
    assert (scores.named.right, scores.since_within_10s.right) == (1, 1)
    assert (scores.false_alarms.right, scores.false_alarms.of) == (2, 3)
    assert (scores.requests_lost, scores.requests, scores.requests_lost_in_faults) == (6, 600, 6)
    assert [line.right for line in scores.details] == [True, False, False, True, False, False]


def test_busy_processors_of_the_one_machine_are_neither_right_nor_wrong() -> None:
    contention = "infra.cpu.contention"
    faulty = run("node-lost", (LOST,), ranked=(contention, LOST))
    healthy = run("healthy-rollout", (), verdict=Level.WARNING, named=(contention,), ranked=(contention,))
    scores = score_cluster([faulty, healthy], {})
    assert (scores.ac1.right, scores.false_alarms.right) == (1, 0)


def test_remediations_are_counted_by_how_they_ended() -> None:
    ended = [ClusterRemediation("app.scale.out", code) for code in (0, 0, 3, 5)]
    scores = score_cluster([run("quota", (LOST,), remediation=one) for one in ended], {})
    counts = (scores.playbooks_run, scores.playbooks_verified, scores.playbooks_rolled_back)
    assert counts == (4, 2, 1)


def test_the_summary_marks_what_is_wrong() -> None:
    lines = cluster_summary(score_cluster([RIGHT, LATE, SPOILED], {"quota-1": "no answer"})).splitlines()
    assert "  node-lost-1: critical, named infra.kubernetes.node-lost, +9 s, 2 lost" in lines
    assert "! zone-lost-1: healthy, named nothing (first app.load.burst), +11 s, 2 lost" in lines
    assert lines[-2:] == ["node-lost-1 is spoiled: not healthy before", "quota-1 failed: no answer"]


def test_every_fault_is_planned_and_its_truth_is_the_catalogue_s() -> None:
    quick, whole = planned_cluster_runs(quick=True), planned_cluster_runs(quick=False)
    assert {spec.scenario for spec in quick if spec.causes} == set(names())
    assert sum(not spec.causes for spec in whole) == 20
    assert all(spec.causes == spec.fault.causes for spec in whole if spec.fault)
    assert {spec.scenario for spec in planned_cluster_runs(quick=True, only="quota")} == {"quota"}


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(UsageError, match="healthy-rollout"):
        planned_cluster_runs(quick=True, only="flood")
