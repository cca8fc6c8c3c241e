"""Answers of the HTTP API of Prometheus (and of Thanos, Mimir, VictoriaMetrics): `query` and `query_range` as JSON.

Several files are one answer: an engineer saves one for each query. VictoriaMetrics' export, a line for each series, is
read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.metric_history import MetricSeries, evidence
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.dialects.loader import shipped_signals
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

_MAX_SERIES = 20_000
_Point = tuple[float, str | float]


class _QuerySeries(msgspec.Struct):
    metric: dict[str, str] = {}
    value: _Point | None = None
    values: tuple[_Point, ...] = ()
    histogram: msgspec.Raw = msgspec.Raw()  # native histograms
    histograms: msgspec.Raw = msgspec.Raw()


class _ResultData(msgspec.Struct, rename="camel"):
    result_type: str


class _ApiAnswer(msgspec.Struct, rename="camel"):
    status: str
    data: msgspec.Raw = msgspec.Raw()
    error_type: str = ""
    error: str = ""
    warnings: tuple[str, ...] | None = None


class _Exported(msgspec.Struct):
    metric: dict[str, str]
    values: tuple[float | None, ...]
    timestamps: tuple[float, ...]


def read(section: Section) -> Evidence:
    """The evidence of one answer. Raises ValueError, also where the answer is an error."""
    return read_together([section])


def read_together(sections: Sequence[Section]) -> Evidence:
    """The evidence of several answers as one. Raises ValueError where one cannot be read."""
    series: list[MetricSeries] = []
    gaps: list[Gap] = []
    for section in sections:
        found = list(_of(section, gaps))[:_MAX_SERIES]
        series.extend(found)
    first = sections[0]
    known = evidence(series, first.artifact, file_name(first))
    return Evidence.merge([known, Evidence(gaps=tuple(gaps))])


def _of(section: Section, gaps: list[Gap]) -> Iterator[MetricSeries]:
    text = section.text.strip()
    if _EXPORT.search(text):
        yield from _exported(text)
        return
    answer = msgspec.json.decode(text, type=_ApiAnswer)
    if answer.status != "success" or not answer.data:
        raise ValueError(f"the server answered with an error: {clean(answer.error_type)}: {clean(answer.error, 200)}")
    if answer.warnings:
        reason = f"{section.source}: Prometheus warned: {clean('; '.join(answer.warnings), 200)}"
        step = "part of the result may be missing: check the stores behind it"
        gaps.append(Gap(NAME, reason, (), None, step, section.origin(), GapCode.UNREADABLE))
    kind = msgspec.json.decode(answer.data, type=_ResultData).result_type
    if kind not in ("matrix", "vector"):
        raise ValueError(f"a result of type {clean(kind, 40)} has no metric")
    data = msgspec.json.decode(answer.data, type=_Matrix)
    native = 0
    for one in data.result:
        native += bool(one.histogram or one.histograms)
        points = one.values if one.value is None else (one.value,)
        yield MetricSeries(one.metric, [(time, float(value)) for time, value in points])
    if native:
        reason = f"{section.source}: {native} native histograms are not read"
        gaps.append(Gap(NAME, reason, (), None, "", section.origin(), GapCode.UNSUPPORTED))


class _Matrix(msgspec.Struct):
    result: tuple[_QuerySeries, ...] = ()


def _exported(text: str) -> Iterator[MetricSeries]:
    """Times are milliseconds, and a missing value is null."""
    decoder = msgspec.json.Decoder(_Exported)
    for line in text.split("\n"):
        if line.strip():
            one = decoder.decode(line)
            pairs = zip(one.timestamps, one.values, strict=False)
            yield MetricSeries(one.metric, [(time / 1e3, value) for time, value in pairs if value is not None])


_EXPORT = re.compile(r'\A\s*\{(?=[^\n]*"metric"\s*:\s*\{)(?=[^\n]*"timestamps"\s*:\s*\[)')
FORMAT = TextFormat(
    name="prometheus-api",
    title="an answer of the Prometheus API",
    begins=re.compile(
        r'\A\s*\{\s*"status"\s*:\s*"(?:success|error)"\s*,[\s\S]{0,2000}?"(?:resultType"\s*:\s*"(?!streams)|errorType"\s*:)'
        rf"|{_EXPORT.pattern}"
    ),
    read=read,
    provides=frozenset(shipped_signals()),
    whole=True,
    entries=2,  # series, and the points of one
    read_together=read_together,
)
