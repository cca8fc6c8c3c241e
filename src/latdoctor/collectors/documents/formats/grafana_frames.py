"""Data frames of Grafana as JSON: the answer that the query inspector shows, and the panel data of Inspect, JSON.

A frame has a field of times (milliseconds) and fields of numbers with the labels of their series. A field named after
a metric is read as that; else its display name must say what it measures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from latdoctor.collectors.documents import panel_series
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.metric_history import MetricSeries, evidence
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.dialects.loader import shipped_signals
from latdoctor.evidence.model import Evidence

_QUERY = re.compile(r"\AExpr: (.+)")
_UNITS = {"percent": "%", "percentunit": "", "µs": "us", "dtdurations": "s", "dtdurationms": "ms"}


class _Config(msgspec.Struct, rename="camel"):
    display_name_from_ds: str = msgspec.field(default="", name="displayNameFromDS")
    display_name: str = ""
    unit: str = ""


class _Field(msgspec.Struct):
    name: str = ""
    type: str = ""
    labels: dict[str, str] | None = None
    config: _Config | None = None
    values: list[float | str | bool | None] | None = None  # of a frame that is not split into schema and data


class _Meta(msgspec.Struct, rename="camel"):
    executed_query_string: str = ""


class _Schema(msgspec.Struct):
    name: str | None = None
    meta: _Meta | None = None
    fields: list[_Field] = []


class _FrameData(msgspec.Struct):
    values: list[list[float | str | bool | None]] = []


class _Frame(msgspec.Struct):
    frame_schema: _Schema | None = msgspec.field(default=None, name="schema")
    data: _FrameData | None = None
    fields: list[_Field] | None = None
    name: str | None = None


class _Result(msgspec.Struct):
    frames: list[_Frame] = []


class _Response(msgspec.Struct):
    results: dict[str, _Result]


def read(section: Section) -> Evidence:
    """The evidence of the frames. Raises ValueError where no series is understood."""
    exported: list[MetricSeries] = []
    named: dict[str, list[tuple[float, float, str]]] = {}
    for frame in _frames(section.text.strip()):
        for field, points in _series(frame):
            labels = dict(field.labels or {})
            metric = labels.get("__name__", "")
            if metric:
                exported.append(MetricSeries(labels, points))
                continue
            config = field.config or _Config()
            title = config.display_name_from_ds or config.display_name or field.name
            unit = _UNITS.get(config.unit, config.unit)
            cells = [(time, value, unit if panel_series.duration_factor(unit) else "") for time, value in points]
            named.setdefault(_name(title, frame), []).extend(cells)
    parts = [evidence(exported, section.artifact, file_name(section))] if exported else []
    found = Evidence.merge([*parts, panel_series.evidence(section, named)])
    if not found.readings:
        raise ValueError("the names of its series do not say what they measure")
    return found


def _name(title: str, frame: _Frame) -> str:
    """`title`, or the name of the frame for a mere `Value`; the query where neither says what is measured."""
    name = title if title != "Value" else frame.name or title
    meta = frame.frame_schema.meta if frame.frame_schema else None
    query = _QUERY.search(meta.executed_query_string) if meta else None
    return query[1] if query and panel_series.is_unclear(name) else name


def _frames(text: str) -> Iterator[_Frame]:
    if text.startswith("["):
        yield from msgspec.json.decode(text, type=list[_Frame])
        return
    for result in msgspec.json.decode(text, type=_Response).results.values():
        yield from result.frames


def _series(frame: _Frame) -> Iterator[tuple[_Field, list[tuple[float, float]]]]:
    fields = frame.fields or (frame.frame_schema.fields if frame.frame_schema else [])
    columns = frame.data.values if frame.data else [field.values or [] for field in fields]
    place = next((n for n, field in enumerate(fields) if field.type == "time"), None)
    if place is None or place >= len(columns):
        return
    times = columns[place]
    for field, values in zip(fields, columns, strict=False):
        if field.type == "number":
            pairs = zip(times, values, strict=False)
            points = {
                float(time) / 1e3: float(value)
                for time, value in pairs
                if isinstance(time, float | int) and isinstance(value, float | int)
            }
            yield field, sorted(points.items())


FORMAT = TextFormat(
    name="grafana-frames",
    title="data frames of Grafana",
    begins=re.compile(
        r'\A\s*(?:\{\s*"results"\s*:|\[\s*\{)(?=[\s\S]*?"fields"\s*:\s*\[)(?=[\s\S]*?"type"\s*:\s*"time")'
    ),
    read=read,
    provides=frozenset(shipped_signals()) | panel_series.NAMES,
    whole=True,
    entries=1,
)
