"""OTLP as protobuf, in one file: requests of traces, metrics and logs, or what the collector's file exporter writes."""

from __future__ import annotations

import re

from latdoctor.collectors.documents import traced_requests
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.dialects.loader import shipped_signals
from latdoctor.evidence.model import Evidence


def read(section: Section) -> Evidence:
    """The evidence of all exports of the file. Raises ValueError."""
    from latdoctor.collectors.documents import otlp_exports, otlp_messages  # protobuf is needed by few

    return otlp_exports.evidence(otlp_messages.of_protobuf(section.content), section)


# A length or none, then the resource with its first attribute: a key of words with dots. Or a length and zstd's mark.
FORMAT = TextFormat(
    name="otlp-protobuf",
    title="an OTLP export in protobuf",
    begins=re.compile(r"\A(?:[\s\S]{0,18}?\n[\x03-\x60][a-z]\w*(?:\.\w+)+\x12|[\s\S]{1,4}\(\ufffd/\ufffd)"),
    read=read,
    provides=frozenset(shipped_signals()) | traced_requests.SIGNALS,
    whole=True,
    binary=True,
)
