"""Texts that targets show step by step, and where another text takes their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

HOLE = 3  # steps: a text that was away for no longer has not come back, a scrape failed
HOLD = 3  # steps that a number lasts before it is believed


@dataclass(frozen=True, slots=True)
class Shown:
    """What one subject showed: its texts by step. `key` is the subject without its target (`model/m`)."""

    job: str
    key: str = ""
    steps: dict[int, set[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """From step `index` on a subject shows `text`; `before` is the one text before it, empty where several were."""

    subject: str
    index: int
    before: str
    text: str


def turns(found: Mapping[str, Shown]) -> Iterator[Turn]:
    """Where a subject turns to another text, and where a new target of a job brings one that none of the job showed.

    What the first step shows may be old: it is no turn.
    """
    for subject, shown in found.items():
        yield from _within(subject, shown.steps)
    families: dict[tuple[str, str], list[Shown]] = {}
    for shown in found.values():
        families.setdefault((shown.job, shown.key), []).append(shown)
    first = min((index for shown in found.values() for index in shown.steps), default=0)
    for (job, key), members in families.items():
        yield from _brought("/".join(part for part in ("service", job, key) if part), members, first)


def _within(subject: str, steps: Mapping[int, set[str]]) -> Iterator[Turn]:
    current: set[str] = set()
    last: dict[str, int] = {}
    for index in sorted(steps):
        for text in sorted(steps[index] - current) if current else ():
            if index - last.get(text, index - HOLE - 1) > HOLE:
                yield Turn(subject, index, next(iter(current)) if len(current) == 1 else "", text)
        current = steps[index]
        last.update(dict.fromkeys(current, index))


def _brought(subject: str, members: Sequence[Shown], first: int) -> Iterator[Turn]:
    """What the targets that came later than the first step showed at once, and no other target before."""
    known: dict[str, int] = {}  # when each text was first shown
    for shown in members:
        for index, texts in shown.steps.items():
            for text in texts:
                known[text] = min(known.get(text, index), index)
    told: set[str] = set()
    for shown in members:
        born = min(shown.steps)
        for text in sorted(shown.steps[born]) if born > first + 1 else ():
            before = _latest(members, born)
            if before and known[text] == born and text not in told:
                told.add(text)
                yield Turn(subject, born, next(iter(before)) if len(before) == 1 else "", text)


def _latest(members: Sequence[Shown], before: int) -> set[str]:
    """The texts at the latest step before `before` at which any member showed one."""
    latest = max((index for shown in members for index in shown.steps if index < before), default=None)
    return set() if latest is None else {text for shown in members for text in shown.steps.get(latest, ())}


def levels(values: Mapping[int, float]) -> Iterator[tuple[int, float, float]]:
    """(step, before, from then on) for each change of a number that lasts HOLD steps, or two at the end."""
    runs: list[tuple[int, float, int]] = []  # first step, value, how many steps
    for index in sorted(values):
        if runs and runs[-1][1] == values[index]:
            runs[-1] = (runs[-1][0], values[index], runs[-1][2] + 1)
        else:
            runs.append((index, values[index], 1))
    believed: float | None = None
    for place, (index, value, length) in enumerate(runs):
        if length < (2 if place == len(runs) - 1 else HOLD):
            continue
        if believed is not None and value != believed:
            yield index, believed, value
        believed = value
