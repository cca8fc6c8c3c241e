"""Exports of OpenTelemetry (OTLP), in protobuf or JSON, as the messages of opentelemetry-proto.

A file is one request, or what the collector's file exporter writes: with `format: proto` each message behind four bytes
of length (big-endian), compressed by zstd or not; with JSON a line for each. Messages behind a varint of length, as
libraries of protobuf write them, are read as well. The last message of a file that is still written may be cut.

The three kinds have the same outer shape, so a kind is taken only where its innermost fields are filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import zstandard
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

Export = TracesData | MetricsData | LogsData

_RESOURCE = 0x0A  # the tag of the first field of every export
_ZSTD = b"\x28\xb5\x2f\xfd"
_LENGTH = 4
_MAX_VARINT = 5
_MAX_UNPACKED = 256 << 20  # bytes of all messages
_TRACE_ID = 16


def of_protobuf(content: bytes) -> Iterator[Export]:
    """The exports of a file. Raises ValueError where a message is none."""
    total = 0
    for message in _messages(content):
        plain = _unpacked(message)
        total += len(plain)
        if total > _MAX_UNPACKED:
            raise ValueError(f"it has more than {_MAX_UNPACKED >> 20} MiB when unpacked")
        if plain:
            yield _decoded(plain)


def of_json(text: str) -> Iterator[MetricsData | LogsData]:
    """The exports of metrics and logs of a JSON document, or of its lines. Raises ValueError."""
    lines = [line for line in text.split("\n") if line.strip()]
    whole = "\n".join(lines)
    documents = [whole] if len(lines) == 1 or not lines[0].rstrip().endswith("}") else lines
    for number, document in enumerate(documents, 1):
        kind = LogsData if '"resourceLogs"' in document else MetricsData
        try:
            yield json_format.Parse(document, kind(), ignore_unknown_fields=True, max_recursion_depth=50)
        except (json_format.ParseError, RecursionError) as error:
            if number < len(documents) or number == 1:  # else the last line, still being written
                raise ValueError(f"message {number} is damaged: {str(error)[:120]}") from error


def _messages(content: bytes) -> Iterator[bytes]:
    if content[:1] == bytes([_RESOURCE]) and _is_export(content):
        yield content
        return
    framed = next((list(found) for length in (_fixed, _varint) if (found := _frames(content, length))), None)
    if framed is None:
        raise ValueError("it has neither one message nor messages with their lengths")
    yield from framed


def _is_export(content: bytes) -> bool:
    try:
        _decoded(content)
    except ValueError:
        return False
    return True


def _frames(content: bytes, length: Callable[[bytes, int], tuple[int, int]]) -> list[bytes]:
    """The messages behind their lengths; empty where the first of them cannot begin an export."""
    found: list[bytes] = []
    position = 0
    while position < len(content):
        size, begin = length(content, position)
        if size < 0 or begin + size > len(content):
            break  # cut, or no length
        found.append(content[begin : begin + size])
        position = begin + size
    first = next((one for one in found if one), b"")
    return found if first[:1] == bytes([_RESOURCE]) or first.startswith(_ZSTD) else []


def _fixed(content: bytes, position: int) -> tuple[int, int]:
    """The length at `position` and where its message begins; -1 where there is none."""
    if position + _LENGTH > len(content):
        return -1, position
    return int.from_bytes(content[position : position + _LENGTH], "big"), position + _LENGTH


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(content[position : position + _MAX_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, position + place + 1
    return -1, position


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(_ZSTD):
        return content
    try:
        if zstandard.frame_content_size(content) > _MAX_UNPACKED:
            raise ValueError(f"a message has more than {_MAX_UNPACKED >> 20} MiB when unpacked")
        return zstandard.ZstdDecompressor().decompress(content, max_output_size=_MAX_UNPACKED)
    except zstandard.ZstdError as error:
        raise ValueError(f"a compressed message is damaged: {error}") from error


def _decoded(message: bytes) -> Export:
    for read in (_traces, _metrics, _logs):
        try:
            found = read(message)
        except DecodeError:
            continue
        if found is not None:
            return found
    raise ValueError("a message is no export of traces, metrics or logs")


def _traces(message: bytes) -> TracesData | None:
    data = TracesData.FromString(message)
    spans = (span for resource in data.resource_spans for scope in resource.scope_spans for span in scope.spans)
    return data if any(len(one.trace_id) == _TRACE_ID and one.start_time_unix_nano for one in spans) else None


def _metrics(message: bytes) -> MetricsData | None:
    data = MetricsData.FromString(message)
    metrics = (one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics)
    return data if any(one.name and one.WhichOneof("data") for one in metrics) else None


def _logs(message: bytes) -> LogsData | None:
    data = LogsData.FromString(message)
    records = (one for resource in data.resource_logs for scope in resource.scope_logs for one in scope.log_records)
    return data if any(one.time_unix_nano or one.observed_time_unix_nano for one in records) else None
