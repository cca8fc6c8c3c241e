"""Latency that a client measures beyond what its server reports.

`client.excess.*` are differences of the same statistic on both sides. For means, the difference is the mean excess. For
99th percentiles it is only the difference, because percentiles do not add. `client.excess.deviation` assumes that the
network delay is independent of the server's time, so that variances add: σ² = σ²(client) − σ²(server).

Three safeguards:

* Several servers: if together they answered as many requests as the client received, they are pooled. Otherwise it is
  unknown which of them the client called: the excess is measured against the slowest one and marked "at least".
* A process with a blocked event loop handles requests and responses late, so the client waits although the network is
  not at fault. If that may explain the whole excess, it is marked "at most". A request that arrives at a random time of
  an interval t meets a loop blocked for x₁, x₂, … for Σx²/2t on average (mean residual life: D. R. Cox, Renewal Theory,
  1962). The mean of the lags is smaller, because a heartbeat measures one wait however long it is. Both requests and
  responses are delayed this way.
* The pages must cover the same time. A single page has lifetime averages, and lifetimes differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from latdoctor.detectors.quantiles import is_valid, latest_distributions, quantiles
from latdoctor.evidence.model import (
    AT_LEAST,
    AT_MOST,
    Bucket,
    Distribution,
    Evidence,
    Gap,
    Labels,
    Origin,
    Reading,
    Window,
    is_unknown,
)
from latdoctor.gap_code import GapCode
from latdoctor.units import format_value

CLIENT = "client/"
SMALL, LARGE = (("size", "small"),), (("size", "large"),)
LOOP_PASSES = 3.0  # times that a request may meet a blocked loop: on arrival, on response, and one as a margin
LAGS = 8.0  # multiple of the mean lag, if only that is known
MIN_SEEN = 20  # responses on either side; a mean of fewer is decided by single requests
OVERLAP = 0.5  # of the longer window
ALIKE = 0.15  # relative difference of counts of the same requests, because pages are read one after the other
DEVIATION = "client.excess.deviation"
RATIO = "client.latency_ratio"
DERIVED = (
    "client.excess.mean",
    "client.excess.p99",
    "client.excess.small",
    "client.excess.large",
    DEVIATION,
    RATIO,
)


@dataclass(frozen=True, slots=True)
class ExcessDefinition:
    """`signal` = `client` − `server`, both with `labels`."""

    signal: str
    client: str
    server: str
    labels: Labels = ()


DIFFERENCES = (
    ExcessDefinition("client.excess.mean", "client.latency.mean", "latency.mean"),
    ExcessDefinition("client.excess.p99", "client.latency.p99", "latency.p99"),
    ExcessDefinition("client.excess.small", "client.latency_by_size.mean", "latency_by_size.mean", SMALL),
    ExcessDefinition("client.excess.large", "client.latency_by_size.mean", "latency_by_size.mean", LARGE),
)


@dataclass(frozen=True, slots=True)
class LoopDelay:
    """Possible delay of a request by blocked event loops: mean and standard deviation, seconds."""

    mean: float
    deviation: float = 0.0

    @property
    def tail(self) -> float:
        return self.mean + 3 * self.deviation


def client_excess_latency(evidence: Evidence) -> Evidence:
    """Derive the signals of DERIVED for every client with a matching server page."""
    reported = {(reading.signal, reading.subject) for reading in evidence.readings if reading.signal in DERIVED}
    found: list[Reading | Gap] = []
    for client in _of(evidence, "client.latency.mean", ()):
        if any((signal, client.subject) in reported for signal in DERIVED):
            continue
        found.extend(_of_client(evidence, client))
    return Evidence(
        readings=tuple(piece for piece in found if isinstance(piece, Reading)),
        gaps=tuple(piece for piece in found if isinstance(piece, Gap)),
    )


def _of_client(evidence: Evidence, client: Reading) -> Iterator[Reading | Gap]:
    servers = [one for one in _of(evidence, "latency.mean", ()) if not one.subject.startswith(CLIENT)]
    concurrent = [one for one in servers if _same_time(client.window, one.window)]
    if not concurrent:
        yield _alone(client, servers)
        return
    few = _few(evidence, {client.subject, *(one.subject for one in concurrent)})
    if few:
        yield _gap(client, DERIVED, few, GapCode.INSUFFICIENT, "watch for longer: --window 60s")
        return
    subjects = frozenset(one.subject for one in concurrent)
    loop_delay = _loop_delay(evidence, client.subject, subjects)
    together = _together(evidence, client.subject, subjects)
    for difference in DIFFERENCES:
        reading = _difference(evidence, difference, client.subject, subjects, together)
        if isinstance(reading, Reading):
            settled = _bounded(reading, loop_delay.tail if reading.signal == "client.excess.p99" else loop_delay.mean)
            yield settled
            if isinstance(settled, Reading) and reading.signal == "client.excess.mean":
                yield from _ratio(client, settled)
        elif reading is not None:
            yield reading
    yield from _deviation(evidence, client.subject, subjects, loop_delay)


def _alone(client: Reading, servers: list[Reading]) -> Gap:
    if not servers:
        return _gap(
            client,
            DERIVED,
            "no server-side latency was collected for this client",
            GapCode.ABSENT,
            "add --server URL of the server",
        )
    if client.window.start is None or all(one.window.start is None for one in servers):
        reason = "lifetime averages of a client and a server are not comparable"
    else:
        reason = "the pages of the client and the server cover different times"
    return _gap(
        client, DERIVED, reason, GapCode.STALE, "watch both at once: --server SERVER --server CLIENT --window 10s"
    )


def _same_time(one: Window, other: Window) -> bool:
    if one == other == Window():
        return True  # evidence written by hand in a test
    if one.start is None or one.end is None or other.start is None or other.end is None:
        return False
    longer = max(one.end - one.start, other.end - other.start)
    return min(one.end, other.end) - max(one.start, other.start) >= OVERLAP * longer


def _few(evidence: Evidence, subjects: set[str]) -> str:
    for one in latest_distributions(evidence):
        if one.signal in ("latency", "client.latency") and one.subject in subjects and one.count < MIN_SEEN:
            return f"{one.count:g} responses observed on {one.subject}, {MIN_SEEN} are needed"
    return ""


def _loop_delay(evidence: Evidence, client: str, servers: frozenset[str]) -> LoopDelay:
    """Possible delay by the event loops on both sides, as far as reported."""
    own = _measured_loop_delay(evidence, "client.loop_lag", frozenset({client}))
    server_side = _measured_loop_delay(evidence, "loop.lag", servers)
    return LoopDelay(LOOP_PASSES * (own.mean + server_side.mean), math.hypot(own.deviation, server_side.deviation))


def _measured_loop_delay(evidence: Evidence, signal: str, subjects: frozenset[str]) -> LoopDelay:
    found = [
        LoopDelay(LAGS / LOOP_PASSES * _number(one))
        for one in _of(evidence, f"{signal}.mean", ())
        if one.subject in subjects
    ]
    lags = [
        one
        for one in latest_distributions(evidence)
        if one.signal == signal and one.subject in subjects and is_valid(one)
    ]
    exact = [_residual(one, seconds) for one in lags if (seconds := one.window.seconds)]
    return max(exact or found, key=lambda loop_delay: loop_delay.mean, default=LoopDelay(0.0))


def _residual(lags: Distribution, seconds: float) -> LoopDelay:
    """Mean residual delay from the buckets' upper bounds, an overestimate; the unbounded bucket counts 1.5 × its lower
    bound.
    """
    ends = [(one.high if math.isfinite(one.high) else 1.5 * one.low, one.count) for one in lags.buckets]
    mean = sum(count * end**2 for end, count in ends) / (2 * seconds)
    square = sum(count * end**3 for end, count in ends) / (3 * seconds)
    return LoopDelay(mean, math.sqrt(max(0.0, square - mean**2)))


def _together(evidence: Evidence, client: str, servers: frozenset[str]) -> tuple[Reading, ...]:
    """Pool the servers' readings if their responses are as many as the client's; otherwise return none."""
    known = {(one.signal, one.subject, one.labels): one for one in latest_distributions(evidence) if is_valid(one)}
    client_side = known.get(("client.latency", client, ()))
    if client_side is None or len(servers) < 2:
        return ()
    found: list[Reading] = []
    for signal, labels in (("latency", ()), ("latency_by_size", SMALL), ("latency_by_size", LARGE)):
        parts = [known[signal, name, labels] for name in sorted(servers) if (signal, name, labels) in known]
        answers = sum(one.count for one in parts)
        if signal == "latency" and (
            len(parts) < len(servers) or abs(answers - client_side.count) > ALIKE * client_side.count
        ):
            return ()
        if not answers or any(one.total is None for one in parts):
            continue
        pool = Distribution(
            signal,
            f"{len(parts)} servers together",
            _merged(parts),
            parts[0].origin,
            sum(one.total or 0.0 for one in parts),
            parts[0].window,
            labels,
        )
        found.extend(one for one in quantiles(Evidence(distributions=(pool,))).readings)
    return tuple(found)


def _merged(parts: list[Distribution]) -> tuple[Bucket, ...]:
    counts: dict[tuple[float, float], float] = {}
    for bucket in (bucket for one in parts for bucket in one.buckets):
        counts[bucket.low, bucket.high] = counts.get((bucket.low, bucket.high), 0.0) + bucket.count
    return tuple(Bucket(low, high, count) for (low, high), count in counts.items())


def _difference(
    evidence: Evidence, of: ExcessDefinition, client: str, servers: frozenset[str], together: tuple[Reading, ...]
) -> Reading | Gap | None:
    client_side = next((one for one in _of(evidence, of.client, of.labels) if one.subject == client), None)
    server_side = [one for one in together if (one.signal, one.labels) == (of.server, of.labels)]
    server_side = server_side or [one for one in _of(evidence, of.server, of.labels) if one.subject in servers]
    if client_side is None or not server_side:
        return None
    slowest = max(server_side, key=_number)
    if slowest.bound or client_side.bound == AT_MOST:
        return _gap(client_side, (of.signal,), f"{of.signal}: one side is known only by a bound", GapCode.INSUFFICIENT)
    note = f"{of.client} {_seconds(client_side)} less {of.server} {_seconds(slowest)}"
    if len(server_side) > 1:
        note += f" of the slowest of {len(server_side)} servers, {slowest.subject}"
    bound = AT_LEAST if client_side.bound or len(server_side) > 1 else ""
    origin = Origin(client_side.origin.artifact, f"{of.client} less {of.server} of {slowest.subject}")
    return Reading(
        of.signal, client, _number(client_side) - _number(slowest), origin, client_side.window, (), note, bound
    )


def _bounded(reading: Reading, loop_delay: float) -> Reading | Gap:
    """Return `reading`, marked "at most" if event loop delays may explain it."""
    if loop_delay <= 0 or loop_delay < _number(reading):
        return reading
    late = f"blocked event loops may explain {format_value(loop_delay, 'time')} of it"
    if reading.bound:
        return _gap(reading, (reading.signal,), f"{reading.signal}: {late}", GapCode.INSUFFICIENT)
    return Reading(
        reading.signal,
        reading.subject,
        reading.value,
        reading.origin,
        reading.window,
        (),
        f"{reading.note}; {late}",
        AT_MOST,
    )


def _ratio(client: Reading, excess: Reading) -> Iterator[Reading]:
    server = _number(client) - _number(excess)
    if server > 0:
        origin = Origin(client.origin.artifact, "client.latency.mean over latency.mean")
        yield Reading(
            RATIO, client.subject, _number(client) / server, origin, client.window, (), excess.note, excess.bound
        )


def _deviation(
    evidence: Evidence, client: str, servers: frozenset[str], loop_delay: LoopDelay
) -> Iterator[Reading | Gap]:
    """Uses small bodies only, to exclude the cost of size, and requires a single server."""
    found = {
        one.subject: one
        for one in latest_distributions(evidence)
        if one.labels == SMALL
        and (one.signal, one.subject in servers) in {("latency_by_size", True), ("client.latency_by_size", False)}
    }
    client_side, server_side = found.pop(client, None), [found[name] for name in servers if name in found]
    if client_side is None or len(server_side) != 1:
        return
    spread, own = _variance(client_side), _variance(server_side[0])
    if spread is None or own is None:
        reason = f"{DEVIATION}: fewer than {MIN_SEEN} responses to small bodies, or some beyond the last bucket"
        yield Gap("derived", reason, (DEVIATION,), client, "watch for longer: --window 60s", code=GapCode.INSUFFICIENT)
        return
    note = f"standard deviations {format_value(math.sqrt(spread), 'time')} at the client and "
    note += f"{format_value(math.sqrt(own), 'time')} at the server, from the middles of buckets"
    value = math.sqrt(max(0.0, spread - own))
    origin = Origin(client_side.origin.artifact, "spread of client.latency_by_size beyond latency_by_size")
    yield _bounded(Reading(DEVIATION, client, value, origin, client_side.window, (), note), loop_delay.deviation)


def _variance(one: Distribution) -> float | None:
    """Variance from bucket middles (s²); None if there are too few observations or unbounded buckets."""
    buckets = [bucket for bucket in one.buckets if bucket.count > 0]
    if not is_valid(one) or one.count < MIN_SEEN or any(math.isinf(b.high) or math.isinf(b.low) for b in buckets):
        return None
    middles = [((bucket.low + bucket.high) / 2, bucket.count / one.count) for bucket in buckets]
    mean = sum(middle * share for middle, share in middles)
    return sum(share * (middle - mean) ** 2 for middle, share in middles)


def _of(evidence: Evidence, signal: str, labels: Labels) -> tuple[Reading, ...]:
    """Known readings of `signal` with exactly `labels`; per subject the one whose window ends last."""
    found: dict[str, Reading] = {}
    for one in evidence.readings_by_signal.get(signal, ()):
        if one.labels != labels or isinstance(one.value, str) or is_unknown(one.value):
            continue
        known = found.get(one.subject)
        if known is None or (one.window.end or 0.0) > (known.window.end or 0.0):
            found[one.subject] = one
    return tuple(found.values())


def _gap(of: Reading, signals: tuple[str, ...], reason: str, code: GapCode, next_step: str = "") -> Gap:
    return Gap("derived", reason, signals, of.subject, next_step, of.origin, code)


def _seconds(one: Reading) -> str:
    text = format_value(_number(one), "time")
    return f"{one.bound} {text}" if one.bound else text


def _number(one: Reading) -> float:
    return 0.0 if isinstance(one.value, str) else one.value
