"""What each version of the model does behind the router: requests, latency, errors, and answers to the probe set."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram

from latdoctor.shares import Share

FAILED_STATUSES = frozenset({429, 500, 502, 503, 504})  # as the error ratio of a server counts them
OK = 200
_MOST_LATENCIES = 20_000


@dataclass(slots=True)
class VersionTotals:
    """Counts of a version since `reset`. `latencies`: of its last answers, in seconds."""

    requests: int = 0
    errors: int = 0
    probes: int = 0
    wrong_probes: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_LATENCIES))


class VersionMetrics:
    """Counters by version, on the router's metrics page and for the judgement of a canary. Used on the event loop."""

    def __init__(self, registry: CollectorRegistry, buckets: Sequence[float]) -> None:
        self._requests = Counter(
            "ref_router_version_requests",
            "Requests answered by a replica with this version of the model",
            ("model_version", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "ref_router_version_seconds",
            "From a request's arrival at the router to the answer of this version of the model",
            ("model_version",),
            registry=registry,
            buckets=tuple(buckets),
        )
        self._probes = Counter(
            "ref_router_version_probes",
            "Requests of the probe set that this version of the model answered",
            ("model_version", "result"),
            registry=registry,
        )
        self._totals: defaultdict[str, VersionTotals] = defaultdict(VersionTotals)

    def answered(self, version: str, status: int, seconds: float) -> None:
        """A client's request; `status` as sent to the client."""
        if not version:
            return
        self._requests.labels(version, str(status)).inc()
        totals = self._totals[version]
        totals.requests += 1
        totals.errors += status in FAILED_STATUSES
        if status == OK:
            self._seconds.labels(version).observe(seconds)
            totals.latencies.append(seconds)

    def probed(self, version: str, *, right: bool) -> None:
        """A request of the probe set; one without an answer is no answer of the model, and counts with the errors."""
        if not self._totals[version].probes:  # a counter of 0 says more than a missing one
            for result in ("right", "wrong"):
                self._probes.labels(version, result)
        self._probes.labels(version, "right" if right else "wrong").inc()
        self._totals[version].probes += 1
        self._totals[version].wrong_probes += not right

    def reset(self) -> None:
        """Forgets what the judgement counts; the page's counters go on."""
        self._totals.clear()

    def totals(self, version: str) -> VersionTotals:
        return self._totals[version]

    def errors(self, version: str) -> Share:
        return Share(self._totals[version].errors, self._totals[version].requests)

    def wrong(self, version: str) -> Share:
        return Share(self._totals[version].wrong_probes, self._totals[version].probes)

    def slower_than(self, version: str, limit: float) -> Share:
        """Answers over `limit` seconds; a request without an answer is slow too."""
        totals = self._totals[version]
        late = sum(seconds > limit for seconds in totals.latencies)
        return Share(late + totals.errors, len(totals.latencies) + totals.errors)

    def quantile(self, version: str, share: float) -> float:
        """The latency in seconds that this share of the version's answers stay within; 0 without answers."""
        ordered = sorted(self._totals[version].latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
