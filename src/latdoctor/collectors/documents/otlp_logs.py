"""Log records of OTLP exports as the lines of a log, which is then read like any other extract of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from google.protobuf import json_format
from msgspec import structs
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData

from latdoctor.collectors.documents.text_format import Section
from latdoctor.collectors.logs.collector import parse as parse_log
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Origin

_EXCEPTION = ("exception.message", "exception.stacktrace")
_PLACE = re.compile(r"line (\d+)")
_SEVERITIES = ("", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def evidence(exports: Iterable[LogsData], section: Section) -> Evidence:
    """The events of the records. They are an extract: nothing counts as searched."""
    lines: list[str] = []
    numbers: list[int] = []  # of the record of each line
    for number, record in enumerate(_in_order(exports), 1):
        found = list(_lines(record))
        lines += found
        numbers += [number] * len(found)
    if not lines:
        raise ValueError("its log records have no text")
    content = "\n".join(lines).encode()
    name = section.artifact.rpartition("/")[2]
    log = Artifact(section.artifact, "logs", name, section.source, section.taken_at, content)
    seen = parse_log([log])

    def placed(origin: Origin) -> Origin:
        within = _PLACE.fullmatch(origin.place)
        return Origin(origin.artifact, f"log record {numbers[int(within[1]) - 1]}") if within else origin

    return Evidence(
        subjects=seen.subjects,
        readings=tuple(structs.replace(one, origin=placed(one.origin)) for one in seen.readings),
        series=seen.series,
        distributions=seen.distributions,
        events=tuple(structs.replace(one, origin=placed(one.origin)) for one in seen.events),
    )


def _in_order(exports: Iterable[LogsData]) -> list[LogRecord]:
    records = [
        record
        for data in exports
        for resource in data.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    return sorted(records, key=_time)


def _time(record: LogRecord) -> int:
    return record.time_unix_nano or record.observed_time_unix_nano


def _lines(record: LogRecord) -> Iterator[str]:
    severity = record.severity_text or _SEVERITIES[min(6, (record.severity_number + 3) // 4)]
    texts = [_body(record)]
    texts += [one.value.string_value for one in record.attributes if one.key in _EXCEPTION]
    text = "\n".join(part for part in texts if part)
    if not text:
        return
    try:
        moment = datetime.fromtimestamp(_time(record) / 1e9, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        moment = ""
    first, *rest = text.splitlines()
    yield " ".join(part for part in (moment, severity, first) if part)
    yield from rest


def _body(record: LogRecord) -> str:
    if record.body.WhichOneof("value") in (None, "string_value"):
        return record.body.string_value
    return str(json_format.MessageToJson(record.body, indent=None))
