"""The level of signals over several windows: before a change, and after it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Evidence, Reading, is_unknown
from latdoctor.remediation.chance import Samples
from latdoctor.remediation.history import History, since_rise
from latdoctor.remediation.observation import Observation, SignalValues

_ALIKE = 1.2  # factor between the lengths of windows whose quantiles are compared
_SAME_LOAD = 1.2  # factor between two levels of one load
_MOST_FIRED = 0.25  # share of windows in which a finding may fire that is clear in all
_CLEAR, _FIRED, _NOT_EVALUATED = "clear", "fired", "not-evaluated"


class SignalLevel(Struct, frozen=True):
    """A signal of one subject before the change: its values in windows of `step` seconds, oldest first.

    `observed`: for how many seconds the signal was observed. It is more than the values last where the level rose
    within that time.
    """

    signal: str
    subject: str
    values: tuple[float, ...]
    step: float
    observed: float

    @property
    def samples(self) -> Samples:
        return Samples(self.values, self.step)


Levels = Mapping[tuple[str, str], SignalLevel]  # by (signal, subject)


def levels_before(
    windows: Sequence[Observation],
    history: History,
    signals: Iterable[str],
    window: float,
    load: Collection[str] = (),
) -> Levels:
    """The levels of `signals`, to be compared with windows of `window` seconds.

    From the history where it has windows of that length, else from those observed. Of the `load` too where it differs
    from that of the history: a rush has just begun, and the change is made under the load that is there now.
    """
    wanted, length = set(signals), windows[-1].ended - windows[-1].started
    found = {}
    for key in windows[-1].values:
        if key[0] not in wanted:
            continue
        past = history.values.get(key, ()) if _alike(history.step, window) else ()
        own = tuple(one.values[key] for one in windows if key in one.values)
        if key[0] in load and past and not _same(level(key[0], own), level(key[0], since_rise(past))):
            found[key] = SignalLevel(*key, own, length, len(own) * length)
        elif len(past) > len(own):
            found[key] = SignalLevel(*key, since_rise(past), history.step, len(past) * history.step)
        else:
            found[key] = SignalLevel(*key, own, length, len(own) * length)
    return found


def _same(one: float, other: float) -> bool:
    return max(one, other) <= _SAME_LOAD * min(one, other)


def level(signal: str, values: Sequence[float]) -> float:
    """The mean; of a time the geometric one, which a single peak moves less. NaN without values."""
    if not values:
        return math.nan
    if catalogue()[signal].dimension == "time" and all(value > 0 for value in values):
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def pooled(windows: Sequence[Observation]) -> Observation:
    """One observation of several windows: the level of each number that all of them have; the rest is of the last.

    A finding is clear if it fires in at most a quarter of the windows, and was evaluated in the others.
    """
    last = windows[-1]
    evidence = msgspec.structs.replace(last.evidence, readings=tuple(_readings(windows)))
    findings = {name: _status([one.findings.get(name, _NOT_EVALUATED) for one in windows]) for name in last.findings}
    return Observation(
        evidence=evidence,
        findings=findings,
        slo=last.slo,
        started=windows[0].started,
        ended=last.ended,
        baseline=last.baseline,
    )


def _alike(one: float, other: float) -> bool:
    return max(one, other) <= _ALIKE * min(one, other)


def _readings(windows: Sequence[Observation]) -> Iterator[Reading]:
    values = [one.values for one in windows]
    bounds = [_bounds(one.evidence) for one in windows]
    for reading in windows[-1].evidence.readings:
        key = (reading.signal, reading.subject)
        if reading.labels or isinstance(reading.value, str) or is_unknown(reading.value):
            yield reading
        elif all(key in one for one in values):
            bound = {one[key] for one in bounds if one.get(key)}
            if len(bound) < 2:  # "at least" and "at most" together say nothing
                value = level(reading.signal, [one[key] for one in values])
                yield msgspec.structs.replace(reading, value=value, bound=next(iter(bound), ""))


def _bounds(evidence: Evidence) -> dict[tuple[str, str], str]:
    return {(one.signal, one.subject): one.bound for one in evidence.readings if one.bound in (AT_LEAST, AT_MOST)}


def _status(statuses: Sequence[str]) -> str:
    allowed = _MOST_FIRED * len(statuses)
    if statuses.count(_FIRED) > allowed:
        return _FIRED
    unknown = sum(status not in (_FIRED, _CLEAR) for status in statuses)
    return _CLEAR if unknown <= allowed else _NOT_EVALUATED


def values_of(before: Levels) -> SignalValues:
    """The level of each signal."""
    return {key: level(one.signal, one.values) for key, one in before.items()}
