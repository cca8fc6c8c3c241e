"""Traces of Zipkin as JSON (API v2): a list of spans, or a list of traces. Microseconds.

Client and server may share the id of a span; the server's becomes a child of the client's then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from latdoctor.collectors.documents import traced_requests
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.request_spans import Span
from latdoctor.collectors.documents.span_attributes import describe
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence


class _Endpoint(msgspec.Struct, rename="camel"):
    service_name: str | None = None


class _ZipkinSpan(msgspec.Struct, rename="camel"):
    trace_id: str
    id: str
    parent_id: str | None = None
    name: str | None = None
    kind: str = ""
    timestamp: float | None = None
    duration: float | None = None
    local_endpoint: _Endpoint | None = None
    shared: bool = False
    tags: dict[str, str] | None = None


def read(section: Section) -> Evidence:
    """The evidence of the requests. Raises ValueError."""
    return read_together([section])


def read_together(sections: Sequence[Section]) -> Evidence:
    """The evidence of several files. Raises ValueError."""
    spans = [span for section in sections for span in _spans(section.text)]
    return traced_requests.evidence(spans, sections[0].artifact, file_name(sections[0]))


def _spans(text: str) -> Iterator[Span]:
    nested = re.match(r"\s*\[\s*\[", text) is not None
    if nested:
        yield from _joined(one for trace in msgspec.json.decode(text, type=list[list[_ZipkinSpan]]) for one in trace)
    else:
        yield from _joined(msgspec.json.decode(text, type=list[_ZipkinSpan]))


def _joined(found: Iterable[_ZipkinSpan]) -> Iterator[Span]:
    spans = [one for one in found if one.timestamp is not None and one.duration is not None]
    clients = {(one.trace_id, one.id): _service(one) for one in spans if one.kind == "CLIENT"}
    servers = {(one.trace_id, one.id) for one in spans if one.kind == "SERVER"}
    for one in spans:
        start = (one.timestamp or 0.0) / 1e6
        name, parent = one.id, one.parent_id or ""
        if one.kind == "SERVER" and (one.trace_id, one.id) in clients:
            name, parent = f"{one.id}/server", one.id
        elif (above := (one.trace_id, parent)) in servers and above in clients and clients[above] != _service(one):
            parent = f"{parent}/server"
        span = Span(one.trace_id, name, parent, one.name or "", _service(one), start, start)
        span.end = start + (one.duration or 0.0) / 1e6
        tags = one.tags or {}
        span.failed = "error" in tags
        describe(span, {key: value for key, value in tags.items() if key != "error"})
        yield span


def _service(one: _ZipkinSpan) -> str:
    return (one.local_endpoint.service_name if one.local_endpoint else "") or ""


FORMAT = TextFormat(
    name="zipkin-traces",
    title="traces of Zipkin",
    begins=re.compile(
        r'\A\s*\[\s*\[?\s*\{(?=[\s\S]*?"traceId"\s*:)(?=[\s\S]*?"timestamp"\s*:)(?=[\s\S]*?"duration"\s*:)'
    ),
    read=read,
    provides=traced_requests.SIGNALS,
    whole=True,
    read_together=read_together,
)
