"""Consistency check of queue figures by Little's law; contradictory figures are dropped.

L = λ·W (Little 1961): the mean number waiting is the arrival rate times the mean wait, whatever the order of service.
Arrival and completion rates differ while a queue grows or shrinks, so L must be between the two products. A depth
sampled a few times is a rough mean, and waits are counted when they end, hence a tolerance of FACTOR in either
direction. Beyond it the figures describe different things (a depth of part of the queue, a wait in another unit,
counters of another model), and none of them is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from latdoctor.detectors.derived_readings import latest_numbers
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode
from latdoctor.units import format_value

DEPTH, WAIT = "queue.depth", "queue.time.mean"
RATES = ("arrival.rate", "completion.rate")
DOUBTED = (DEPTH, WAIT, "queue.time")
FACTOR = 3.0
LEAST = 10.0  # requests; below this, single samples decide


def drop_inconsistent_queues(evidence: Evidence) -> Evidence:
    """Return `evidence` with contradictory queue figures replaced by a gap."""
    broken = dict(_contradictions(evidence))
    if not broken:
        return evidence
    gaps = tuple(
        Gap(
            "derived",
            reason,
            DOUBTED,
            subject,
            "check the server's own queue metrics, or watch for longer: --window 60s",
            code=GapCode.INCONSISTENT,
        )
        for subject, reason in broken.items()
    )
    return replace(
        evidence,
        readings=tuple(one for one in evidence.readings if not (one.subject in broken and one.signal in DOUBTED)),
        series=tuple(one for one in evidence.series if not (one.subject in broken and one.signal in DOUBTED)),
        distributions=tuple(
            one for one in evidence.distributions if not (one.subject in broken and one.signal in DOUBTED)
        ),
        gaps=(*evidence.gaps, *gaps),
    )


def _contradictions(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield each subject with contradictory figures and the reason."""
    waits, *rates = (_values(evidence, signal) for signal in (WAIT, *RATES))
    for subject, depth in _values(evidence, DEPTH).items():
        known_rates = [rate[subject] for rate in rates if subject in rate]
        if subject not in waits or not known_rates:
            continue
        wait = waits[subject]
        low, high = min(known_rates) * wait, max(known_rates) * wait
        if max(depth, low) >= LEAST and not low / FACTOR <= depth <= high * FACTOR:
            expected = f"{min(known_rates):.4g}/s waiting {format_value(wait, 'time')} each give a queue of {low:.3g}"
            detail = f"{expected}, but its depth is {depth:.3g}"
            yield subject, f"the queue's figures contradict each other by Little's law: {detail}"


def _values(evidence: Evidence, signal: str) -> dict[str, float]:
    return {one.subject: value for one, value in latest_numbers(evidence, signal) if not one.bound}
