"""Detectors: statistics over evidence that turn series and distributions into derived readings.

A detector is a pure function from evidence to new evidence. `derive` runs them in the order of `DETECTORS`, each on the
input and the results of those before it. First it merges the subjects of one GPU (`gpu_identity`) and of one container
(`container_identity`), and drops the GPUs of other pods than a workload's (`gpu_holders`), contradictory figures
(`littles_law`) and impossible shares (`derived_readings`). At the end it bounds P99 where hardly any request is
answered (`unanswered`).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from latdoctor.detectors.arrival_change import arrival_changes
from latdoctor.detectors.batch_size_modes import batch_bimodality
from latdoctor.detectors.change_by_counters import changes_by_counters
from latdoctor.detectors.change_effect import change_effects
from latdoctor.detectors.client_excess_latency import client_excess_latency
from latdoctor.detectors.container_identity import merge_container_subjects
from latdoctor.detectors.contradicted_searches import withdraw_contradicted_searches
from latdoctor.detectors.derived_readings import (
    derived_remainders,
    drop_impossible_shares,
    model_properties,
    process_starts,
    quotients,
)
from latdoctor.detectors.engine_comparison import compare_engines
from latdoctor.detectors.first_requests import first_requests
from latdoctor.detectors.frontend_join import join_frontends
from latdoctor.detectors.gpu_holders import gpu_holders, without_foreign_gpus
from latdoctor.detectors.gpu_identity import merge_gpu_subjects
from latdoctor.detectors.held_requests import held_requests
from latdoctor.detectors.latency_estimate import latency_estimates
from latdoctor.detectors.latency_modes import latency_modes
from latdoctor.detectors.level_onset import level_onsets
from latdoctor.detectors.limit_change import limit_changes
from latdoctor.detectors.littles_law import drop_inconsistent_queues
from latdoctor.detectors.model_configuration import model_configurations
from latdoctor.detectors.noisy_neighbor import neighbour_cpu
from latdoctor.detectors.onset import onsets
from latdoctor.detectors.past_levels import past_levels
from latdoctor.detectors.periodicity import latency_pulses
from latdoctor.detectors.pipeline_steps import pipeline_steps
from latdoctor.detectors.quantiles import quantiles
from latdoctor.detectors.queue_bound import queue_bounds
from latdoctor.detectors.replica_outliers import compare_replicas
from latdoctor.detectors.revision_means import revision_means
from latdoctor.detectors.running_ceiling import running_ceilings
from latdoctor.detectors.standstill import standstill
from latdoctor.detectors.tail_attribution import tail_shares
from latdoctor.detectors.tail_bounds import tail_bounds
from latdoctor.detectors.unanswered import bound_latency_of_outages, unanswered_requests
from latdoctor.detectors.version_means import version_means
from latdoctor.detectors.version_outcomes import version_outcomes
from latdoctor.evidence.model import Evidence

Detector = Callable[[Evidence], Evidence]

DETECTORS: tuple[Detector, ...] = (
    gpu_holders,
    quantiles,
    tail_bounds,
    quotients,
    latency_estimates,
    model_configurations,
    derived_remainders,
    batch_bimodality,
    compare_replicas,
    neighbour_cpu,
    client_excess_latency,
    arrival_changes,
    join_frontends,
    running_ceilings,
    held_requests,
    version_means,
    version_outcomes,
    revision_means,
    past_levels,
    pipeline_steps,
    queue_bounds,
    standstill,
    unanswered_requests,
    first_requests,
    latency_modes,
    latency_pulses,
    tail_shares,
    model_properties,
    onsets,
    level_onsets,
    process_starts,
    change_effects,
    changes_by_counters,
    limit_changes,
    compare_engines,
)


def derive(evidence: Evidence) -> Evidence:
    """Return `evidence` with all derived evidence added and contradictions removed. Idempotent."""
    # No detector uses linear algebra, for which numpy would start a thread per processor when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    evidence = without_foreign_gpus(merge_container_subjects(merge_gpu_subjects(evidence)))
    evidence = withdraw_contradicted_searches(evidence)
    evidence = drop_inconsistent_queues(drop_impossible_shares(evidence))
    for detector in DETECTORS:
        evidence = Evidence.merge([evidence, detector(evidence)])
    return bound_latency_of_outages(evidence)
