"""CSV that Grafana exports of a panel: times and a column for each series, or (older versions) a row for each point.

A column named after a Prometheus series is read as that; else its name must say what it measures. Values may have a
unit (`12.4 s`, `35 %`, `1.2 K`) and a decimal comma. Times without a zone are taken as UTC. A duration without a unit
is taken as seconds, as Prometheus metrics are, and its reading says so.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median

from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.metric_history import JUDGED, MetricSeries, evidence
from latdoctor.collectors.documents.panel_names import ColumnMeaning, meaning_of
from latdoctor.collectors.documents.quantity_text import UNIT_SECONDS
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.dialects.loader import shipped_signals
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence, Gap, Reading, Series, Subject, Window
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

_SEPARATOR = re.compile(r"\A\ufeff?\s*sep=(.)\r?\n")
_SERIES = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)?\s*\{(?P<labels>[^{}]*)\}|(?P<bare>[a-z_]+:[\w:]+|[a-z]+_\w+)")
_LABEL = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CELL = re.compile(r"(?P<number>[-+]?[\d.,'\u00a0\u202f ]*\d(?:e[-+]?\d+)?)\s*(?P<unit>[^\d\s].*)?")
_IN_NAME = re.compile(r"[(\[]\s*(ns|µs|us|ms|s|sec|seconds|milliseconds|min|%)\s*[)\]]|_(seconds|ms|us)\b")
_LARGE = {"K": 1e3, "k": 1e3, "Mil": 1e6, "M": 1e6, "Bil": 1e9}
_HOUR = 3600.0  # seconds; a latency beyond it was more likely not in seconds
_FEWEST, _MAX_ROWS = 4, 500_000
_UNITS = {**UNIT_SECONDS, "mins": 60.0, "hour": 3600.0, "hours": 3600.0, "milliseconds": 1e-3, "day": 86400.0}
_FORMS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y/%m/%d %H:%M:%S")
_DAY_FIRST = ("%d/%m/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d.%m.%Y %H:%M")
_MONTH_FIRST = ("%m/%d/%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%m/%d/%Y %H:%M")

Columns = Mapping[str, list[tuple[float, str]]]  # a column's name → its cells by unix seconds


def read(section: Section) -> Evidence:
    """The evidence of the columns. Raises ValueError where none is understood."""
    columns = _columns(section.text)
    exported, named = [], {}
    for name, cells in columns.items():
        labels = _metric(name)
        points = [(time, value) for time, cell in cells if (value := _number(cell)) is not None]
        if labels and points:
            exported.append(MetricSeries(labels, points))
        else:
            named[name] = cells
    parts: list[Evidence] = []
    if exported:
        try:
            parts.append(evidence(exported, section.artifact, file_name(section)))
        except ValueError:
            if not named:
                raise
    parts.append(_named(section, named))
    found = Evidence.merge(parts)
    if not found.readings:
        names = ", ".join(clean(name, 60) for name in list(columns)[:5])
        raise ValueError(f"the names of its columns do not say what they measure ({names})")
    return found


def _columns(text: str) -> Columns:
    marked = _SEPARATOR.match(text)
    rest = text[marked.end() :] if marked else text.removeprefix("\ufeff")
    head = rest.partition("\n")[0]
    delimiter = marked[1] if marked else max(",;\t", key=head.count)
    rows = [row for row, _ in zip(csv.reader(io.StringIO(rest), delimiter=delimiter), range(_MAX_ROWS), strict=False)]
    heading = [cell.strip() for cell in rows[0]]
    body = [row for row in rows[1:] if len(row) >= 2]
    place = next((n for n, name in enumerate(heading) if name.lower() in _TIME_NAMES), 0)
    parse = _time_parser([row[place] for row in body if place < len(row)])
    found: dict[str, list[tuple[float, str]]] = {}
    if heading[0].lower() == "series" and "Value" in heading:
        for row in body:
            time = parse(row[place])
            if time is not None:  # a number with separators of thousands may be cut into several cells
                found.setdefault(row[0], []).append((time, ",".join(row[heading.index("Value") :])))
        return found
    for row in body:
        time = parse(row[place]) if place < len(row) else None
        for name, cell in zip(heading, row, strict=False):
            if time is not None and name != heading[place] and cell.strip():
                found.setdefault(name, []).append((time, cell))
    return found


_TIME_NAMES = ("time", "zeit", "fecha", "hora", "temps", "heure", "时间", "時間", "tiempo")


def _time_parser(texts: Sequence[str]) -> Callable[[str], float | None]:
    """A parser for the times of one file: the order of day and month is that which fits all of them."""
    sample = [_plain(text) for text in texts[:1000]]
    fits = (forms for forms in (_FORMS, _MONTH_FIRST, _DAY_FIRST) if all(_by(one, forms) is not None for one in sample))
    forms = next(fits, (*_FORMS, *_DAY_FIRST))
    return lambda text: _by(_plain(text), forms)


def _plain(text: str) -> str:
    return re.sub(r"[,\s\u00a0\u202f]+", " ", text.strip())


def _by(text: str, forms: Sequence[str]) -> float | None:
    """Unix seconds; seconds, milliseconds and ISO times with a zone are read in any file."""
    if re.fullmatch(r"\d{10}(?:\.\d+)?|\d{13}", text):
        return float(text) / (1e3 if len(text) == 13 else 1.0)
    for form in forms:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _metric(name: str) -> dict[str, str]:
    """The labels of a Prometheus series, its name among them; empty where the column is named otherwise."""
    found = _SERIES.fullmatch(name.strip())
    if not found:
        return {}
    labels = {key: value.replace('\\"', '"') for key, value in _LABEL.findall(found["labels"] or "")}
    metric = found["name"] or found["bare"] or labels.get("__name__", "")
    return {**labels, "__name__": metric} if metric else {}


def _number(cell: str) -> float | None:
    split = _split(cell)
    if split is None:
        return None
    value, unit = split
    return value * _LARGE[unit] if unit in _LARGE else None if unit and unit != "%" else value


def _split(cell: str) -> tuple[float, str] | None:
    """The number and unit of a cell; a comma is a decimal one where what follows is not a group of three digits."""
    found = _CELL.fullmatch(cell.strip())
    if not found:
        return None
    text = re.sub(r"['\u00a0\u202f ]", "", found["number"])
    if "," in text:
        grouped = re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text)
        text = text.replace(",", "") if grouped else text.replace(".", "").replace(",", ".")
    try:
        return float(text), (found["unit"] or "").strip()
    except ValueError:
        return None


def _named(section: Section, columns: Columns) -> Evidence:
    readings, series, gaps = [], [], []
    subjects: dict[str, None] = {}
    for name, cells in columns.items():
        meaning = meaning_of(name)
        if meaning is None or meaning.signal not in catalogue():
            gaps.append(_unclear(section, name, "does not say what it measures"))
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
        window = Window(points[0][0], points[-1][0])
        text = "; ".join(part for part in (f"median of the last {len(recent)} points", note) if part)
        readings.append(Reading(meaning.signal, subject, median(recent), origin, window, note=text))
    declared = tuple(Subject(name) for name in subjects)
    return Evidence(subjects=declared, readings=_first(readings), series=tuple(series), gaps=tuple(gaps))


def _first(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """One reading for each signal, the worst: several columns are replicas, or models."""
    worst: dict[tuple[str, str], Reading] = {}
    for one in readings:
        key = (one.signal, one.subject)
        if key not in worst or float(one.value) > float(worst[key].value):
            worst[key] = one
    return tuple(worst.values())


def _points(
    name: str, meaning: ColumnMeaning, cells: Sequence[tuple[float, str]]
) -> tuple[list[tuple[float, float]], str]:
    """The values in base units by time, ascending, and a note of what was assumed, or why there is none."""
    in_name = _IN_NAME.search(name)
    declared = (in_name[1] or in_name[2]) if in_name else ""
    found: dict[float, float] = {}
    bare = False
    for time, cell in cells:
        split = _split(cell)
        if split is None:
            continue
        value, unit = split
        unit = unit or declared
        if meaning.duration:
            bare |= not unit
            factor = _UNITS.get(unit.lower()) if unit else 1.0
        else:
            factor = 0.01 if unit == "%" else _LARGE.get(unit, 1.0)
        if factor is not None and value >= 0:
            found[time] = value * factor
    points = sorted(found.items())
    largest = max((value for _, value in points), default=0.0)
    if meaning.share and not any("%" in cell for _, cell in cells) and largest > 1:
        points = [(time, value / 100) for time, value in points]
    if meaning.duration and bare and largest > _HOUR:
        return [], "has no unit, and its values are too large for seconds"
    return points, "the file has no unit: taken as seconds" if meaning.duration and bare else ""


def _unclear(section: Section, name: str, why: str) -> Gap:
    reason = f"{section.source}: the column {clean(name, 80)!r} {why}"
    step = "name the statistic and the unit in the legend, such as `latency P99 (s)`, and export it again"
    return Gap(NAME, reason, (), None, step, section.origin(), GapCode.AMBIGUOUS)


def _signals() -> Iterator[str]:
    yield from shipped_signals()
    yield from (f"{name}{suffix}" for name in ("latency", "ttft") for suffix in (".mean", ".p50", ".p99"))
    yield from ("latency.p95", "tpot.mean", "tpot.p99", "itl.mean", "itl.p99", "queue.time.mean", "queue.time.p50")
    yield from ("queue.time.p99", "gpu.temperature", "gpu.memory_temperature", "gpu.utilization", "error.ratio")


FORMAT = TextFormat(
    name="grafana-csv",
    title="a CSV export of Grafana",
    begins=re.compile(
        rf"\A\ufeff?(?:\s*sep=.\r?\n)?\"?(?:(?:{'|'.join(_TIME_NAMES)})\"?[,;\t]|series\"?[,;]\"?time\"?[,;]\"?value)",
        re.IGNORECASE,
    ),
    read=read,
    provides=frozenset(_signals()),
    whole=True,
)
