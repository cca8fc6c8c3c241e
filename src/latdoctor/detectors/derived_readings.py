"""Readings derived from two others: ratios, remainders, process starts, model properties; and a check of shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from latdoctor.conditions.evaluator import of_ratio, show
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import Event, Evidence, Gap, Origin, Reading, Series, is_unknown
from latdoctor.gap_code import GapCode


@dataclass(frozen=True, slots=True)
class Quotient:
    """`signal` = `over` / `under`. With `inherited`, `under` may belong to a parent of the subject."""

    signal: str
    over: str
    under: str
    inherited: bool = False


QUOTIENTS = (
    Quotient("queue.time_share", "queue.time.mean", "latency.mean"),
    Quotient("compute.input_share", "compute.input.mean", "latency.mean"),
    Quotient("preprocess.time_share", "preprocess.time.mean", "latency.mean"),
    Quotient("dependency.time_share", "dependency.time.mean", "latency.mean"),
    Quotient("compute.infer_share", "compute.infer.mean", "compute.time.mean"),
    Quotient("batch.alone_length_ratio", "batch.alone_length.mean", "input.length.mean"),
    Quotient("batch.shared_length_ratio", "batch.shared_longest.p95", "batch.alone_length.mean"),
    Quotient("server.rss_growth_share", "server.rss_growth", "server.rss"),
    Quotient("alloc.allocated_growth_share", "alloc.allocated_growth", "alloc.allocated"),
    Quotient("alloc.device_per_allocation", "alloc.device_calls_grown", "alloc.grown_allocations"),
    Quotient("gpu.sm_clock_ratio", "gpu.sm_clock", "gpu.sm_clock_max"),
    Quotient("gpu.power_ratio", "gpu.power", "gpu.power_limit"),
    Quotient("gpu.memory_used_ratio", "gpu.memory_used", "gpu.memory_total"),
    Quotient("oom.other_share", "oom.other_used", "oom.device_total"),
    Quotient("start.memory_free_share", "start.memory_free", "start.memory_total"),
    Quotient("process.threads_per_cpu", "process.runnable_threads", "host.cpus", inherited=True),
)


def quotients(evidence: Evidence) -> Evidence:
    """Derive the ratios of `QUOTIENTS` for every subject with both sides; a denominator of 0 or less is a gap."""
    found = [piece for quotient in QUOTIENTS for piece in _of_one(quotient, evidence)]
    return Evidence(
        readings=tuple(piece for piece in found if isinstance(piece, Reading)),
        gaps=tuple(piece for piece in found if isinstance(piece, Gap)),
    )


def _of_one(quotient: Quotient, evidence: Evidence) -> Iterator[Reading | Gap]:
    reported = {(reading.subject, reading.labels) for reading in evidence.readings_by_signal.get(quotient.signal, ())}
    for over in _numerators(quotient, evidence):
        if (over.subject, over.labels) in reported:
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
            yield Gap("derived", reason, (quotient.signal,), over.subject, origin=origin, code=GapCode.INSUFFICIENT)
            continue
        value = over.value / under.value
        yield Reading(quotient.signal, over.subject, value, origin, over.window, over.labels, note, bound)


def _numerators(quotient: Quotient, evidence: Evidence) -> tuple[Reading, ...]:
    """The known reading whose window ends last, per subject and labels."""
    found: dict[tuple[str, object], Reading] = {}
    for reading in evidence.readings_by_signal.get(quotient.over, ()):
        key = (reading.subject, reading.labels)
        if not is_unknown(reading.value) and (key not in found or _end(reading) > _end(found[key])):
            found[key] = reading
    return tuple(found.values())


def _denominator(quotient: Quotient, over: Reading, evidence: Evidence) -> Reading | None:
    """The other side with the same labels; preferably of the same window, else the one that ends last."""
    readings = evidence.readings_by_signal.get(quotient.under, ())
    for owner in evidence.lineage(over.subject) if quotient.inherited else (over.subject,):
        labels = over.labels if owner == over.subject else ()
        own = [r for r in readings if r.subject == owner and r.labels == labels and not is_unknown(r.value)]
        if own:
            return max(own, key=lambda r: (r.window == over.window, _end(r)))
    return None


def _end(reading: Reading) -> float:
    return reading.window.end or 0.0


GIVES = ("arrival.first_rate", "batch.padding_ratio", "gpu.memory_temperature_margin", "hpa.at_maximum")
# A mean latency, the wait in it, and what is left.
RESTS = (
    ("latency.mean", "queue.time.mean", "latency.rest.mean"),
    ("latency.past_mean", "queue.time.before", "latency.rest.before"),
)


def derived_remainders(evidence: Evidence) -> Evidence:
    """Derive `arrival.first_rate` = arrivals · (1 − retry share), `batch.padding_ratio` = 1 − 1 / padding factor, and
    `gpu.memory_temperature_margin` = the highest permitted temperature of the memory less the present one, and
    `hpa.at_maximum` = the replicas are as many as the autoscaler may have, and `latency.rest.*` = the mean latency
    less the mean time in the queue.
    """
    made = (*_first_rates(evidence), *_padding(evidence), *_memory_margins(evidence), *_at_maximum(evidence),
            *_rests(evidence))  # fmt: skip
    return Evidence(readings=made)


def _first_rates(evidence: Evidence) -> Iterator[Reading]:
    reported = _subjects(evidence, "arrival.first_rate")
    shares = latest_values(evidence, "retry.share")
    for arrivals, rate in latest_numbers(evidence, "arrival.rate"):
        share = shares.get(arrivals.subject)
        if share is not None and arrivals.subject not in reported:
            yield _derive(arrivals, "arrival.first_rate", rate * max(0.0, 1 - share), "arrival.rate less retries")


def _rests(evidence: Evidence) -> Iterator[Reading]:
    for whole, waits, rest in RESTS:
        queued = latest_values(evidence, waits)
        reported = _subjects(evidence, rest)
        for now, value in latest_numbers(evidence, whole):
            if now.subject in queued and now.subject not in reported and value > queued[now.subject]:
                yield _derive(now, rest, value - queued[now.subject], f"{whole} less {waits}")


def _memory_margins(evidence: Evidence) -> Iterator[Reading]:
    limits = latest_values(evidence, "gpu.memory_temperature_max")
    for now, value in latest_numbers(evidence, "gpu.memory_temperature"):
        limit = limits.get(now.subject)
        if limit is not None and limit > 0:
            yield _derive(now, "gpu.memory_temperature_margin", limit - value, "gpu.memory_temperature_max less it")


def _at_maximum(evidence: Evidence) -> Iterator[Reading]:
    reported = _subjects(evidence, "hpa.at_maximum")
    most = latest_values(evidence, "hpa.replicas_max")
    for now, replicas in latest_numbers(evidence, "hpa.replicas"):
        if now.subject in most and now.subject not in reported:
            yield _derive(now, "hpa.at_maximum", float(replicas >= most[now.subject]), "hpa.replicas at its maximum")


def _padding(evidence: Evidence) -> Iterator[Reading]:
    reported = _subjects(evidence, "batch.padding_ratio")
    for factor, value in latest_numbers(evidence, "batch.padding_factor"):
        # Below 1 fewer tokens were computed than requested: the two counters do not cover the same batches.
        if factor.subject not in reported and value >= 1:
            yield _derive(factor, "batch.padding_ratio", 1 - 1 / value, "one less 1 / batch.padding_factor")


def _subjects(evidence: Evidence, signal: str) -> frozenset[str]:
    return frozenset(one.subject for one in evidence.readings_by_signal.get(signal, ()))


def latest_numbers(evidence: Evidence, signal: str) -> Iterator[tuple[Reading, float]]:
    """Yield the known numeric readings without labels; per subject the one whose window ends last."""
    found: dict[str, tuple[Reading, float]] = {}
    for one in evidence.readings_by_signal.get(signal, ()):
        if isinstance(one.value, str) or is_unknown(one.value) or one.labels:
            continue
        known = found.get(one.subject)
        if known is None or (one.window.end or 0.0) > (known[0].window.end or 0.0):
            found[one.subject] = (one, one.value)
    yield from found.values()


def latest_values(evidence: Evidence, signal: str) -> dict[str, float]:
    """The values of `latest_numbers`, by subject."""
    return {one.subject: value for one, value in latest_numbers(evidence, signal)}


def _derive(source: Reading, signal: str, value: float, place: str) -> Reading:
    return Reading(signal, source.subject, value, Origin(source.origin.artifact, place), source.window, (), source.note)


SLACK = 0.05  # usage and capacity are not read at the same moment


def drop_impossible_shares(evidence: Evidence) -> Evidence:
    """Return `evidence` without shares outside 0..1, each replaced by a gap."""
    wrong = {(signal, subject): (value, origin) for signal, subject, value, origin in _impossible(evidence)}
    if not wrong:
        return evidence
    return replace(
        evidence,
        readings=tuple(one for one in evidence.readings if (one.signal, one.subject) not in wrong),
        series=tuple(one for one in evidence.series if (one.signal, one.subject) not in wrong),
        gaps=(*evidence.gaps, *(_gap(*of, *details) for of, details in wrong.items())),
    )


def _impossible(evidence: Evidence) -> Iterator[tuple[str, str, float, Origin]]:
    pieces: tuple[Reading | Series, ...] = (*evidence.readings, *evidence.series)
    for one in pieces:
        if catalogue()[one.signal].kind == SignalKind.SHARE:
            found = next((value for value in _values(one) if not -SLACK <= value <= 1 + SLACK), None)
            if found is not None:
                yield one.signal, one.subject, found, one.origin


def _values(of: Reading | Series) -> Iterator[float]:
    reported = of.values if isinstance(of, Series) else (of.value,)
    yield from (value for value in reported if not isinstance(value, str) and not is_unknown(value))


def _gap(signal: str, subject: str, value: float, origin: Origin) -> Gap:
    reason = f"{signal} is {value:.4g}, but a share must be between 0 and 1"
    return Gap("derived", reason, (signal,), subject, "check the unit of its exporter", origin, GapCode.INCONSISTENT)


UPTIMES = ("server.uptime", "process.uptime")
STARTED = "change.process_start"


def process_starts(evidence: Evidence) -> Evidence:
    """Derive `change.process_start` from every uptime whose source did not report the start itself."""
    reported = {event.subject for event in evidence.events_by_signal.get(STARTED, ())}
    found: list[Event] = []
    for signal in UPTIMES:
        for one in evidence.readings_by_signal.get(signal, ()):
            if one.subject in reported or one.window.end is None or isinstance(one.value, str) or is_unknown(one.value):
                continue
            reported.add(one.subject)
            origin = Origin(one.origin.artifact, f"{one.origin.place}, from {signal}".lstrip(", "))
            found.append(Event(STARTED, one.subject, origin, {}, one.window.end - one.value))
    return Evidence(events=tuple(found))


# Bits of the number types of common frameworks.
BITS: Mapping[str, float] = {
    **dict.fromkeys(("fp64", "float64", "double"), 64.0),
    **dict.fromkeys(("fp32", "float32", "float", "tf32"), 32.0),
    **dict.fromkeys(("bf16", "bfloat16", "fp16", "float16", "half"), 16.0),
    **dict.fromkeys(("int8", "qint8", "fp8", "float8"), 8.0),
    **dict.fromkeys(("int4", "fp4"), 4.0),
}
FUSED: Mapping[str, float] = {
    **dict.fromkeys(("sdpa", "flash", "flash2", "flash3", "flash_attention_2", "efficient", "xformers", "cudnn"), 1.0),
    **dict.fromkeys(("naive", "eager", "math"), 0.0),
}
WORDS = (("model.dtype", "model.bits", BITS), ("model.attention", "model.attention_fused", FUSED))


def model_properties(evidence: Evidence) -> Evidence:
    """Derive `model.bits` from `model.dtype` and `model.attention_fused` from `model.attention`, for known values."""
    found: list[Reading] = []
    for source, signal, meaning in WORDS:
        reported = {one.subject for one in evidence.readings_by_signal.get(signal, ())}
        for one in evidence.readings_by_signal.get(source, ()):
            value = meaning.get(str(one.value).lower().removeprefix("torch."))
            if value is not None and one.subject not in reported:
                reported.add(one.subject)
                found.append(Reading(signal, one.subject, value, one.origin, one.window, (), f"{source} {one.value}"))
    return Evidence(readings=tuple(found))
