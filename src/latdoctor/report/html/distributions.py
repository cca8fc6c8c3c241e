"""Distributions of latencies and batches over common edges, as shares, and the stages of a request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Bucket, Distribution, Evidence
from latdoctor.report.html.charts import MIN_SHARE
from latdoctor.report.html.page_inputs import COLORS, Snapshot
from latdoctor.report.html.page_model import RATIO, TIME, Bars, Group, Missing, Stage, StageTrack, Waterfall
from latdoctor.report.vital_signs import HOST_ACTIVITY
from latdoctor.units import format_value

MAX_BARS = 24


@dataclass(frozen=True, slots=True)
class HistogramSpec:
    signal: str
    id: str
    title: str
    axis: str
    counted: str  # what the shares are of


LATENCY = HistogramSpec("latency", "latency-spread", "Distribution of latencies", "time to the response", "requests")
BATCHES = (
    HistogramSpec("batch.size", "batch-size", "Batch sizes", "requests computed together", "batches"),
    HistogramSpec("batch.tokens", "batch-tokens", "Batch tokens", "tokens computed together", "batches"),
)


def histogram(spec: HistogramSpec, snapshots: Sequence[Snapshot]) -> Bars | Missing:
    """One chart of all observations that measured it, or why there is none."""
    found = [(snapshot, one) for snapshot in snapshots if (one := _largest(snapshot, spec.signal)) is not None]
    if not found:
        return Missing(spec.title, _why(snapshots, "not in the sources that were read"))
    labels, shares = aligned([one.buckets for _, one in found], catalogue()[spec.signal].dimension)
    if not labels:
        return Missing(spec.title, "the observations have no bucket edge in common")
    groups = tuple(
        Group(snapshot.name, tuple(row), COLORS.get(snapshot.name, 0))
        for (snapshot, _), row in zip(found, shares, strict=True)
    )
    subjects = dict.fromkeys(one.subject for _, one in found)
    missing = [snapshot.name for snapshot in snapshots if snapshot.name not in {known.name for known, _ in found}]
    counts = ", ".join(f"{one.count:.0f} {snapshot.name}" for snapshot, one in found)
    notes = [f"share of the {spec.counted} of {', '.join(subjects)} ({counts})"]
    notes += [f"not measured {name}" for name in missing]
    return Bars(spec.id, spec.title, spec.axis, RATIO, labels, groups, note="; ".join(notes))


def _why(snapshots: Sequence[Snapshot], otherwise: str) -> str:
    return next((snapshot.why for snapshot in snapshots if snapshot.why), otherwise)


def _largest(snapshot: Snapshot, signal: str) -> Distribution | None:
    """Of the subject with the most observations; labelled distributions are parts of another."""
    found = [one for one in (snapshot.evidence.distributions if snapshot.evidence else ()) if one.signal == signal]
    plain = [one for one in found if not one.labels and one.count > 0]
    return max(plain, key=lambda one: one.count, default=None)


def aligned(parts: Sequence[Sequence[Bucket]], dimension: str) -> tuple[tuple[str, ...], list[list[float]]]:
    """Names of the bars, and for each part the share of its observations in each; empty without a common edge."""
    held = [[bucket for bucket in part if bucket.count > 0] for part in parts]
    edges = sorted({edge for part in parts for bucket in part for edge in (bucket.low, bucket.high)})
    common = [edge for edge in edges if math.isfinite(edge) and all(_divides(part, edge) for part in held)]
    if not common:
        return (), []
    rows = [_shares(part, common) for part in held]
    first, last = _shown(rows)
    rows = [row[first:last] for row in rows]
    names = _names(common, first, last, dimension)
    step = -(-len(names) // MAX_BARS)
    if step > 1:
        spans = [(place, min(place + step, len(names))) for place in range(0, len(names), step)]
        rows = [[sum(row[start:end]) for start, end in spans] for row in rows]
        bounds = [None, *common, None]
        names = tuple(_span(bounds[first + start], bounds[first + end], dimension) for start, end in spans)
    return names, rows


def _divides(part: Sequence[Bucket], edge: float) -> bool:
    """Whether no bucket extends over the edge: where in a bucket its observations are is unknown."""
    return not any(bucket.low < edge < bucket.high for bucket in part)


def _shares(part: Sequence[Bucket], edges: Sequence[float]) -> list[float]:
    """Of each interval (−∞, e0], (e0, e1], … (en, ∞)."""
    counts = [0.0] * (len(edges) + 1)
    for bucket in part:
        counts[next((place for place, edge in enumerate(edges) if bucket.high <= edge), len(edges))] += bucket.count
    total = sum(counts) or 1.0
    return [count / total for count in counts]


def _shown(rows: Sequence[Sequence[float]]) -> tuple[int, int]:
    """The range of the intervals with observations."""
    filled = [place for place in range(len(rows[0])) if any(row[place] > 0 for row in rows)]
    return (filled[0], filled[-1] + 1) if filled else (0, len(rows[0]))


def _names(edges: Sequence[float], first: int, last: int, dimension: str) -> tuple[str, ...]:
    bounds = [None, *edges, None]
    return tuple(_span(bounds[place], bounds[place + 1], dimension) for place in range(first, last))


def _span(low: float | None, high: float | None, dimension: str) -> str:
    """`5` for (4, 5], `257–384` for counts in (256, 384], else the two ends."""
    if low is None:
        return "any" if high is None else f"≤ {format_value(high, dimension)}"
    if high is None:
        return f"> {format_value(low, dimension)}"
    whole = dimension == "count" and low == int(low) and high == int(high)
    if whole and high - low <= 1:
        return format_value(high, dimension)
    start = low + 1 if whole else low
    return f"{format_value(start, dimension)}–{format_value(high, dimension)}"


_GPU_TIME = (
    ("kernel.kind_share", "GPU time by kind of kernel", "kind"),
    ("operator.gpu_share", "GPU time by operator", "operator"),
    ("gap.host_share", "Host activity while the GPU has no work", "activity"),
)
_MAX_PARTS = 8


def gpu_time_charts(snapshots: Sequence[Snapshot]) -> tuple[Bars, ...]:
    """What a profiler trace says the time of the GPU goes to: the largest shares."""
    charts = []
    for signal, title, axis in _GPU_TIME:
        shares: dict[str, float] = {}
        for evidence in (one.evidence for one in snapshots if one.evidence):
            for reading in evidence.readings_by_signal.get(signal, ()):
                if isinstance(reading.value, float) and len(reading.labels) == 1 and reading.value >= MIN_SHARE:
                    name = HOST_ACTIVITY.get(reading.labels[0][1], reading.labels[0][1])
                    shares[name] = max(shares.get(name, 0.0), reading.value)
        largest = sorted(shares.items(), key=lambda item: (-item[1], item[0]))[:_MAX_PARTS]
        if largest:
            names, values = zip(*largest, strict=True)
            more = len(shares) - len(largest)
            note = f"{more} more are smaller" if more else ""
            group = Group("share", values)
            charts.append(
                Bars(signal.replace(".", "-"), title, axis, RATIO, names, (group,), horizontal=True, note=note)
            )
    return tuple(charts)


TOTAL = "latency.mean"
_TITLE = "Time of a request by stage"
# In the order of a request. Where an engine reports prefill and decode, they replace the model's time.
_STAGES = (
    ("route.time.mean", "routing"),
    ("preprocess.time.mean", "preprocessing"),
    ("session.time.mean", "session state"),
    ("dependency.time.mean", "dependency"),
    ("queue.time.mean", "queue"),
    ("prefill.time.mean", "prefill"),
    ("decode.time.mean", "decode"),
    ("compute.time.mean", "model"),
    ("postprocess.time.mean", "postprocessing"),
)
_PARTS_OF_MODEL = ("prefill.time.mean", "decode.time.mean")
_SLACK = 0.02  # of the mean latency: the means are of requests at slightly different times


def stage_chart(snapshots: Sequence[Snapshot]) -> Waterfall | Missing:
    """A track for each observation with stages, or why there is none."""
    tracks, notes = [], []
    for snapshot in snapshots:
        subject = _subject(snapshot.evidence) if snapshot.evidence else ""
        if snapshot.evidence is None or not subject:
            notes.append(f"not measured {snapshot.name}")
            continue
        stages, note = _stages(snapshot.evidence, subject)
        tracks.append(StageTrack(snapshot.name, stages, COLORS.get(snapshot.name, 0)))
        notes += [f"{snapshot.name}: {note}"] if note else []
    if not tracks:
        return Missing(_TITLE, _why(snapshots, "not in the sources that were read"))
    limit = MIN_SHARE * max(track.length for track in tracks)
    if any(stage.length < limit for track in tracks for stage in track.stages):
        notes.append(f"stages shorter than {format_value(limit, TIME)} are in the table only")
    note = "; ".join([*notes, "means over all requests: the slowest may spend their time elsewhere"])
    return Waterfall("stages", _TITLE, TIME, tuple(tracks), note)


def _subject(evidence: Evidence) -> str:
    """The subject with the most stages; among equals the one with the highest latency. Subjects are never averaged."""
    known: dict[str, int] = {}
    for signal, _ in _STAGES:
        for subject in _values(evidence, signal):
            known[subject] = known.get(subject, 0) + 1
    latency = _values(evidence, TOTAL)
    return max(known, key=lambda subject: (known[subject], latency.get(subject, 0.0), subject), default="")


def _stages(evidence: Evidence, subject: str) -> tuple[tuple[Stage, ...], str]:
    """The stages with the rest of the mean latency, and a note where they do not add up."""
    found = {signal: value for signal, _ in _STAGES if (value := _values(evidence, signal).get(subject)) is not None}
    if any(part in found for part in _PARTS_OF_MODEL):
        found.pop("compute.time.mean", None)
    stages = [Stage(name, found[signal]) for signal, name in _STAGES if found.get(signal, 0.0) > 0]
    total, known = _values(evidence, TOTAL).get(subject), sum(stage.length for stage in stages)
    if total is None:
        return tuple(stages), "the whole latency is unknown"
    if known > total * (1 + _SLACK):
        sums = f"the stages add up to {format_value(known, TIME)}, the mean latency is {format_value(total, TIME)}"
        return tuple(stages), sums
    if total - known > total * _SLACK:
        stages.append(Stage("other", total - known))
    return tuple(stages), ""


def _values(evidence: Evidence, signal: str) -> dict[str, float]:
    return {
        reading.subject: reading.value
        for reading in evidence.readings_by_signal.get(signal, ())
        if isinstance(reading.value, float) and not reading.labels and not reading.bound
    }
