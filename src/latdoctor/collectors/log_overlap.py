"""Quantities that two readers find in one log: the requests of an engine's log are its request log too.

The request log counts, because it knows probes, duplicates and clocks that jump. What only the engine lines say stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from latdoctor.evidence.model import Distribution, Evidence, Labels, Reading, Series

_REQUEST_LOG, _ENGINE_LOG = "access_log/", "logs/"
_Key = tuple[str, str, Labels]


def without_overlap(parts: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """`parts` without the readings, series and distributions of engine logs that a request log has of that subject."""
    known = [_keys(_of(_REQUEST_LOG, found)) for found in _kinds(parts)]
    if not any(known):
        return tuple(parts)
    readings, series, spread = known
    means = {(signal.removesuffix(".mean"), subject, labels) for signal, subject, labels in readings}
    return tuple(
        structs.replace(
            part,
            readings=tuple(one for one in part.readings if not _repeats(one, readings)),
            series=tuple(one for one in part.series if not _repeats(one, series)),
            distributions=tuple(one for one in part.distributions if not _repeats(one, spread | means)),
        )
        for part in parts
    )


def _kinds(parts: Sequence[Evidence]) -> tuple[list[Reading], list[Series], list[Distribution]]:
    return (
        [one for part in parts for one in part.readings],
        [one for part in parts for one in part.series],
        [one for part in parts for one in part.distributions],
    )


def _of(source: str, found: Iterable[Reading | Series | Distribution]) -> list[Reading | Series | Distribution]:
    return [one for one in found if one.origin.artifact.startswith(source)]


def _keys(found: Iterable[Reading | Series | Distribution]) -> set[_Key]:
    return {(one.signal, one.subject, one.labels) for one in found}


def _repeats(one: Reading | Series | Distribution, known: set[_Key]) -> bool:
    return one.origin.artifact.startswith(_ENGINE_LOG) and (one.signal, one.subject, one.labels) in known
