"""Metrics and logs in OTLP JSON: one export, or a line for each, as the collector's file exporter writes them."""

from __future__ import annotations

import re

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.dialects.loader import shipped_signals
from latdoctor.evidence.model import Evidence


def read(section: Section) -> Evidence:
    """The evidence of all exports of the file. Raises ValueError."""
    from latdoctor.collectors.documents import otlp_exports, otlp_messages  # protobuf is needed by few

    return otlp_exports.evidence(otlp_messages.of_json(section.text), section)


FORMAT = TextFormat(
    name="otlp-json",
    title="metrics or logs in OTLP JSON",
    begins=re.compile(r'\A\s*\{\s*"(?:resourceMetrics|resourceLogs)"\s*:\s*\['),
    read=read,
    provides=frozenset(shipped_signals()),
    whole=True,
    entries=1,
)
