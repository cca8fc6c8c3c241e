"""What the controller measures: answers, refused requests, batches and offered work of the last seconds."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TypeVar

from msgspec import Struct

from latdoctor.lab.server.schedulers.batch import ReleaseReason
from latdoctor.lab.server.schedulers.cost_model import Cost

T = TypeVar("T")
_MOST = 16_384  # entries of each kind that are kept
MEMORY = 10  # windows in which the longest request is remembered


class QueueState(Struct, frozen=True):
    """The queue at the moment of a measurement: `oldest_age` in seconds."""

    depth: int = 0
    oldest_age: float = 0.0


class CallCosts(Struct, frozen=True):
    """What the cost model has learnt, None while it knows nothing, and the present bound of a batch in tokens."""

    cost: Cost | None = None
    fixed_share: float | None = None
    batch_tokens: int = 0


NO_COSTS = CallCosts()


class Measurement(Struct, frozen=True):
    """One window that ended at `at`, seconds of the server's monotonic clock; all durations in seconds.

    `late`: answers slower than the objective. `newest`: of the last observation of any kind, None where there is none.
    `busy`: share of the window in which the worker computed. `longest_request` (tokens) is of the last MEMORY windows;
    `full_batch` is predicted for a batch that fills the bound with requests as long as that, `full_batch_fixed` the
    share of it that does not depend on its size; 0 while they are not known. `fixed_share` is that share in the latest
    calls; None while it is not known. `bound_by_tokens`, `bound_by_requests`: shares of the batches that it closed.
    """

    at: float
    seconds: float
    newest: float | None = None
    arrivals: int = 0
    offered_tokens: int = 0
    answers: int = 0
    late: int = 0
    shed: int = 0
    p50: float = 0.0
    p99: float = 0.0
    queue: QueueState = QueueState()
    busy: float = 0.0
    batches: int = 0
    batch_size: float = 0.0
    longest_batch: float = 0.0
    longest_request: int = 0
    full_batch: float = 0.0
    full_batch_fixed: float = 0.0
    bound_by_tokens: float = 0.0
    bound_by_requests: float = 0.0
    timed_out: float = 0.0
    fixed_share: float | None = None

    @property
    def finished(self) -> int:
        """Requests that were answered or turned away."""
        return self.answers + self.shed

    @property
    def missed(self) -> int:
        """Requests that the objective was missed for."""
        return self.late + self.shed

    def age(self, now: float) -> float:
        """Seconds since the last observation; infinite where there never was one."""
        return max(0.0, now - self.newest) if self.newest is not None else math.inf

    @property
    def token_rate(self) -> float:
        """Offered tokens a second."""
        return self.offered_tokens / self.seconds if self.seconds else 0.0


class LoadWindow:
    """Records observations from any thread; times are seconds of one monotonic clock, given by the caller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=_MOST)
        self._answers: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._shed: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._batches: deque[tuple[float, tuple[float, int, ReleaseReason]]] = deque(maxlen=_MOST)

    def arrived(self, now: float, tokens: int) -> None:
        """A request of so many tokens asks for admission."""
        with self._lock:
            self._arrivals.append((now, tokens))

    def answered(self, now: float, seconds: float) -> None:
        with self._lock:
            self._answers.append((now, seconds))

    def shed(self, now: float) -> None:
        with self._lock:
            self._shed.append((now, 0.0))

    def computed(self, now: float, seconds: float, size: int, reason: ReleaseReason) -> None:
        """A batch of so many requests took so long."""
        with self._lock:
            self._batches.append((now, (seconds, size, reason)))

    def measure(
        self, now: float, seconds: float, slo: float, queue: QueueState, costs: CallCosts = NO_COSTS
    ) -> Measurement:
        """The last `seconds`. `slo` in seconds: what takes longer is late."""
        since, memory = now - seconds, now - MEMORY * seconds
        with self._lock:
            newest = max((kind[-1][0] for kind in (self._answers, self._shed, self._batches) if kind), default=None)
            tokens = _since(self._arrivals, since)
            latencies = sorted(_since(self._answers, since))
            shed = len(_since(self._shed, since))
            batches = _since(self._batches, since)
            longest = max(_since(self._arrivals, memory), default=0)
        full_batch = _full_batch(costs, longest)
        return Measurement(
            at=now,
            seconds=seconds,
            newest=newest,
            arrivals=len(tokens),
            offered_tokens=sum(tokens),
            answers=len(latencies),
            late=sum(latency > slo for latency in latencies),
            shed=shed,
            p50=nearest_rank(latencies, 0.5),
            p99=nearest_rank(latencies, 0.99),
            queue=queue,
            busy=min(1.0, sum(took for took, _, _ in batches) / seconds),
            batches=len(batches),
            batch_size=sum(size for _, size, _ in batches) / max(1, len(batches)),
            longest_batch=max((took for took, _, _ in batches), default=0.0),
            longest_request=longest,
            full_batch=full_batch,
            full_batch_fixed=costs.cost.fixed / full_batch if costs.cost is not None and full_batch else 0.0,
            bound_by_tokens=_share(reason is ReleaseReason.TOKENS for _, _, reason in batches),
            bound_by_requests=_share(reason is ReleaseReason.FULL for _, _, reason in batches),
            timed_out=_share(reason is ReleaseReason.TIMEOUT for _, _, reason in batches),
            fixed_share=costs.fixed_share,
        )


def _full_batch(costs: CallCosts, longest: int) -> float:
    """Seconds of a batch that fills the bound with requests as long as the longest."""
    tokens = max(costs.batch_tokens, longest)
    return costs.cost.seconds(1, longest) * tokens / longest if costs.cost is not None and longest else 0.0


def _since(entries: deque[tuple[float, T]], since: float) -> list[T]:
    """The values after `since`. Entries are in order of time but for a few that two threads added at once."""
    return [value for _, value in takewhile(lambda entry: entry[0] > since, reversed(entries))]


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values; 0 where there are none."""
    return ordered[max(1, math.ceil(share * len(ordered))) - 1] if ordered else 0.0
