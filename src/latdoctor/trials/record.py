"""One recorded run: its bundle, what whoever looks knows, and the truth; and its signals second by second.

`store` says how the three lie in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from latdoctor.answering import seen
from latdoctor.diagnosis.rule_files import shipped
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.differences import values
from latdoctor.text import clean
from latdoctor.trials.cutting import cut
from latdoctor.trials.store import TOLD, TRUTHS, Store, damaged
from latdoctor.trials.truth import MADE, PLAYED, Span, Told, Truth

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

STEP = 1.0  # seconds: how often pages are read

Numbers = Callable[[Bundle], Mapping[str, float]]  # what a look shows, by name


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run on disk."""

    bundle: Path
    told: Told
    truth: Truth


def recordings(folder: Path, runs: Sequence[str] | None = None) -> Iterator[Recorded]:
    """The complete runs of `folder`, or these of them, in the order of their names.

    Raises BundleError, also for a truth that is another run's or names what the catalogue does not have.
    """
    known = frozenset(cause.id for cause in shipped().causes)
    store = Store(folder)
    for run in store.runs() if runs is None else runs:
        truth, told = store.truth(run), store.told(run)
        if wrong := _wrong(run, truth, known):
            raise damaged(f"the truth of {run} {wrong}", store.json(TRUTHS, run))
        if truth.kind == PLAYED and told.incident is None:
            raise damaged(f"{run} was played, and it is not told when it was slow", store.json(TOLD, run))
        yield Recorded(store.bundle(run), told, truth)


def _wrong(run: str, truth: Truth, known: Set[str]) -> str:
    """Why `truth` cannot be that of `run`; empty where it can."""
    if unknown := sorted({*truth.causes} - known):
        return f"names {clean(unknown[0], 80)!r}, which is no cause"
    if truth.kind not in (PLAYED, MADE):
        return f"is of the kind {clean(truth.kind, 80)!r}: {PLAYED} or {MADE}"
    return "" if truth.run == run else f"is of {clean(truth.run, 80)!r}"


def signals(recorded: Recorded) -> Mapping[str, tuple[Values, Values]]:
    """Every numeric signal of every subject as `SIGNAL SUBJECT`, second by second."""
    return by_second(recorded, _numbers)


def by_second(recorded: Recorded, numbers: Numbers) -> Mapping[str, tuple[Values, Values]]:
    """What `numbers` reads off a look at each second: before the incident, and in it.

    All arrays of one side have the same length and belong to the same seconds; NaN where that second does not show the
    name. Before the incident there is nothing where nobody looked then (what is made, and not played).
    """
    import numpy as np

    told = recorded.told
    with opened(recorded.bundle) as bundle:
        before, incident = (
            [numbers(cut(bundle, told, second)) for second in _seconds(span)]
            for span in (told.before, told.incident or _whole(bundle))
        )
    keys = sorted({key for step in (*before, *incident) for key in step})

    def column(steps: Sequence[Mapping[str, float]], key: str) -> Values:
        return np.array([step.get(key, np.nan) for step in steps], dtype=np.float64)

    return {key: (column(before, key), column(incident, key)) for key in keys}


def _whole(bundle: Bundle) -> Span:
    times = [artifact.taken_at for artifact in bundle.artifacts]
    return Span(min(times), max(times))


def _seconds(span: Span | None) -> Iterator[Span]:
    """The seconds of `span`, each with half of its neighbours, so that two pages lie in it: counters need two."""
    if span is None:
        return
    for number in range(int(span.seconds / STEP)):
        edge = span.start + STEP * number
        yield Span(edge - STEP / 2, edge + STEP * 1.5)


def _numbers(bundle: Bundle) -> dict[str, float]:
    found = values(seen(bundle)[0])
    return {f"{signal} {subject}": value for (signal, subject), value in found.items() if not isinstance(value, str)}
