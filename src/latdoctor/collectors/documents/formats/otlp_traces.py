"""Traces in OTLP JSON: one export, a line for each (the collector's file exporter), answers of Tempo and Jaeger v2.

Identifiers are compared as texts, so that hexadecimal and base64 both work.
"""

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

_MAX_SPANS = 1_000_000
_ERROR = (2, "2", "STATUS_CODE_ERROR", "ERROR")
_Number = int | str


class _AnyValue(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    int_value: _Number | None = None
    double_value: float | str | None = None
    bool_value: bool | None = None

    def plain(self) -> Value | None:
        for value in (self.string_value, self.int_value, self.double_value, self.bool_value):
            if value is not None:
                return value
        return None


class _Attribute(msgspec.Struct):
    key: str
    value: _AnyValue | None = None


class _Status(msgspec.Struct):
    code: _Number = 0


class _OtlpSpan(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    start_time_unix_nano: _Number
    end_time_unix_nano: _Number
    name: str = ""
    parent_span_id: str | None = ""
    attributes: tuple[_Attribute, ...] | None = ()
    status: _Status | None = None


class _Scope(msgspec.Struct):
    spans: tuple[_OtlpSpan, ...] | None = ()


class _Resource(msgspec.Struct):
    attributes: tuple[_Attribute, ...] | None = ()


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: tuple[_Scope, ...] | None = ()
    instrumentation_library_spans: tuple[_Scope, ...] | None = ()  # before OTLP 0.15


class _Export(msgspec.Struct, rename="camel"):
    resource_spans: tuple[_ResourceSpans, ...] | None = ()
    batches: tuple[_ResourceSpans, ...] | None = ()  # Tempo
    trace: _Export | None = None
    result: _Export | None = None  # Jaeger v2


_SNAKE = re.compile(r'"([a-z]+(?:_[a-z]+)+)"(?=\s*:)')


def read(section: Section) -> Evidence:
    """The evidence of the requests. Raises ValueError."""
    return read_together([section])


def read_together(sections: Sequence[Section]) -> Evidence:
    """The evidence of several files: the services of one trace may have exported one each. Raises ValueError."""
    spans = [span for section in sections for span in _spans(section.text)]
    return traced_requests.evidence(spans[:_MAX_SPANS], sections[0].artifact, file_name(sections[0]))


def _spans(text: str) -> Iterator[Span]:
    if '"resource_spans"' in text[:4096]:  # written by protobuf with its own names
        text = _SNAKE.sub(lambda found: f'"{_camel(found[1])}"', text)
    for export in _exports(text.strip()):
        inner = export.trace or export.result or export
        for resource in (*(inner.resource_spans or ()), *(inner.batches or ())):
            attributes = _attributes(resource.resource.attributes if resource.resource else ())
            service = str(attributes.get("service.name", ""))
            for scope in (*(resource.scope_spans or ()), *(resource.instrumentation_library_spans or ())):
                yield from (_span(one, service) for one in scope.spans or ())


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _exports(text: str) -> Iterator[_Export]:
    """One document, a list, or one on each line, of which the last may be truncated."""
    if text.startswith("["):
        yield from msgspec.json.decode(text, type=list[_Export])
        return
    decoder = msgspec.json.Decoder(_Export)
    lines = text.split("\n")
    try:
        yield decoder.decode(text)
        return
    except msgspec.DecodeError:
        if len(lines) < 2:
            raise
        first = decoder.decode(lines[0])  # raises for a damaged document over several lines
    yield first
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            if number < len(lines):
                raise


def _attributes(found: Sequence[_Attribute] | None) -> dict[str, Value]:
    pairs = ((one.key, one.value.plain()) for one in found or () if one.value is not None)
    return {key: value for key, value in pairs if value is not None}


def _span(one: _OtlpSpan, service: str) -> Span:
    start, end = (int(time) / 1e9 for time in (one.start_time_unix_nano, one.end_time_unix_nano))
    span = Span(one.trace_id, one.span_id, (one.parent_span_id or "").strip("0"), one.name, service, start, end)
    if span.parent:
        span.parent = one.parent_span_id or ""
    span.failed = one.status is not None and one.status.code in _ERROR
    describe(span, _attributes(one.attributes))
    return span


FORMAT = TextFormat(
    name="otlp-traces",
    title="traces in OTLP JSON",
    begins=re.compile(
        r'\A\s*\[?\s*\{\s*"(?:resourceSpans|resource_spans|batches|trace|result)"\s*:'
        r'(?=[\s\S]*?"(?:traceId|trace_id)"\s*:)(?=[\s\S]*?"(?:startTimeUnixNano|start_time_unix_nano)"\s*:)'
    ),
    read=read,
    provides=traced_requests.SIGNALS,
    whole=True,
    entries=1,
    read_together=read_together,
)
