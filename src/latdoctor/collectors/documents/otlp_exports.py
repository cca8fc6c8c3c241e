"""Evidence of OTLP exports, whatever they carry: requests of traces, a history of metrics, the lines of logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from latdoctor.collectors.documents import NAME, metric_history, otlp_logs, traced_requests
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.otlp_messages import Export
from latdoctor.collectors.documents.otlp_metrics import OtlpSeries
from latdoctor.collectors.documents.request_spans import Span
from latdoctor.collectors.documents.span_attributes import Value, describe
from latdoctor.collectors.documents.text_format import Section
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import counted

_FAILED = 2  # STATUS_CODE_ERROR
_MAX_SPANS = 1_000_000


def evidence(exports: Iterable[Export], section: Section) -> Evidence:
    """What the exports show together. Raises ValueError."""
    spans: list[Span] = []
    logs: list[LogsData] = []
    metrics = OtlpSeries()
    for export in exports:
        if isinstance(export, LogsData):
            logs.append(export)
        elif isinstance(export, MetricsData):
            metrics.add(export)
        elif len(spans) < _MAX_SPANS:
            spans.extend(_spans(export))
    parts = [traced_requests.evidence(spans[:_MAX_SPANS], section.artifact, file_name(section))] if spans else []
    if metrics.points or metrics.unread:
        parts.append(_history(metrics, section, alone=not (spans or logs)))
    if logs:
        parts.append(otlp_logs.evidence(logs, section))
    if not parts:
        raise ValueError("it has no spans, metrics or log records")
    return Evidence.merge(parts)


def _history(metrics: OtlpSeries, section: Section, *, alone: bool) -> Evidence:
    gaps = [
        Gap(NAME, f"{section.source}: {counted(count, 'metric')} of the kind {kind}, which is not read",
            code=GapCode.UNSUPPORTED, origin=section.origin())
        for kind, count in metrics.unread.items()
    ]  # fmt: skip
    try:
        known = metric_history.evidence(metrics.series(), section.artifact, file_name(section))
    except ValueError:
        if alone:
            raise
        known = Evidence()  # of services that are none of inference, beside what else the file has
    return Evidence.merge([known, Evidence(gaps=tuple(gaps))])


def _spans(data: TracesData) -> Iterator[Span]:
    for resource in data.resource_spans:
        service = str(_attributes(resource.resource.attributes).get("service.name", ""))
        for one in (span for scope in resource.scope_spans for span in scope.spans):
            start, end = one.start_time_unix_nano / 1e9, one.end_time_unix_nano / 1e9
            parent = one.parent_span_id.hex() if any(one.parent_span_id) else ""
            span = Span(one.trace_id.hex(), one.span_id.hex(), parent, one.name, service, start, end)
            span.failed = one.status.code == _FAILED
            describe(span, _attributes(one.attributes))
            yield span


def _attributes(found: Iterable[KeyValue]) -> dict[str, Value]:
    plain = ("string_value", "bool_value", "int_value", "double_value")
    kinds = ((one, one.value.WhichOneof("value")) for one in found)
    return {one.key: getattr(one.value, kind) for one, kind in kinds if kind in plain}
