"""What a forward pass costs, learnt while the server runs: seconds = a + b·B·T + c·B·T².

B requests padded to T tokens: a is the fixed cost of a call, b the cost of the linear layers, c that of attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

from msgspec import Struct

from latdoctor.lab.server.schedulers.batch import Batch, Work

_REMEMBERED = 0.99  # weight of the past at each new call: about the last hundred calls count
_NEWEST = 0.1  # the same for the running means
# How strongly each term is pulled to zero while little is known (ridge). The linear term least: from a single shape,
# "twice the tokens, twice the time" is the best guess. The pull fades as calls are seen.
_RIDGE = (1e-2, 1e-4, 1e-1)
# Keeps the three columns of a similar size: seconds, per thousand tokens, per million token pairs.
_SCALES = (1.0, 1e-3, 1e-6)

_Vector = list[float]


class Cost(Struct, frozen=True):
    """A fitted cost, in seconds; none of the three is negative."""

    fixed: float
    per_token: float
    per_token_pair: float

    def seconds(self, size: int, longest: int) -> float:
        """The time of one call with `size` requests padded to `longest` tokens."""
        return self.fixed + size * longest * (self.per_token + longest * self.per_token_pair)


class CostModel:
    """A ridge fit of relative errors with forgetting, so that one call held up by a neighbour weighs little.

    Before the first call `cost` and every prediction is None, and no request is shed because of it.
    """

    def __init__(self) -> None:
        self._gram = [[0.0] * 3 for _ in range(3)]
        self._target = [0.0] * 3
        self._calls = 0.0
        self._cost: Cost | None = None
        self._stale = False
        self._size = self._padding = 1.0
        self._running: tuple[Batch, float] | None = None
        self.error_ratio: float | None = None  # running mean of |predicted − measured| ÷ measured

    @property
    def cost(self) -> Cost | None:
        if self._stale:
            self._cost = _fit(self._gram, self._target, self._calls)
            self._stale = False
        return self._cost

    def started(self, batch: Batch, now: float) -> None:
        """The worker computes `batch` from now on."""
        self._running = (batch, now)

    def finished(self, now: float) -> None:
        """The worker is done with the batch it started; what it took is learnt."""
        if self._running is not None:
            batch, since = self._running
            self._running = None
            self.observe(batch, now - since)

    def abandoned(self) -> None:
        """The batch was not finished (the worker died): nothing is learnt from it."""
        self._running = None

    def observe(self, batch: Batch, seconds: float) -> None:
        """One call that took `seconds`. A duration that is not positive and finite teaches nothing."""
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
        row = (1.0, float(batch.padded_tokens), float(batch.padded_tokens * longest))
        row_scaled = [value * scale / seconds for value, scale in zip(row, _SCALES, strict=True)]
        for i, left in enumerate(row_scaled):
            self._target[i] = _REMEMBERED * self._target[i] + left
            for j, right in enumerate(row_scaled):
                self._gram[i][j] = _REMEMBERED * self._gram[i][j] + left * right
        self._calls = _REMEMBERED * self._calls + 1
        self._stale = True

    def predicted_wait(self, now: float, pending: Iterable[Work]) -> float | None:
        """Seconds until everything that is computed or waits is done, or None while nothing is known.

        The requests are taken to be batched and padded as in the latest calls. With a rule that prefers short
        requests this is what the last one waits: an upper bound for the others.
        """
        cost = self.cost
        if cost is None:
            return None
        lengths = [work.tokens for work in pending]
        tokens = sum(lengths) * self._padding
        pairs = sum(length * length for length in lengths) * self._padding
        queued = cost.fixed * len(lengths) / self._size + cost.per_token * tokens + cost.per_token_pair * pairs
        return queued + self._remaining(cost, now)

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    def _remaining(self, cost: Cost, now: float) -> float:
        if self._running is None:
            return 0.0
        batch, since = self._running
        return max(0.0, since + cost.seconds(batch.size, batch.padded_tokens // batch.size) - now)


def _mean(before: float, newest: float) -> float:
    return before + _NEWEST * (newest - before)


def _fit(gram: Sequence[_Vector], target: _Vector, calls: float) -> Cost:
    """The best coefficients of which none is negative: of three terms, every choice of them can be tried."""
    pulled = [row.copy() for row in gram]
    for i in range(3):
        pulled[i][i] *= 1 + _RIDGE[i] / calls
    best, least = [0.0] * 3, math.inf
    for terms in (chosen for size in (3, 2, 1) for chosen in combinations(range(3), size)):
        found = _solve([[pulled[i][j] for j in terms] for i in terms], [target[i] for i in terms])
        if min(found) < 0:
            continue
        # At the optimum the error is a constant − x·target, so the largest x·target wins.
        error = -sum(value * target[i] for value, i in zip(found, terms, strict=True))
        if error < least:
            least, best = error, [found[terms.index(i)] if i in terms else 0.0 for i in range(3)]
    return Cost(*(value * scale for value, scale in zip(best, _SCALES, strict=True)))


def _solve(matrix: list[_Vector], right: _Vector) -> _Vector:
    """Gauss elimination of a small symmetric positive definite system (the ridge makes it so)."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for below in rows[i + 1 :]:
            share = below[i] / rows[i][i]
            for k in range(i, size + 1):
                below[k] -= share * rows[i][k]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - sum(rows[i][k] * found[k] for k in range(i + 1, size))) / rows[i][i]
    return found
