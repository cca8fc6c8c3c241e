"""A circuit breaker on the P99 of the last seconds, and a budget for requests that come in again."""

from __future__ import annotations

from collections import deque

WINDOW = 5.0  # seconds of answers that the P99 is taken of
FEWEST = 20  # answers below which no P99 is believed
_JUDGE_EVERY = 0.25  # seconds between two looks
_MOST = 4096  # answers remembered


class Breaker:
    """Opens when the P99 exceeds its limit, and closes after a time; then the latency is measured anew.

    Seconds of a monotonic clock. `note` is called with the shared lock held; `is_open` from everywhere.
    """

    def __init__(self) -> None:
        self._answers: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._judged = float("-inf")
        self._open_until = float("-inf")

    def is_open(self, now: float) -> bool:
        return now < self._open_until

    def note(self, latency: float, now: float, *, limit: float, open_for: float) -> None:
        """One answer took `latency`; a `limit` of 0 switches the breaker off."""
        if not limit:
            self._open_until = float("-inf")
            return
        self._answers.append((now, latency))
        if self.is_open(now) or now - self._judged < _JUDGE_EVERY:
            return
        self._judged = now
        while self._answers and self._answers[0][0] < now - WINDOW:
            self._answers.popleft()
        if len(self._answers) >= FEWEST and self._p99() > limit:
            self._open_until = now + open_for
            self._answers.clear()

    def _p99(self) -> float:
        """Nearest rank."""
        ordered = sorted(latency for _, latency in self._answers)
        return ordered[-(-len(ordered) * 99 // 100) - 1]

    def remaining(self, now: float) -> float:
        """Seconds until it closes."""
        return max(0.0, self._open_until - now)


class RetryBudget:
    """The share of requests that may be retries, over ten seconds (Google SRE book, chapter 21: at most 10 %)."""

    SECONDS = 10

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque(maxlen=self.SECONDS)  # [second, requests, retries let in]

    def allows(self, *, is_retry: bool, now: float, share: float) -> bool:
        """Counts one request in; False for a retry over the budget. A share of 0 allows any."""
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
        current = self._seconds[-1]
        current[1] += 1
        if not is_retry or not share:
            current[2] += is_retry
            return True
        recent = [entry for entry in self._seconds if entry[0] > second - self.SECONDS]
        if sum(entry[2] for entry in recent) + 1 > share * sum(entry[1] for entry in recent):
            return False
        current[2] += 1
        return True
