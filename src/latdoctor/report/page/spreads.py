"""How batches spread, before and after: distributions over the same edges, as shares, so that looks can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.evidence.model import Bucket, Distribution
from latdoctor.evidence.signals import catalogue
from latdoctor.report.page.material import COLORS, Seen
from latdoctor.report.page.model import RATIO, Bars, Block, Group, NotSeen
from latdoctor.units import format_value

MOST_BARS = 24


@dataclass(frozen=True, slots=True)
class Asked:
    signal: str
    id: str
    title: str
    over: str
    of: str


LATENCY = Asked("latency", "latency-spread", "How the latencies spread", "time to the answer", "requests")
BATCHES = (
    Asked("batch.size", "batch-size", "Batch sizes", "requests computed together", "batches"),
    Asked("batch.tokens", "batch-tokens", "Batch tokens", "tokens computed together", "batches"),
)


def block(asked: Asked, looks: Sequence[Seen]) -> Block:
    """One chart of all looks that saw it, or why there is none."""
    found = [(look, one) for look in looks if (one := _largest(look, asked.signal)) is not None]
    if not found:
        whys = [look.why for look in looks if look.why]
        return NotSeen(
            asked.title, whys[0] if whys else f"no source that was read tells {asked.signal} as a distribution"
        )
    labels, shares = aligned([one.buckets for _, one in found], catalogue()[asked.signal].dimension)
    if not labels:
        return NotSeen(asked.title, f"the looks tell {asked.signal} in buckets that have no edge in common")
    groups = tuple(
        Group(look.name, tuple(row), COLORS.get(look.name, 0)) for (look, _), row in zip(found, shares, strict=True)
    )
    subjects = dict.fromkeys(one.subject for _, one in found)
    missing = [look.name for look in looks if look.name not in {seen.name for seen, _ in found}]
    counts = ", ".join(f"{one.count:.0f} {look.name}" for look, one in found)
    notes = [f"share of the {asked.of} of {', '.join(subjects)} ({counts})"]
    notes += [f"not seen {name}" for name in missing]
    return Bars(asked.id, asked.title, asked.over, RATIO, labels, groups, note="; ".join(notes))


def _largest(look: Seen, signal: str) -> Distribution | None:
    """Of the subject that computed most; labelled ones are parts of another."""
    found = [one for one in (look.evidence.distributions if look.evidence else ()) if one.signal == signal]
    plain = [one for one in found if not one.labels and one.count > 0]
    return max(plain, key=lambda one: one.count, default=None)


def aligned(parts: Sequence[Sequence[Bucket]], dimension: str) -> tuple[tuple[str, ...], list[list[float]]]:
    """Names of the bars, and of each part the share of its observations in each; nothing without a common edge."""
    held = [[bucket for bucket in part if bucket.count > 0] for part in parts]
    edges = sorted({edge for part in parts for bucket in part for edge in (bucket.low, bucket.high)})
    common = [edge for edge in edges if math.isfinite(edge) and all(_divides(part, edge) for part in held)]
    if not common:
        return (), []
    rows = [_shares(part, common) for part in held]
    first, last = _shown(rows)
    rows = [row[first:last] for row in rows]
    names = _names(common, first, last, dimension)
    step = -(-len(names) // MOST_BARS)
    if step > 1:
        spans = [(place, min(place + step, len(names))) for place in range(0, len(names), step)]
        rows = [[sum(row[start:end]) for start, end in spans] for row in rows]
        bounds = [None, *common, None]
        names = tuple(_span(bounds[first + start], bounds[first + end], dimension) for start, end in spans)
    return names, rows


def _divides(part: Sequence[Bucket], edge: float) -> bool:
    """Whether no bucket reaches over the edge: where in a bucket its observations lie is not known."""
    return not any(bucket.low < edge < bucket.high for bucket in part)


def _shares(part: Sequence[Bucket], edges: Sequence[float]) -> list[float]:
    """Of each interval (−∞, e0], (e0, e1], … (en, ∞)."""
    counts = [0.0] * (len(edges) + 1)
    for bucket in part:
        counts[next((place for place, edge in enumerate(edges) if bucket.high <= edge), len(edges))] += bucket.count
    total = sum(counts) or 1.0
    return [count / total for count in counts]


def _shown(rows: Sequence[Sequence[float]]) -> tuple[int, int]:
    """From where to where anything is seen."""
    seen = [place for place in range(len(rows[0])) if any(row[place] > 0 for row in rows)]
    return (seen[0], seen[-1] + 1) if seen else (0, len(rows[0]))


def _names(edges: Sequence[float], first: int, last: int, dimension: str) -> tuple[str, ...]:
    bounds = [None, *edges, None]
    return tuple(_span(bounds[place], bounds[place + 1], dimension) for place in range(first, last))


def _span(low: float | None, high: float | None, dimension: str) -> str:
    """`5` for what lies in (4, 5], `257–384` for counts in (256, 384], else the two ends."""
    if low is None:
        return "any" if high is None else f"≤ {format_value(high, dimension)}"
    if high is None:
        return f"> {format_value(low, dimension)}"
    whole = dimension == "count" and low == int(low) and high == int(high)
    if whole and high - low <= 1:
        return format_value(high, dimension)
    start = low + 1 if whole else low
    return f"{format_value(start, dimension)}–{format_value(high, dimension)}"
