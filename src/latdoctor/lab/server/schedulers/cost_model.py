"""What a forward pass costs, learnt while the server runs (seconds = a + b·B·T + c·B·T²), and admission by it.

B requests padded to T tokens: a is the fixed cost of a call, b the cost of the linear layers, c that of attention.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from latdoctor.lab.server.schedulers.batch import Batch, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REMEMBERED = 0.99  # weight of the past at each new call: about the last hundred calls count
_NEWEST = 0.1  # the same for the running means
# How strongly each term is pulled to zero while little is known (ridge). The linear term least: from a single shape,
# "twice the tokens, twice the time" is the best guess. The pull fades with the number of calls.
_RIDGE = np.array((1e-2, 1e-4, 1e-1))
# Keeps the three columns of a similar size: seconds, per thousand tokens, per million token pairs.
_SCALES = np.array((1.0, 1e-3, 1e-6))


class Cost(Struct, frozen=True):
    """A fitted cost, in seconds; none of the three is negative."""

    fixed: float
    per_token: float
    per_token_pair: float

    def seconds(self, size: int, longest: int) -> float:
        """The time of one call with `size` requests padded to `longest` tokens."""
        return self.fixed + size * longest * (self.per_token + longest * self.per_token_pair)


class Admission(Struct, frozen=True):
    """Whether a request is admitted. `predicted`: seconds until its answer, None while the cost is unknown."""

    admitted: bool
    predicted: float | None = None
    retry_after: int | None = None  # whole seconds for the Retry-After header, where it is not admitted


class CostModel:
    """A ridge fit of relative errors with forgetting, so that one call delayed by another process weighs little.

    Before the first call `cost` and every prediction is None, and no request is shed because of it. The worker's thread
    reads and changes it; `admission` may be called from any thread.
    """

    def __init__(self) -> None:
        self._gram = np.zeros((3, 3))
        self._target = np.zeros(3)
        self._calls = 0.0
        self._cost: Cost | None = None
        self._stale = False
        self._size = self._padding = 1.0
        self._mean_seconds = 0.0
        self._running: tuple[Batch, float] | None = None
        self._lock = threading.Lock()
        self.error_ratio: float | None = None  # running mean of |predicted − measured| ÷ measured

    @property
    def cost(self) -> Cost | None:
        if self._stale:
            self._cost = _fit(self._gram, self._target, self._calls)
            self._stale = False
        return self._cost

    def started(self, batch: Batch, now: float) -> None:
        """The worker computes `batch` from now on."""
        with self._lock:
            self._running = (batch, now)

    def finished(self, now: float) -> None:
        """The worker is done with the batch it started; its duration is learnt."""
        with self._lock:
            if self._running is not None:
                batch, since = self._running
                self._running = None
                self.observe(batch, now - since)

    def abandoned(self) -> None:
        """The batch was not finished as started: nothing is learnt from it."""
        with self._lock:
            self._running = None

    def observe(self, batch: Batch, seconds: float) -> None:
        """One call that took `seconds`. A duration that is not positive and finite is ignored."""
        if not (seconds > 0 and math.isfinite(seconds)) or not batch.padded_tokens:
            return
        first = self._calls == 0
        longest = batch.padded_tokens // batch.size
        cost = self.cost
        if cost is not None:
            error = abs(cost.seconds(batch.size, longest) - seconds) / seconds
            self.error_ratio = error if self.error_ratio is None else _mean(self.error_ratio, error)
        padding = batch.padded_tokens / batch.tokens
        self._size = batch.size if first else _mean(self._size, batch.size)
        self._padding = padding if first else _mean(self._padding, padding)
        self._mean_seconds = seconds if first else _mean(self._mean_seconds, seconds)
        row = np.array((1.0, batch.padded_tokens, batch.padded_tokens * longest)) * _SCALES / seconds
        self._target = _REMEMBERED * self._target + row
        self._gram = _REMEMBERED * self._gram + np.outer(row, row)
        self._calls = _REMEMBERED * self._calls + 1
        self._stale = True

    def learnt(self) -> tuple[Cost | None, float | None]:
        """The cost, and the share of it in the latest calls that is fixed; None while nothing is known. Any thread."""
        with self._lock:
            cost = self.cost
            share = min(1.0, cost.fixed / self._mean_seconds) if cost is not None and self._mean_seconds else None
            return cost, share

    def predicted_wait(self, now: float, pending: Iterable[Work]) -> float | None:
        """Seconds until everything that is computed or waits is done, or None while nothing is known.

        The requests are assumed to be batched and padded as in the latest calls. With a rule that prefers short
        requests this is the wait of the last one: an upper bound for the others.
        """
        cost = self.cost
        if cost is None:
            return None
        lengths = [work.tokens for work in pending]
        tokens = sum(lengths) * self._padding
        pairs = sum(length * length for length in lengths) * self._padding
        queued = cost.fixed * len(lengths) / self._size + cost.per_token * tokens + cost.per_token_pair * pairs
        return queued + self._remaining(cost, now)

    def admission(self, work: Work, now: float, pending: Iterable[Work]) -> Admission:
        """Judges `work` by its deadline and by what waits already (with lanes: in its own lane).

        An idle server admits every request: otherwise a model that learnt during a slow minute would refuse all
        requests, and with nothing to compute it would never learn again.
        """
        waiting = list(pending)
        with self._lock:
            wait, cost, busy = self.predicted_wait(now, waiting), self.cost, self._running is not None
        if wait is None or cost is None:
            return Admission(admitted=True)
        predicted = wait + cost.seconds(1, work.tokens)
        late = -math.inf if work.deadline is None else now + predicted - work.deadline
        if late <= 0 or not (waiting or busy):
            return Admission(admitted=True, predicted=predicted)
        return Admission(admitted=False, predicted=predicted, retry_after=max(1, math.ceil(late)))

    def _remaining(self, cost: Cost, now: float) -> float:
        if self._running is None:
            return 0.0
        batch, since = self._running
        return max(0.0, since + cost.seconds(batch.size, batch.padded_tokens // batch.size) - now)


def _mean(before: float, newest: float) -> float:
    return before + _NEWEST * (newest - before)


def _fit(gram: NDArray[np.float64], target: NDArray[np.float64], calls: float) -> Cost:
    """The best coefficients of which none is negative: of three terms, every combination is tried."""
    pulled = gram + np.diag(np.diag(gram) * _RIDGE / calls)
    best, least = np.zeros(3), math.inf
    for terms in (list(chosen) for size in (3, 2, 1) for chosen in combinations(range(3), size)):
        found = np.linalg.solve(pulled[np.ix_(terms, terms)], target[terms])
        # At the optimum the error is a constant − x·target, so the largest x·target wins.
        if found.min() >= 0 and (error := -float(found @ target[terms])) < least:
            least, best = error, np.zeros(3)
            best[terms] = found
    return Cost(*map(float, best * _SCALES))
