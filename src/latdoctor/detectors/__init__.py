"""Statistics over evidence: series and distributions become derived readings.

A detector is a pure function from evidence to the new pieces only. They run in the order of `DETECTORS`, each on what
was given and what the ones before it found. Before them, what several sources tell of one GPU is put together (`cards`)
and what contradicts itself or is no share of anything is taken out (`consistency`, `shares`).
"""

from __future__ import annotations

from collections.abc import Callable

from latdoctor.detectors.arrival_change import arrival_changes
from latdoctor.detectors.bimodality import batch_bimodality
from latdoctor.detectors.client_excess_latency import clients
from latdoctor.detectors.derived_ratios import model_words, possible, quotients, remainders, starts
from latdoctor.detectors.gpu_identity import joined
from latdoctor.detectors.latency_modes import latency_modes
from latdoctor.detectors.littles_law import consistent
from latdoctor.detectors.noisy_neighbor import neighbours
from latdoctor.detectors.onset import onsets
from latdoctor.detectors.periodicity import pulses
from latdoctor.detectors.quantiles import quantiles
from latdoctor.detectors.replica_outliers import siblings
from latdoctor.detectors.tail_attribution import tail_shares
from latdoctor.detectors.tensorrt_engines import engines
from latdoctor.evidence.model import Evidence

Detector = Callable[[Evidence], Evidence]

DETECTORS: tuple[Detector, ...] = (
    quantiles,
    quotients,
    remainders,
    batch_bimodality,
    siblings,
    neighbours,
    clients,
    arrival_changes,
    latency_modes,
    pulses,
    tail_shares,
    model_words,
    onsets,
    starts,
    engines,
)


def derive(evidence: Evidence) -> Evidence:
    """`evidence` with everything derived from it, and without what contradicts itself. Deriving twice adds nothing."""
    evidence = consistent(possible(joined(evidence)))
    for detector in DETECTORS:
        evidence = Evidence.merge([evidence, detector(evidence)])
    return evidence
