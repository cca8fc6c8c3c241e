"""Series that only their names describe, such as the columns of a dashboard: what is understood becomes evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.level_changes import level_changes
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.metric_history import JUDGED
from latdoctor.collectors.documents.panel_expressions import is_expression, meaning_of_expression
from latdoctor.collectors.documents.panel_names import ColumnMeaning, meaning_of
from latdoctor.collectors.documents.quantity_text import UNIT_SECONDS
from latdoctor.collectors.documents.text_format import Section
from latdoctor.dialects.current_level import current_level
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence, Gap, Reading, Series, Subject, Window
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

_IN_NAME = re.compile(r"[(\[]\s*(ns|µs|us|ms|s|sec|seconds|milliseconds|min|%)\s*[)\]]|[_ ](seconds|ms|us|ns)\b")
LARGE = {"K": 1e3, "k": 1e3, "Mil": 1e6, "M": 1e6, "Bil": 1e9}
_UNITS = {**UNIT_SECONDS, "mins": 60.0, "hour": 3600.0, "hours": 3600.0, "milliseconds": 1e-3, "day": 86400.0}
_HOUR = 3600.0  # seconds; a latency beyond it was more likely not in seconds
_FEWEST = 4

Cells = Sequence[tuple[float, float, str]]  # unix seconds, value, unit as written
NAMES = frozenset(
    {
        *(f"{name}{suffix}" for name in ("latency", "ttft", "queue.time") for suffix in (".mean", ".p50", ".p99")),
        "latency.p95", "tpot.mean", "tpot.p99", "itl.mean", "itl.p99", "queue.depth", "requests.running", "kv.usage",
        "gpu.temperature", "gpu.memory_temperature", "gpu.utilization", "error.ratio", "output.token_rate",
        "completion.rate",
    }
)  # fmt: skip


def evidence(section: Section, columns: Mapping[str, Cells]) -> Evidence:
    """The evidence of every series whose name says what it measures; a gap for each of the others."""
    readings, series, gaps = [], [], []
    subjects: dict[str, None] = {}
    for name, cells in columns.items():
        expression = is_expression(name)
        meaning = meaning_of_expression(name) if expression else meaning_of(name)
        if meaning is None or meaning.signal not in catalogue():
            why = "is an expression whose meaning is not known" if expression else "does not say what it measures"
            gaps.append(_unclear(section, name, why))
            continue
        points, note = _points(name, meaning, cells)
        if not points:
            gaps.append(_unclear(section, name, note or "has no readable value"))
            continue
        subject = f"{meaning.kind}/{file_name(section)}"
        subjects[subject] = None
        origin = section.origin(place=f"column {clean(name, 80)}")
        if len(points) > 1:
            times, values = zip(*points, strict=True)
            series.append(Series(meaning.signal, subject, times, values, origin))
        recent = [value for time, value in points if time >= points[-1][0] - JUDGED]
        recent = recent if len(recent) >= _FEWEST else [value for _, value in points[-_FEWEST:]]
        level, how = current_level(recent, catalogue()[meaning.signal].dimension)
        text = "; ".join(part for part in (how, note) if part)
        window = Window(points[0][0], points[-1][0])
        readings.append(Reading(meaning.signal, subject, level, origin, window, note=text))
    declared = tuple(Subject(name) for name in subjects)
    changes = tuple(level_changes(series))
    return Evidence(
        subjects=declared, readings=_worst(readings), series=tuple(series), events=changes, gaps=tuple(gaps)
    )


def is_unclear(name: str) -> bool:
    """Whether the name of a column does not say what it measures."""
    return not is_expression(name) and meaning_of(name) is None


def _worst(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """One reading for each signal, the largest: several series are replicas, or models."""
    worst: dict[tuple[str, str], Reading] = {}
    for one in readings:
        key = (one.signal, one.subject)
        if key not in worst or float(one.value) > float(worst[key].value):
            worst[key] = one
    return tuple(worst.values())


def unit_of_name(name: str) -> str:
    """The unit in a name: `latency (ms)`, `latency_seconds`; empty where it has none."""
    found = _IN_NAME.search(name)
    return (found[1] or found[2]) if found else ""


def duration_factor(unit: str) -> float | None:
    """Seconds of a unit of time; None for another unit."""
    return _UNITS.get(unit.lower())


def _points(name: str, meaning: ColumnMeaning, cells: Cells) -> tuple[list[tuple[float, float]], str]:
    """The values in base units by time, ascending, and a note of what was assumed, or why there is none."""
    declared = unit_of_name(name)
    found: dict[float, float] = {}
    bare = False
    for time, value, written in cells:
        unit = written or declared
        if meaning.duration:
            bare |= not unit and meaning.factor is None
            factor = duration_factor(unit) if unit else meaning.factor or 1.0
        else:
            factor = 0.01 if unit == "%" else LARGE.get(unit, 1.0) * (meaning.factor or 1.0)
        if factor is not None and value >= 0 and math.isfinite(value * factor):
            found[time] = value * factor
    points = sorted(found.items())
    largest = max((value for _, value in points), default=0.0)
    if meaning.share and largest > 1 and meaning.factor is None:  # in percent, without saying so
        points = [(time, value / 100) for time, value in points]
    if meaning.duration and bare and largest > _HOUR:
        return [], "has no unit, and its values are too large for seconds"
    return points, "the file has no unit: taken as seconds" if meaning.duration and bare else ""


def _unclear(section: Section, name: str, why: str) -> Gap:
    reason = f"{section.source}: the column {clean(name, 80)!r} {why}"
    step = "name the statistic and the unit in the legend, such as `latency P99 (s)`, and export it again"
    return Gap(NAME, reason, (), None, step, section.origin(), GapCode.AMBIGUOUS)
