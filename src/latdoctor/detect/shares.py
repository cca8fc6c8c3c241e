"""Is a share one? What reads over 100 % or below nothing is in another unit, or broken: it is no evidence, but a gap.

An exporter that tells per cent where its page says a share would have a cache of 99 % read as 9,900 % full, and one of
2 % as twice full; which of the two it is, nobody can tell from the number. Of the catalogue's shares (`kind: share`),
which are what somebody measured at a moment. A quotient of two counters is none: requests that are answered in a window
may have come before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Series, is_unknown
from latdoctor.evidence.signals import catalogue

SLACK = 0.05  # what is in use and what there is are not read at one moment


def possible(evidence: Evidence) -> Evidence:
    """`evidence` without the shares that are none."""
    wrong = {(signal, subject): (value, origin) for signal, subject, value, origin in _impossible(evidence)}
    if not wrong:
        return evidence
    return replace(
        evidence,
        readings=tuple(one for one in evidence.readings if (one.signal, one.subject) not in wrong),
        series=tuple(one for one in evidence.series if (one.signal, one.subject) not in wrong),
        gaps=(*evidence.gaps, *(_gap(*of, *said) for of, said in wrong.items())),
    )


def _impossible(evidence: Evidence) -> Iterator[tuple[str, str, float, Origin]]:
    pieces: tuple[Reading | Series, ...] = (*evidence.readings, *evidence.series)
    for one in pieces:
        if catalogue()[one.signal].kind == "share":
            found = next((value for value in _values(one) if not -SLACK <= value <= 1 + SLACK), None)
            if found is not None:
                yield one.signal, one.subject, found, one.origin


def _values(of: Reading | Series) -> Iterator[float]:
    told = of.values if isinstance(of, Series) else (of.value,)
    yield from (value for value in told if not isinstance(value, str) and not is_unknown(value))


def _gap(signal: str, subject: str, value: float, origin: Origin) -> Gap:
    reason = f"{signal} reads {value:.4g}, and a share lies between 0 and 1"
    return Gap("derived", reason, (signal,), subject, "see in which unit its exporter tells it", origin)
