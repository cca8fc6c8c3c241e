"""Running a peer on one recording: columns in an order that tells nothing, and a crash that counts as a failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from latdoctor.text import clean
from latdoctor.trials.peers.columns import signal_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

Signals = Mapping[str, "tuple[Values, Values]"]  # `SIGNAL SUBJECT` → the seconds before, and those of the incident
Scores = Mapping[str, float]  # by the same names


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to score metrics. `score` may raise whatever it likes: that is its failure."""

    name: str
    title: str
    method: str  # what it does and where it was published
    score: Callable[[Signals, np.random.Generator], Scores]


class Scored(Struct, frozen=True):
    """What a peer made of one recording: signals by their scores, the highest first; or why it failed."""

    peer: str
    signals: tuple[tuple[str, float], ...] = ()
    failed: str = ""


def scored(peer: Peer, signals: Signals, seed: int) -> Scored:
    """The scores of `peer`. `seed` shuffles the columns, so that their order (by name, at first) favours nobody."""
    import numpy as np

    given = shuffled(signals, seed)
    try:
        found = peer.score(given, np.random.default_rng(seed))
        return ranked(peer.name, {name: found[name] for name in given if name in found})
    except Exception as error:  # noqa: BLE001 — whatever a peer stumbles over is its failure, and is told
        return Scored(peer.name, failed=clean(f"{type(error).__name__}: {error}", 300))


def shuffled(signals: Signals, seed: int) -> Signals:
    """The same columns in an order that `seed` alone decides."""
    import numpy as np

    names = sorted(signals)
    np.random.default_rng(seed).shuffle(names)
    return {name: signals[name] for name in names}


def ranked(peer: str, scores: Mapping[str, float]) -> Scored:
    """`scores` of columns as those of their signals, each by its highest subject; what is no number does not count.

    Equal scores stay in the order of `scores`.
    """
    best: dict[str, float] = {}
    for name, score in scores.items():
        signal = signal_of(name)
        if not math.isnan(score) and (signal not in best or score > best[signal]):
            best[signal] = score
    if not best:
        return Scored(peer, failed="no metric got a score")
    return Scored(peer, tuple(sorted(best.items(), key=lambda item: -item[1])))
