"""Statistics over evidence: series and distributions become derived readings.

A detector is a pure function from evidence to the new pieces only. They run in the order of `DETECTORS`, each on what
was given and what the ones before it found. Before them, what several sources tell of one GPU is put together (`cards`)
and what contradicts itself or is no share of anything is taken out (`consistency`, `shares`).
"""

from __future__ import annotations

from collections.abc import Callable

from latdoctor.detect.bimodality import batch_bimodality
from latdoctor.detect.cards import joined
from latdoctor.detect.change import arrival_changes
from latdoctor.detect.clients import clients
from latdoctor.detect.consistency import consistent
from latdoctor.detect.engines import engines
from latdoctor.detect.latency_modes import latency_modes
from latdoctor.detect.model_words import model_words
from latdoctor.detect.neighbours import neighbours
from latdoctor.detect.onset import onsets
from latdoctor.detect.pulse import pulses
from latdoctor.detect.quantiles import quantiles
from latdoctor.detect.quotients import quotients
from latdoctor.detect.remainders import remainders
from latdoctor.detect.shares import possible
from latdoctor.detect.siblings import siblings
from latdoctor.detect.starts import starts
from latdoctor.detect.tail import tail_shares
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
