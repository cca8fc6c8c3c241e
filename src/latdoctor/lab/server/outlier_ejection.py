"""Outlier ejection: which replicas get no requests for a while, because they fail or are slower than the others.

Pure decisions on a clock that the caller passes in, in seconds. A replica is ejected after so many failures in a row,
or when its median latency is so many times that of the others. It is probed when its time is over, and comes back with
the first good probe; each bad one doubles the time (Envoy calls the same `outlier_detection`, without the probe).
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

WINDOW = 10.0  # seconds of answers that a median is of
FEWEST = 10  # answers, for a median
LEAST_EXCESS = 0.02  # seconds above the others: twice of very little is no outlier
JUDGE_EVERY = 0.5  # seconds between two comparisons
LONGEST_TIMES = 64  # an ejection lasts at most so many times the first one
_MOST_ANSWERS = 500


class EjectionReason(StrEnum):
    """Why a replica was ejected. The values are metric labels."""

    FAILURES = "failures"
    LATENCY = "latency"


class OutlierRule(Struct, frozen=True):
    """`failures` in a row, and `latency_ratio` to the others, eject; 0: never. At most `share` of the ready replicas
    are out, and never all of them. `seconds`: of a first ejection."""

    failures: int = 0
    latency_ratio: float = 0.0
    seconds: float = 5.0
    share: float = 0.5

    @property
    def is_on(self) -> bool:
        return self.failures > 0 or self.latency_ratio > 0


@dataclass(slots=True)
class _History:
    """One replica. `out_until`: when it is probed; `times`: ejections and bad probes in a row."""

    failures: int = 0
    answers: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MOST_ANSWERS))
    reason: EjectionReason | None = None
    out_until: float = 0.0
    in_since: float = float("-inf")
    lasted: float = 0.0
    times: int = 0


class OutlierEjection:
    """The ejected replicas of one group. Used on one thread."""

    def __init__(self, rule: OutlierRule | None = None) -> None:
        self._rule = rule or OutlierRule()
        self._replicas: dict[str, _History] = {}
        self._judged = float("-inf")
        self.counts: Counter[tuple[str, EjectionReason]] = Counter()

    def configure(self, rule: OutlierRule) -> None:
        """Applies another rule; without any, all replicas are in at once."""
        self._rule = rule
        if not rule.is_on:
            self._replicas.clear()

    def reason(self, name: str) -> EjectionReason | None:
        """Why the replica is out; None: it is in."""
        history = self._replicas.get(name)
        return history.reason if history else None

    def forget(self, name: str) -> None:
        """The replica is gone, or has another process."""
        self._replicas.pop(name, None)

    def answered(self, name: str, now: float, *, failed: bool, seconds: float, ready: Collection[str]) -> None:
        """A request to the replica was answered after `seconds`, or failed; `ready`: every replica that could be in."""
        if not self._rule.is_on:
            return
        history = self._replicas.setdefault(name, _History())
        if history.reason is not None:  # it was sent before the ejection
            return
        history.failures = history.failures + 1 if failed else 0
        if not failed:
            history.answers.append((now, seconds))
        if self._rule.failures and history.failures >= self._rule.failures:
            self._eject(name, EjectionReason.FAILURES, now, ready)
        if self._rule.latency_ratio and now - self._judged >= JUDGE_EVERY:
            self._judged = now
            self._judge_latency(now, ready)

    def due(self, now: float) -> Sequence[str]:
        """Those whose time is over: they are to be probed."""
        return [name for name, one in self._replicas.items() if one.reason is not None and one.out_until <= now]

    def probed(self, name: str, now: float, *, failed: bool, seconds: float) -> bool:
        """The result of a probe of an ejected replica; True where it is in again."""
        history = self._replicas.get(name)
        if history is None or history.reason is None:
            return True
        others = self._usual_of_others(name, now, self._replicas)
        slow = history.reason is EjectionReason.LATENCY and others is not None and self._is_slow(seconds, others)
        if failed or slow:
            self._extend(history, now)
            return False
        history.reason, history.failures, history.in_since = None, 0, now
        history.answers.clear()
        return True

    def _judge_latency(self, now: float, ready: Collection[str]) -> None:
        slow = []
        for name in ready:
            own, others = self._median(name, now), self._usual_of_others(name, now, ready)
            if own is not None and others is not None and self._is_slow(own, others):
                slow.append((own / max(others, 1e-9), name))
        for _, name in sorted(slow, reverse=True):
            self._eject(name, EjectionReason.LATENCY, now, ready)

    def _is_slow(self, seconds: float, others: float) -> bool:
        return seconds > self._rule.latency_ratio * others and seconds - others > LEAST_EXCESS

    def _median(self, name: str, now: float) -> float | None:
        """Of the last answers of a replica that is in; None where they are too few."""
        history = self._replicas.get(name)
        if history is None or history.reason is not None:
            return None
        recent = [seconds for at, seconds in history.answers if at > now - WINDOW]
        return statistics.median(recent) if len(recent) >= FEWEST else None

    def _usual_of_others(self, name: str, now: float, among: Collection[str] | Mapping[str, object]) -> float | None:
        medians = [found for one in among if one != name and (found := self._median(one, now)) is not None]
        return statistics.median(medians) if medians else None

    def _eject(self, name: str, reason: EjectionReason, now: float, ready: Collection[str]) -> None:
        """Unless too many would be out. Its count of failures goes on, so that it is out as soon as there is room."""
        out = sum(self.reason(one) is not None for one in ready)
        most = min(int(self._rule.share * len(ready) + 1e-9), len(ready) - 1)
        if name not in ready or out >= most:
            return
        history = self._replicas[name]
        if now - history.in_since > history.lasted:  # it was well for as long as it had been out
            history.times = 0
        history.reason = reason
        self._extend(history, now)
        self.counts[name, reason] += 1

    def _extend(self, history: _History, now: float) -> None:
        history.lasted = self._rule.seconds * min(2**history.times, LONGEST_TIMES)
        history.times = min(history.times + 1, 30)
        history.out_until = now + history.lasted
