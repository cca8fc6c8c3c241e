"""Ratios of two readings, where a source told both sides but not the ratio itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from latdoctor.evidence.comparing import of_ratio
from latdoctor.evidence.judging import show
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, is_unknown


@dataclass(frozen=True, slots=True)
class Quotient:
    """`signal` = `over` / `under`. `under` may belong to what the subject runs on, where `inherited` says so."""

    signal: str
    over: str
    under: str
    inherited: bool = False


QUOTIENTS = (
    Quotient("queue.time_share", "queue.time.mean", "latency.mean"),
    Quotient("compute.input_share", "compute.input.mean", "latency.mean"),
    Quotient("preprocess.time_share", "preprocess.time.mean", "latency.mean"),
    Quotient("dependency.time_share", "dependency.time.mean", "latency.mean"),
    Quotient("batch.alone_length_ratio", "batch.alone_length.mean", "input.length.mean"),
    Quotient("batch.shared_length_ratio", "batch.shared_longest.p95", "batch.alone_length.mean"),
    Quotient("server.rss_growth_share", "server.rss_growth", "server.rss"),
    Quotient("alloc.allocated_growth_share", "alloc.allocated_growth", "alloc.allocated"),
    Quotient("alloc.device_per_allocation", "alloc.device_calls_grown", "alloc.grown_allocations"),
    Quotient("gpu.sm_clock_ratio", "gpu.sm_clock", "gpu.sm_clock_max"),
    Quotient("gpu.power_ratio", "gpu.power", "gpu.power_limit"),
    Quotient("gpu.memory_used_ratio", "gpu.memory_used", "gpu.memory_total"),
    Quotient("process.threads_per_cpu", "process.runnable_threads", "host.cpus", inherited=True),
)


def quotients(evidence: Evidence) -> Evidence:
    """The ratios of `QUOTIENTS` for every subject with both sides; a denominator that is not above 0 is a gap."""
    found = [piece for quotient in QUOTIENTS for piece in _of_one(quotient, evidence)]
    return Evidence(
        readings=tuple(piece for piece in found if isinstance(piece, Reading)),
        gaps=tuple(piece for piece in found if isinstance(piece, Gap)),
    )


def _of_one(quotient: Quotient, evidence: Evidence) -> Iterator[Reading | Gap]:
    told = {(reading.subject, reading.labels) for reading in evidence.readings_by_signal.get(quotient.signal, ())}
    for over in _numerators(quotient, evidence):
        if (over.subject, over.labels) in told:
            continue
        under = _denominator(quotient, over, evidence)
        if under is None or isinstance(over.value, str) or isinstance(under.value, str):
            continue
        upper = show(quotient.over, over.value, over.bound)
        lower = show(quotient.under, under.value, under.bound)
        note = f"{quotient.over} {upper} over {quotient.under} {lower}"
        origin = Origin(over.origin.artifact, f"{quotient.over} over {quotient.under}")
        bound = of_ratio(over.bound, under.bound)
        if bound is None or under.value <= 0 or is_unknown(over.value / under.value):
            reason = f"{quotient.signal}: {note} cannot be divided"
            yield Gap("derived", reason, (quotient.signal,), over.subject, origin=origin)
            continue
        value = over.value / under.value
        yield Reading(quotient.signal, over.subject, value, origin, over.window, over.labels, note, bound)


def _numerators(quotient: Quotient, evidence: Evidence) -> tuple[Reading, ...]:
    """Of each subject and labels the known reading whose window ends last."""
    found: dict[tuple[str, object], Reading] = {}
    for reading in evidence.readings_by_signal.get(quotient.over, ()):
        key = (reading.subject, reading.labels)
        if not is_unknown(reading.value) and (key not in found or _end(reading) > _end(found[key])):
            found[key] = reading
    return tuple(found.values())


def _denominator(quotient: Quotient, over: Reading, evidence: Evidence) -> Reading | None:
    """The other side for the same labels; the same window before any other, then the one that ends last."""
    readings = evidence.readings_by_signal.get(quotient.under, ())
    for owner in evidence.lineage(over.subject) if quotient.inherited else (over.subject,):
        labels = over.labels if owner == over.subject else ()
        own = [r for r in readings if r.subject == owner and r.labels == labels and not is_unknown(r.value)]
        if own:
            return max(own, key=lambda r: (r.window == over.window, _end(r)))
    return None


def _end(reading: Reading) -> float:
    return reading.window.end or 0.0
