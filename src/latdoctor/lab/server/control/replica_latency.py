"""Latencies that the router measured at each replica, of the last seconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from statistics import fmean, median, pvariance

from msgspec import Struct

from latdoctor.lab.server.control.load_window import nearest_rank

_MOST = 16_384
_LEAST = 0.1  # seconds of a window


class ReplicaLatency(Struct, frozen=True):
    """One replica in the window, beside its peers. `ratio`: its typical latency over the median of theirs; `z`: of the
    difference of the mean logarithms, so that a few slow answers weigh little.
    """

    answers: int
    ratio: float
    z: float


class RouterMeasurement(Struct, frozen=True):
    """One window; seconds. `per_second`: the P95 of each full second with answers, the oldest first."""

    at: float
    seconds: float
    newest: float | None
    answers: int
    late: int
    p95: float
    per_second: Sequence[tuple[float, float]]
    replicas: Mapping[str, ReplicaLatency]

    @property
    def rate(self) -> float:
        return self.answers / self.seconds


class ReplicaLatencies:
    """Recorded on the router's event loop; times are seconds of its monotonic clock."""

    def __init__(self) -> None:
        self._answers: deque[tuple[float, str, float, bool]] = deque(maxlen=_MOST)
        self._began: float | None = None

    def answered(self, now: float, replica: str, seconds: float, *, good: bool) -> None:
        """A refusal or a failure is quick, and counts as late."""
        self._began = now if self._began is None else self._began
        self._answers.append((now, replica, seconds, good))

    def measure(self, now: float, seconds: float, slo: float, trend_seconds: float) -> RouterMeasurement:
        """The last `seconds`, and the P95 of each of the last `trend_seconds`."""
        recent = list(takewhile(lambda one: one[0] > now - trend_seconds, reversed(self._answers)))
        window = [one for one in recent if one[0] > now - seconds]
        by_second: dict[int, list[float]] = {}
        for at, _, took, good in recent:
            if good:
                by_second.setdefault(math.floor(now - at), []).append(took)
        per_second = [(now - ago, nearest_rank(sorted(took), 0.95)) for ago, took in by_second.items()]
        latencies = sorted(took for _, _, took, good in window if good)
        return RouterMeasurement(
            at=now,
            seconds=min(seconds, max(_LEAST, now - self._began)) if self._began is not None else seconds,
            newest=self._answers[-1][0] if self._answers else None,
            answers=len(window),
            late=sum(took > slo or not good for _, _, took, good in window),
            p95=nearest_rank(latencies, 0.95),
            per_second=sorted(per_second),
            replicas=_beside_peers(window),
        )


def _beside_peers(window: Sequence[tuple[float, str, float, bool]]) -> dict[str, ReplicaLatency]:
    logs: dict[str, list[float]] = {}
    for _, replica, took, good in window:
        if good:
            logs.setdefault(replica, []).append(math.log(max(took, 1e-6)))
    found = {}
    for replica, own in logs.items():
        peers = {name: values for name, values in logs.items() if name != replica}
        if not peers:
            continue
        level = median(fmean(values) for values in peers.values())
        others = [value for values in peers.values() for value in values]
        error = math.sqrt(pvariance(own) / len(own) + pvariance(others) / len(others))
        gap = fmean(own) - level
        found[replica] = ReplicaLatency(len(own), math.exp(gap), gap / error if error else 0.0)
    return found
