"""The readings of all peers as a page, so that anybody can see what each was told to make of a metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from latdoctor.trials.peers.mapping import LIKENESS, Fitted

_SHOWN = 2  # causes of one signal
_LEAST = 0.1  # a smaller share is not shown


_HEAD = """# What the peers are told to see in a metric

`latdoctor lab bench mapping --to docs/bench-mapping.md` writes this page. The methods beside which the diagnosis is
judged ([bench.md](bench.md)) rank metrics, and the bench asks for causes. So each is given the best reading of its own
rankings that training runs allow: the first *metrics read* of a ranking count, the i-th of them 1/i, and speak for
causes as the table says. The table is learnt from the runs of families that were looked at; *weight of the rules* times
is added what the rules themselves look at for each cause, or no peer could name a cause that it never saw. A run that
was trained on is judged by a table without it. In a cell: the causes that a metric speaks for most, with their
share."""
_OF = {
    "scraped": """## The series as they were scraped

What the rules look at for a cause is told of the metrics that the dialects make these signals of.""",
    "signals": "## The signals that latdoctor makes of them",
}


def page(fitted: Mapping[str, Sequence[Fitted]], titles: Mapping[str, str]) -> str:
    """The whole page as Markdown; `fitted` has the readings for each kind of metrics."""
    parts = [f"{_OF[metrics]}\n\n" + "\n".join(lines(own, titles)) for metrics, own in fitted.items()]
    return "\n\n".join((_HEAD, *parts)) + "\n"


def lines(fitted: Sequence[Fitted], titles: Mapping[str, str]) -> Iterator[str]:
    """Markdown: how each peer is read, then every signal that speaks for some cause."""
    titles = {name: title.replace("|", "\\|") for name, title in titles.items()}
    yield (
        "| peer | reading | metrics read | weight of the rules | training runs | AC@1 on them, each left out "
        "| with all runs of its cause left out |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|"
    for one in fitted:
        reading = "likeness to profiles" if one.reading == LIKENESS else "votes"
        yield (
            f"| {titles[one.peer]} | {reading} | {one.depth} | {one.strength:g} | {one.runs} | {one.left_out:.2f} "
            f"| {one.cause_left_out:.2f} |"
        )
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
