"""Do the figures of a queue fit together? Where they break Little's law, the evidence is invalid, and no cause.

L = λ·W (Little 1961): the mean number that waits is the rate times the mean wait, whatever the order of service. Rates
of arrivals and of completions differ while a queue grows or shrinks, so L must lie between the two products. A depth
that was sampled a few times is a rough mean and waits are counted when they end, hence a factor of FACTOR each way.
Beyond it one of the two speaks of something else than the other (a depth that counts only part of the queue, a wait in
another unit, counters of another model): neither is believed.
"""

from __future__ import annotations

from msgspec.structs import replace

from latdoctor.evidence.model import Evidence, Gap, Reading, is_unknown
from latdoctor.units import format_value

DEPTH, WAIT = "queue.depth", "queue.time.mean"
RATES = ("arrival.rate", "completion.rate")
DOUBTED = (DEPTH, WAIT, "queue.time")
FACTOR = 3.0
LEAST = 10.0  # requests: below it one sample more or less decides


def consistent(evidence: Evidence) -> Evidence:
    """`evidence` without the queue's figures where they contradict each other, which is a gap instead."""
    broken = {subject: reason for subject in _subjects(evidence) if (reason := _contradiction(evidence, subject))}
    if not broken:
        return evidence
    gaps = tuple(
        Gap("derived", reason, DOUBTED, subject, "ask the server's queue for itself, or watch for longer: --window 60s")
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


def _subjects(evidence: Evidence) -> tuple[str, ...]:
    return tuple({one.subject: None for one in evidence.readings_by_signal.get(DEPTH, ())})


def _contradiction(evidence: Evidence, subject: str) -> str:
    depth, wait = (_value(evidence, signal, subject) for signal in (DEPTH, WAIT))
    rates = [rate for signal in RATES if (rate := _value(evidence, signal, subject)) is not None]
    if depth is None or wait is None or not rates:
        return ""
    low, high = min(rates) * wait, max(rates) * wait
    if max(depth, low) < LEAST or low / FACTOR <= depth <= high * FACTOR:
        return ""
    told = f"{min(rates):.4g}/s that wait {format_value(wait, 'time')} each make a queue of {low:.3g}"
    return f"the queue's figures contradict each other by Little's law: {told}, and its depth is {depth:.3g}"


def _value(evidence: Evidence, signal: str, subject: str) -> float | None:
    """Of the readings without labels the one whose window ends last, where it is a number."""
    found: Reading | None = None
    for one in evidence.readings_by_signal.get(signal, ()):
        if one.subject != subject or one.labels or isinstance(one.value, str) or is_unknown(one.value) or one.bound:
            continue
        if found is None or (one.window.end or 0.0) >= (found.window.end or 0.0):
            found = one
    return None if found is None or isinstance(found.value, str) else found.value
