"""The differences of two observations of one target, value by value, the largest change first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from latdoctor.evidence.model import Evidence, Value, is_unknown

Key = tuple[str, str]  # signal, subject
_P99 = ("latency.p99", "client.latency.p99")
# Quantities of a healthy service vary by a fifth from one observation to the next.
ALIKE = 1.2


@dataclass(frozen=True, slots=True)
class Difference:
    """One signal of one subject, before and after; None where that observation does not have it."""

    signal: str
    subject: str
    before: Value | None
    after: Value | None

    @property
    def factor(self) -> float | None:
        """How many times as much it is; None for texts, signs that differ, and where one is missing or zero."""
        if isinstance(self.before, str) or isinstance(self.after, str) or not self.before or not self.after:
            return None
        return self.after / self.before if self.before * self.after > 0 else None

    @property
    def is_one(self) -> bool:
        """Whether they differ at all: by more than a fifth, or as texts, or one of them is missing or zero."""
        if self.factor is None:
            return self.before != self.after
        return not 1 / ALIKE <= self.factor <= ALIKE

    @property
    def _size(self) -> float:
        if self.before == self.after:
            return 0.0
        return math.inf if self.factor is None else abs(math.log(self.factor))


def values(evidence: Evidence) -> dict[Key, Value]:
    """The known values of `evidence` without label splits; of several the one whose window ends last.

    A P99 that is known only by a bound is left out: it would make two services differ by what lies between two bounds.
    """
    found: dict[Key, tuple[float, Value]] = {}
    for one in evidence.readings:
        if one.labels or is_unknown(one.value) or (one.bound and one.signal in _P99):
            continue
        end = one.window.end or -math.inf
        if (one.signal, one.subject) not in found or end >= found[one.signal, one.subject][0]:
            found[one.signal, one.subject] = (end, one.value)
    return {key: value for key, (_, value) in found.items()}


def differences(before: Mapping[Key, Value], after: Mapping[Key, Value]) -> tuple[Difference, ...]:
    """Every signal of either observation. A renamed subject is matched where each has only one with that signal."""
    renamed = _renamed(before, after)
    found = []
    matched: set[Key] = set()
    for key, value in before.items():
        now = renamed.get(key, key)
        matched.add(now)
        found.append(Difference(key[0], now[1] if now in after else key[1], value, after.get(now)))
    found += [Difference(signal, subject, None, value) for (signal, subject), value in after.items()
              if (signal, subject) not in matched]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one._size, one.signal, one.subject)))


def _renamed(before: Mapping[Key, Value], after: Mapping[Key, Value]) -> dict[Key, Key]:
    """Keys of `before` under the name that their subject has in `after`."""
    then, now = _subjects(before), _subjects(after)
    return {
        (signal, subjects[0]): (signal, now[signal][0])
        for signal, subjects in then.items()
        if len(subjects) == 1 and len(now.get(signal, ())) == 1
    }


def _subjects(known: Mapping[Key, Value]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for signal, subject in known:
        found.setdefault(signal, []).append(subject)
    return found
