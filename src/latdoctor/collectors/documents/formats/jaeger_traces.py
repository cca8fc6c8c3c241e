"""Traces of Jaeger as JSON (its page's download, its API, a list of spans, a span a line). Times in microseconds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from latdoctor.collectors.documents import traced_requests
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.request_spans import Span
from latdoctor.collectors.documents.span_attributes import Value, describe
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence


class _Tag(msgspec.Struct):
    key: str
    value: str | float | bool | None = None


class _Reference(msgspec.Struct):
    ref_type: str = msgspec.field(default="CHILD_OF", name="refType")
    span_id: str = msgspec.field(default="", name="spanID")


class _Process(msgspec.Struct):
    service_name: str = msgspec.field(default="", name="serviceName")


class _JaegerSpan(msgspec.Struct):
    trace_id: str = msgspec.field(name="traceID")
    span_id: str = msgspec.field(name="spanID")
    start: float = msgspec.field(name="startTime")
    duration: float = 0.0
    name: str = msgspec.field(default="", name="operationName")
    parent: str = msgspec.field(default="", name="parentSpanID")  # before references
    references: tuple[_Reference, ...] | None = ()
    tags: tuple[_Tag, ...] | None = ()
    process_id: str = msgspec.field(default="", name="processID")
    process: _Process | None = None


class _Trace(msgspec.Struct):
    spans: tuple[_JaegerSpan, ...]
    processes: dict[str, _Process] | None = None


class _ApiResult(msgspec.Struct):
    data: tuple[_Trace, ...]


def read(section: Section) -> Evidence:
    """The evidence of the requests. Raises ValueError."""
    return read_together([section])


def read_together(sections: Sequence[Section]) -> Evidence:
    """The evidence of several downloads: the page saves a file for each trace. Raises ValueError."""
    spans = [span for section in sections for span in _spans(section.text.strip())]
    return traced_requests.evidence(spans, sections[0].artifact, file_name(sections[0]))


def _spans(text: str) -> Iterator[Span]:
    for trace in _traces(text):
        for one in trace.spans:
            process = one.process or (trace.processes or {}).get(one.process_id, _Process())
            parents = [reference.span_id for reference in one.references or () if reference.ref_type == "CHILD_OF"]
            parents += [reference.span_id for reference in one.references or ()]
            parent = next(iter(parents), one.parent)
            start = one.start / 1e6
            end = start + one.duration / 1e6
            span = Span(one.trace_id, one.span_id, parent, one.name, process.service_name, start, end)
            tags: dict[str, Value] = {tag.key: tag.value for tag in one.tags or () if tag.value is not None}
            span.failed = tags.get("otel.status_code") == "ERROR"
            describe(span, tags)
            yield span


def _traces(text: str) -> Iterator[_Trace]:
    if text.startswith("["):
        if '"spans"' in text[:4096]:
            yield from msgspec.json.decode(text, type=list[_Trace])
        else:
            yield _Trace(msgspec.json.decode(text, type=tuple[_JaegerSpan, ...]))
    elif re.match(r'\{\s*"(?:data|total|limit|offset|errors)"', text):
        yield from msgspec.json.decode(text, type=_ApiResult).data
    elif '"spans"' in text[:4096]:
        yield msgspec.json.decode(text, type=_Trace)
    else:
        decoder = msgspec.json.Decoder(_JaegerSpan)
        yield _Trace(tuple(decoder.decode(line) for line in text.split("\n") if line.strip()))


FORMAT = TextFormat(
    name="jaeger-traces",
    title="traces of Jaeger",
    begins=re.compile(r'\A\s*\[?\s*\{(?=[\s\S]*?"traceID"\s*:)(?=[\s\S]*?"spanID"\s*:)(?=[\s\S]*?"startTime"\s*:)'),
    read=read,
    provides=traced_requests.SIGNALS,
    whole=True,
    entries=1,
    read_together=read_together,
)
