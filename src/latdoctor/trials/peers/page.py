"""The readings of all peers as a page, so that anybody can see what each was told to make of a metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from latdoctor.trials.peers.mapping import LIKENESS, Fitted

_SHOWN = 2  # causes of one signal
_LEAST = 0.1  # a smaller share is not shown


def lines(fitted: Sequence[Fitted], titles: Mapping[str, str]) -> Iterator[str]:
    """Markdown: how each peer is read, then every signal that speaks for some cause."""
    yield "| peer | reading | metrics read | weight of the rules | training runs | AC@1 on them, each left out |"
    yield "|---|---|---:|---:|---:|---:|"
    for one in fitted:
        reading = "likeness to profiles" if one.reading == LIKENESS else "votes"
        yield (f"| {titles[one.peer]} | {reading} | {one.depth} | {one.strength:g} | {one.runs} | {one.left_out:.2f} |")
    yield ""
    yield f"| signal | {' | '.join(titles[one.peer] for one in fitted)} |"
    yield f"|---|{'---|' * len(fitted)}"
    for signal in sorted({signal for one in fitted for signal in one.table}):
        cells = [_cell(one.table.get(signal, {})) for one in fitted]
        if any(cells):
            yield f"| `{signal}` | {' | '.join(cells)} |"


def _cell(weights: Mapping[str, float]) -> str:
    """The causes that a signal speaks for most, each with its share of all that it says."""
    total = sum(weights.values())
    if total <= 0:
        return ""
    best = sorted(weights, key=lambda cause: (-weights[cause], cause))[:_SHOWN]
    return ", ".join(f"{cause} {weights[cause] / total:.2f}" for cause in best if weights[cause] / total >= _LEAST)
