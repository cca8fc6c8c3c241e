"""How batches spread, before and after: distributions over the same edges, as shares, so that looks can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Bucket, Distribution, Evidence
from latdoctor.report.html.charts import LEAST
from latdoctor.report.html.document import RATIO, TIME, Bars, Block, Course, Group, NotSeen, Piece, Waterfall
from latdoctor.report.html.inputs import COLORS, Seen
from latdoctor.units import format_value

MOST_BARS = 24


@dataclass(frozen=True, slots=True)
class HistogramSpec:
    signal: str
    id: str
    title: str
    over: str
    of: str


LATENCY = HistogramSpec("latency", "latency-spread", "How the latencies spread", "time to the answer", "requests")
BATCHES = (
    HistogramSpec("batch.size", "batch-size", "Batch sizes", "requests computed together", "batches"),
    HistogramSpec("batch.tokens", "batch-tokens", "Batch tokens", "tokens computed together", "batches"),
)


def histogram_block(asked: HistogramSpec, looks: Sequence[Seen]) -> Block:
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


TOTAL = "latency.mean"
_TITLE = "Time of a request by stage"
# In the order in which a request goes through them. Where an engine tells prefill and decode, they are the computing.
_STAGES = (
    ("route.time.mean", "finding a replica"),
    ("preprocess.time.mean", "preprocessing"),
    ("session.time.mean", "conversation state"),
    ("dependency.time.mean", "another service"),
    ("queue.time.mean", "waiting in the queue"),
    ("prefill.time.mean", "prefill"),
    ("decode.time.mean", "decode"),
    ("compute.time.mean", "model"),
    ("postprocess.time.mean", "postprocessing"),
)
_PARTS_OF_MODEL = ("prefill.time.mean", "decode.time.mean")
_SLACK = 0.02  # of the mean latency: the means are of requests at slightly different times


def stage_block(looks: Sequence[Seen]) -> Block:
    """A course for each look that tells stages, or why there is none."""
    courses, notes = [], []
    for look in looks:
        subject = _subject(look.evidence) if look.evidence else ""
        if look.evidence is None or not subject:
            notes.append(f"not seen {look.name}")
            continue
        pieces, note = _pieces(look.evidence, subject)
        courses.append(Course(look.name, pieces, COLORS.get(look.name, 0)))
        notes += [f"{look.name}: {note}"] if note else []
    if not courses:
        whys = [look.why for look in looks if look.why]
        return NotSeen(_TITLE, whys[0] if whys else "no source that was read tells stages of a request apart")
    longest = max(course.length for course in courses)
    if any(piece.length < LEAST * longest for course in courses for piece in course.pieces):
        notes.append(f"stages shorter than {format_value(LEAST * longest, TIME)} stand in the table only")
    note = "; ".join([*notes, "means over all requests: the slowest may spend their time elsewhere"])
    return Waterfall("stages", _TITLE, TIME, tuple(courses), note)


def _subject(evidence: Evidence) -> str:
    """Who tells the most stages; of these who has the highest latency. Subjects are never averaged."""
    known: dict[str, int] = {}
    for signal, _ in _STAGES:
        for subject in _values(evidence, signal):
            known[subject] = known.get(subject, 0) + 1
    latency = _values(evidence, TOTAL)
    return max(known, key=lambda subject: (known[subject], latency.get(subject, 0.0), subject), default="")


def _pieces(evidence: Evidence, subject: str) -> tuple[tuple[Piece, ...], str]:
    """The stages, with what of the mean latency none of them tells; and what does not fit."""
    found = {signal: value for signal, _ in _STAGES if (value := _values(evidence, signal).get(subject)) is not None}
    if any(part in found for part in _PARTS_OF_MODEL):
        found.pop("compute.time.mean", None)
    pieces = [Piece(name, found[signal]) for signal, name in _STAGES if found.get(signal, 0.0) > 0]
    total, known = _values(evidence, TOTAL).get(subject), sum(piece.length for piece in pieces)
    if total is None:
        return tuple(pieces), "the whole latency is not known"
    if known > total * (1 + _SLACK):
        return tuple(
            pieces
        ), f"the stages add up to {format_value(known, TIME)}, the mean latency is {format_value(total, TIME)}"
    if total - known > total * _SLACK:
        pieces.append(Piece("not told apart", total - known))
    return tuple(pieces), ""


def _values(evidence: Evidence, signal: str) -> dict[str, float]:
    return {
        reading.subject: reading.value
        for reading in evidence.readings_by_signal.get(signal, ())
        if isinstance(reading.value, float) and not reading.labels and not reading.bound
    }
