"""The scores on real servers as text."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.evaluation.real.real_scores import RealGroupScore, RealScores
from latdoctor.evaluation.report import counted

_ROWS = (
    ("ac1", "first cause right"),
    ("ac1_with_history", "the same with the healthy time as baseline"),
    ("named", "a right cause named"),
    ("wrong_named", "a wrong cause named"),
    ("outages_below_critical", "outages below critical"),
    ("onset_within_10s", "dated onsets within 10 s"),
    ("false_alarms", "false alarms of healthy observations"),
    ("healthy_said", "healthy observations called healthy"),
)


def real_summary(scores: RealScores) -> str:
    """The pooled scores, those of each server, and what went wrong in which run."""
    return "\n".join(_lines(scores))


def _lines(scores: RealScores) -> Iterator[str]:
    for group in (scores, *scores.servers):
        yield f"{group.server}: {group.runs} runs, {group.spoiled} spoiled"
        yield from (f"  {title}: {counted(getattr(group, name))}" for name, title in _rows(group))
    for miss in scores.misses:
        said = ", ".join(miss.named) or f"nothing (first {', '.join(miss.ranked[:1]) or 'none'})"
        yield f"{miss.run}: {', '.join(miss.causes)}; {miss.verdict}, named {said}"
    yield from (f"{run} is spoiled: {'; '.join(why)}" for run, why in scores.why_spoiled.items())
    yield from (f"{server} was not run: {why}" for server, why in scores.skipped.items())


def _rows(group: RealGroupScore) -> Iterator[tuple[str, str]]:
    yield from (row for row in _ROWS if getattr(group, row[0]).of)
