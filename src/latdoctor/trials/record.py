"""One recorded run: its bundle, what whoever looks knows, and the truth; and its signals second by second.

`store` says how the three lie in a folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from latdoctor.answering import seen
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.differences import values
from latdoctor.trials.cutting import cut
from latdoctor.trials.store import Store
from latdoctor.trials.truth import Span, Told, Truth

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

STEP = 1.0  # seconds: how often pages are read


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run on disk."""

    bundle: Path
    told: Told
    truth: Truth


def recordings(folder: Path, runs: Sequence[str] | None = None) -> Iterator[Recorded]:
    """The complete runs of `folder`, or these of them, in the order of their names. Raises BundleError."""
    store = Store(folder)
    for run in store.runs() if runs is None else runs:
        yield Recorded(store.bundle(run), store.told(run), store.truth(run))


def signals(recorded: Recorded) -> Mapping[str, tuple[Values, Values]]:
    """Every numeric signal of every subject as `SIGNAL SUBJECT`, second by second: before the incident, and in it.

    All arrays of one side have the same length and belong to the same seconds; NaN where that second does not show the
    signal. Before the incident there is nothing where nobody looked then (what is made, and not played).
    """
    import numpy as np

    with opened(recorded.bundle) as bundle:
        before = _steps(bundle, recorded.told, recorded.told.before)
        incident = _steps(bundle, recorded.told, recorded.told.incident or _whole(bundle))
    keys = sorted({key for step in (*before, *incident) for key in step})

    def column(steps: Sequence[Mapping[str, float]], key: str) -> Values:
        return np.array([step.get(key, np.nan) for step in steps], dtype=np.float64)

    return {key: (column(before, key), column(incident, key)) for key in keys}


def _whole(bundle: Bundle) -> Span:
    times = [artifact.taken_at for artifact in bundle.artifacts]
    return Span(min(times), max(times))


def _steps(bundle: Bundle, told: Told, span: Span | None) -> list[dict[str, float]]:
    """What each second of `span` shows by itself: of counters their growth in it."""
    if span is None:
        return []
    edges = [span.start + STEP * number for number in range(int(span.seconds / STEP) + 1)]
    return [_numbers(cut(bundle, told, Span(edge - STEP / 2, edge + STEP * 1.5))) for edge in edges[:-1]]


def _numbers(bundle: Bundle) -> dict[str, float]:
    found = values(seen(bundle)[0])
    return {f"{signal} {subject}": value for (signal, subject), value in found.items() if not isinstance(value, str)}
