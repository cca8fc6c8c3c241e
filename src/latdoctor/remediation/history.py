"""Signals before a run, as far as a source remembers them: windows of equal length without long pauses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from latdoctor.detectors.level_shift import highest_run
from latdoctor.evidence.model import Series

_LONGEST_PAUSE = 3.5  # steps: up to two windows in which nothing was answered
_LATEST = 3.0  # steps from the last window to now
_MOST = 240  # windows
_DIGITS = 6  # of a value: it is journaled


class History(Struct, frozen=True):
    """By (signal, subject) the values of windows of `step` seconds, oldest first, that last until now."""

    step: float = 0.0
    values: Mapping[tuple[str, str], tuple[float, ...]] = {}
    source: str = ""

    @property
    def seconds(self) -> float:
        """How long it is: the longest of its signals."""
        return max(map(len, self.values.values()), default=0) * self.step

    def named_as(self, shown: Iterable[tuple[str, str]]) -> History:
        """With the subjects of what is shown now, where only the place (after the `@`) is called otherwise.

        A Prometheus names a server by its target, samples by the address that was watched then. A signal is renamed
        only where each side has one subject: another replica's past says nothing of this one.
        """
        now, then = _subjects(shown), _subjects(self.values)
        found = {}
        for (signal, subject), values in self.values.items():
            current = now.get(signal, set())
            name = next(iter(current), subject)
            same = len(current) == len(then[signal]) == 1 and _own_name(name) == _own_name(subject)
            found[signal, name if same else subject] = values
        return History(self.step, found, self.source)


# The history until now, in windows of at least so many seconds. Raises LatdoctorError where the source cannot be read.
ReadHistory = Callable[[float], History]


def _subjects(keys: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for signal, subject in keys:
        found.setdefault(signal, set()).add(subject)
    return found


def _own_name(subject: str) -> str:
    """The name of a subject without its place: `replica/0` of `replica/0@10.0.0.1:8002`."""
    return subject.partition("@")[0]


def no_history(_: float) -> History:
    return History()


def of_series(series: Iterable[Series], step: float, now: float, source: str) -> History:
    """The last part of each series that has no long pause, where it lasts until `now` (unix seconds)."""
    found = {}
    for one in series:
        values = _unbroken(one, step)
        if not one.labels and values and now - one.times[-1] <= _LATEST * step:
            found[one.signal, one.subject] = values
    return History(step, found, source)


def since_rise(values: Sequence[float]) -> tuple[float, ...]:
    """The values since they rose, where a rise is clear and lasts: what was before an incident is not its level."""
    run = highest_run(values)
    if run is None or run.last < len(values) - 2:
        return tuple(values)
    return tuple(values[run.first :])


def _unbroken(series: Series, step: float) -> tuple[float, ...]:
    found: list[float] = []
    last = math.inf
    for time, value in zip(reversed(series.times), reversed(series.values), strict=True):
        if not math.isfinite(value):
            continue
        if (found and last - time > _LONGEST_PAUSE * step) or len(found) == _MOST:
            break
        found.append(float(f"{value:.{_DIGITS}g}"))
        last = time
    return tuple(reversed(found))
