"""Why the requests of one replica failed, and the limit at which a gateway or the clients cut them off.

A time-out shows as requests that end at the same whole number of seconds: 60.000 s, 60.001 s. Less than a second counts
in tenths. The limit is named where at least half of the requests that failed, and three, end there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from statistics import median

from latdoctor.collectors.access_log.entry import CLIENT_LEFT, is_failure
from latdoctor.collectors.access_log.failures import TIMED_OUT, FailureReason
from latdoctor.collectors.access_log.replica_stats import ReplicaStats
from latdoctor.collectors.access_log.requests import REASONS
from latdoctor.evidence.model import Evidence, Reading, Series

# The rates of a gateway's metrics page, as its log shows them.
GATEWAY: dict[str, frozenset[FailureReason]] = {
    "gateway.timeout_rate": frozenset({FailureReason.UPSTREAM_TIMEOUT, FailureReason.DURATION_TIMEOUT}),
    "gateway.reset_rate": frozenset({FailureReason.UPSTREAM_RESET}),
    "gateway.unavailable_rate": frozenset(
        {FailureReason.NO_UPSTREAM, FailureReason.UPSTREAM_UNREACHABLE, FailureReason.UPSTREAM_OVERFLOW}
    ),
}
SIGNALS = (
    "request.failure_share", "request.failure_time", "request.failure_rate", "timeout.limit", "timeout.share",
    "client.timeout_limit", "client.timeout_share", "upstream.retry_share", "upstream.error_ratio", "retry.share",
    *GATEWAY,
)  # fmt: skip
_FEWEST, _SHARE = 3, 0.5
_FEWEST_IDS = 20
_EARLY, _LATE, _LATEST, _LATE_SHARE = 0.02, 0.05, 0.5, 0.01  # seconds (and share of the limit) around it
_REFUSED = frozenset({429})
_REQUEST_TIMEOUT = 408


def failure_evidence(stats: ReplicaStats) -> Evidence:
    """Reasons, limits, retries and answers of the servers behind a proxy, as far as the log has them."""
    return Evidence(
        readings=(*_reasons(stats), *_gateway(stats), *_limits(stats), *_upstreams(stats)),
        series=(*_reason_series(stats), *_gateway_series(stats)),
    )


def _reasons(stats: ReplicaStats) -> Iterator[Reading]:
    counts = Counter(place for row in stats.recent if (place := stats.requests.failure[row]) >= 0)
    for place, count in counts.most_common():
        note = f"{count} of {stats.total} requests"
        labels = (("reason", str(REASONS[place])),)
        yield stats.reading("request.failure_share", count / stats.total, note, labels=labels)
        failed = (row for row in stats.recent if stats.requests.failure[row] == place)
        durations = [seconds for row in failed if (seconds := stats.requests.duration[row]) >= 0]
        if durations:
            yield stats.reading("request.failure_time", median(durations), note, labels=labels)


def _reason_series(stats: ReplicaStats) -> Iterator[Series]:
    found = sorted({place for row in stats.timed if (place := stats.requests.failure[row]) >= 0})
    steps = (
        [(end, Counter(stats.requests.failure[row] for row in rows)) for end, rows in stats.steps()] if found else []
    )
    for place in found if len(steps) > 1 else ():
        rates = [counts[place] / stats.step for _, counts in steps]
        labels = (("reason", str(REASONS[place])),)
        yield stats.series("request.failure_rate", [end for end, _ in steps], rates, labels)


def _gateway(stats: ReplicaStats) -> Iterator[Reading]:
    """Rates of failures that the log shows; one that does not show any may not be able to."""
    seconds = stats.window.seconds or 0.0
    for signal, reasons in GATEWAY.items() if seconds >= 1 else ():
        count = _count(stats, reasons, stats.dated)
        if count:
            yield stats.reading(signal, count / seconds, f"{count} of {stats.total} requests")


def _gateway_series(stats: ReplicaStats) -> Iterator[Series]:
    for signal, reasons in GATEWAY.items():
        if _count(stats, reasons, stats.timed):
            points = [(end, _count(stats, reasons, rows) / stats.step) for end, rows in stats.steps()]
            if len(points) > 1:
                yield stats.series(signal, [end for end, _ in points], [rate for _, rate in points])


def _count(stats: ReplicaStats, reasons: Collection[FailureReason], rows: Sequence[int]) -> int:
    return sum(place >= 0 and REASONS[place] in reasons for row in rows for place in (stats.requests.failure[row],))


def _limits(stats: ReplicaStats) -> Iterator[Reading]:
    failed, left = [], []
    for row in stats.recent:
        seconds = stats.requests.duration[row]
        if seconds >= 0 and stats.requests.status[row] in CLIENT_LEFT:
            left.append(seconds)
        elif seconds >= 0 and _failed(stats.requests.status[row], stats.requests.failure[row]):
            failed.append(seconds)
    for before, durations in (("", failed), ("client.", left)):
        if (found := cut_off(durations)) is not None:
            limit, count = found
            note = f"{count} of the {len(durations)} that failed end there"
            yield stats.reading(f"{before}timeout{'_' if before else '.'}limit", limit, note)
            yield stats.reading(f"{before}timeout{'_' if before else '.'}share", count / stats.total, note)


def _failed(status: int, place: int) -> bool:
    """Whether a request was answered with an error, after however long, or timed out; a refusal is neither."""
    if place >= 0 and REASONS[place] == FailureReason.UPSTREAM_ERROR:
        return False  # the server behind the proxy gave up itself
    answered = status >= 0 and is_failure(status) and status not in _REFUSED
    return answered or status == _REQUEST_TIMEOUT or (place >= 0 and REASONS[place] in TIMED_OUT)


def cut_off(durations: Sequence[float]) -> tuple[float, int] | None:
    """The limit at which most of `durations` (seconds) end, and how many do; None if they have none in common."""
    counts = Counter(limit for seconds in durations if (limit := _limit_of(seconds)))
    if not counts:
        return None
    limit, count = counts.most_common(1)[0]
    return (limit, count) if count >= max(_FEWEST, _SHARE * len(durations)) else None


def _limit_of(seconds: float) -> float:
    """The whole second (below one: the tenth) that `seconds` hardly exceeds; 0 if there is none."""
    if seconds < 1 - _EARLY:
        tenth = math.floor(seconds * 10 + _EARLY) / 10
        return tenth if seconds - tenth <= _LATE / 5 else 0.0
    whole = math.floor(seconds + _EARLY)
    return float(whole) if seconds - whole <= min(_LATEST, max(_LATE, _LATE_SHARE * whole)) else 0.0


def _upstreams(stats: ReplicaStats) -> Iterator[Reading]:
    attempts = [count for row in stats.recent if (count := stats.requests.attempts[row]) > 0]
    if attempts:
        again = sum(count > 1 for count in attempts)
        note = f"{again} of {len(attempts)} requests"
        yield stats.reading("upstream.retry_share", again / len(attempts), note)
    sent = [again for row in stats.recent if (again := stats.requests.again[row]) >= 0]
    if len(sent) == stats.total and stats.total >= _FEWEST_IDS:
        yield stats.reading("retry.share", sum(sent) / len(sent), f"{sum(sent)} of {len(sent)} had failed before")
    behind = [status for row in stats.recent if (status := stats.requests.upstream_status[row]) >= 0]
    if behind:
        failed = sum(status >= 500 for status in behind)
        yield stats.reading("upstream.error_ratio", failed / len(behind), f"{failed} of {len(behind)} answers")
