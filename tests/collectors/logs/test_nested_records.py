"""Records of log services and structured loggers, one per line, in one document, and behind a carrier's prefix."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.file_kinds import FileKind, recognise
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs import formats
from latdoctor.collectors.logs.records import records_in_document
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

WRITTEN = datetime(2025, 6, 1, 12, 0, tzinfo=UTC).timestamp()
AT = datetime(2025, 5, 19, 10, 13, 13, tzinfo=UTC).timestamp()
ISO = "2025-05-19T10:13:13Z"
NANOS = "1747649593000000000"
BOOM = "RuntimeError: CUDA error: unknown error"

RECORDS: dict[str, object] = {
    "docker": {"log": f"{BOOM}\n", "stream": "stderr", "time": ISO},
    "Google Cloud, text": {"textPayload": BOOM, "timestamp": ISO, "severity": "ERROR", "resource": {"labels": {}}},
    "Google Cloud, JSON": {"jsonPayload": {"message": BOOM, "levelname": "ERROR"}, "timestamp": ISO},
    "TGI": {"timestamp": ISO, "level": "ERROR", "fields": {"message": BOOM}, "target": "a::b", "span": {"name": "c"}},
    "zap": {"level": "error", "ts": 1747649593.0, "caller": "a.go:1", "msg": BOOM},
    "bunyan": {"name": "a", "hostname": "b", "pid": 7, "level": 50, "msg": BOOM, "time": ISO, "v": 0},
    "pino": {"level": 50, "time": 1747649593000, "pid": 7, "hostname": "b", "msg": BOOM},
    "structlog": {"event": BOOM, "level": "error", "timestamp": ISO},
    "python-json-logger": {"asctime": "2025-05-19 10:13:13,000", "levelname": "ERROR", "message": BOOM},
    "loguru": {"text": f"2025-05-19 10:13:13.000 | ERROR | a:b:1 - {BOOM}", "record": {"message": BOOM,
               "time": {"repr": "2025-05-19 12:13:13.000000+02:00", "timestamp": 1747649593.0}}},
    "ECS": {"@timestamp": ISO, "log": {"level": "error"}, "message": BOOM, "ecs": {"version": "8"}},
    "Elastic hit": {"_index": "a", "_source": {"@timestamp": ISO, "message": BOOM}},
    "Datadog": {"id": "a", "content": {"timestamp": ISO, "message": BOOM, "tags": ["b:c"], "attributes": {"x": 1}}},
    "Datadog v2": {"id": "a", "attributes": {"timestamp": ISO, "message": BOOM}},
    "CloudWatch": {"timestamp": 1747649593000, "message": BOOM, "ingestionTime": 1747649594000},
    "CloudWatch, stream": {"messageType": "DATA_MESSAGE", "logEvents": [{"timestamp": 1747649593000, "message": BOOM}]},
    "Insights": {"results": [[{"field": "@timestamp", "value": "2025-05-19 10:13:13.000"},
                              {"field": "@message", "value": BOOM}]]},
    "logcli": {"labels": {"app": "a"}, "line": BOOM, "timestamp": ISO},
    "Grafana": {"line": BOOM, "timestamp": NANOS, "fields": {"app": "a"}},
    "Loki push": {"streams": [{"stream": {"app": "a"}, "values": [[NANOS, BOOM]]}]},
    "Loki query": {"status": "success", "data": {"resultType": "streams", "result": [
        {"stream": {"app": "a"}, "values": [[NANOS, BOOM, {"x": "y"}]]}]}},
    "OpenTelemetry": {"resourceLogs": [{"resource": {"attributes": []}, "scopeLogs": [{"scope": {}, "logRecords": [
        {"timeUnixNano": NANOS, "severityText": "ERROR", "body": {"stringValue": BOOM}}]}]}]},
    "GELF": {"version": "1.1", "host": "a", "short_message": BOOM, "timestamp": 1747649593.0},
    "Serilog": {"@t": ISO, "@m": BOOM, "@l": "Error"},
    "Splunk": {"preview": False, "result": {"_raw": BOOM, "_time": ISO}},
    "fluentd": {"log": BOOM, "kubernetes": {"pod_name": "a", "namespace_name": "b"}, "@timestamp": ISO},
    "JSON within docker": {"log": json.dumps({"level": "error", "msg": BOOM, "ts": 1747649593.0}) + "\n", "time": ISO},
    "protobuf's time": {"timestamp": {"seconds": 1747649593, "nanos": 0}, "message": BOOM},
    "a local time in docker": {"log": f"05-19 12:13:13 {BOOM}\n", "time": "2025-05-19T10:13:13.4Z"},
}  # fmt: skip


def read(content: bytes) -> Evidence:
    return logs.READER.parse([Artifact("logs/a", "logs", "a", "a", WRITTEN, content)])


def check(content: bytes, place: str) -> None:
    found = read(content)
    (event,) = found.events
    assert (event.signal, event.time, event.origin.place) == ("log.cuda_error", AT, place)
    assert event.text.endswith(BOOM)
    assert ("log.cuda_error", "node/a") in found.looked


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_in_one_line(record: object) -> None:
    check(json.dumps(record).encode() + b"\n", "line 1")


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_records_in_an_indented_list(record: object) -> None:
    check(json.dumps([record], indent=2).encode(), "record 1")


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_records_in_a_list_of_one_line(record: object) -> None:
    check(json.dumps([record]).encode(), "record 1")


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_document_that_was_cut(record: object) -> None:
    whole = json.dumps([record, record], indent=1).encode()
    found = read(whole[:-20])
    assert [event.time for event in found.events][:1] == [AT]


PREFIXES = ["web-1  | ", "[pod/a/b] ", "2025-05-19T10:13:13.0Z stdout F ", "2025-05-19T10:13:13.0Z ", "> ",
            "[pod/a/b] 2025-05-19T10:13:13.0Z "]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_record_behind_a_carriers_prefix(prefix: str) -> None:
    line = json.dumps({"timestamp": ISO, "level": "ERROR", "fields": {"message": BOOM}})
    (event,) = read(f"{prefix}{line}\n".encode()).events
    assert (event.time, event.text) == (AT, BOOM)


def test_a_record_that_a_program_quotes_stays_its_line() -> None:
    (event,) = read(f'2025-05-19T10:13:13Z INFO got {{"message": "{BOOM}"}}\n'.encode()).events
    assert event.text.startswith("2025-05-19T10:13:13Z INFO got")


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "OpenTelemetry"])  # a document by its own reader
def test_files_of_records_are_logs(name: str, tmp_path: Path) -> None:
    record = RECORDS[name]
    path = tmp_path / "x.json"
    plain = json.dumps(record).replace(BOOM, "the engine is ready")
    for content in (f"{plain}\n", json.dumps([json.loads(plain)], indent=2)):
        path.write_text(content)
        found = recognise(path)
        assert found is not None
        assert found.kind is FileKind.LOG


ANSWERS = ['{"message": "not found", "code": 404}', '{\n "message": "not found"\n}', '[{"text": "a"}, {"text": "b"}]']


@pytest.mark.parametrize("content", ANSWERS[1:])
def test_json_without_a_time_is_no_document_of_records(content: str) -> None:
    with pytest.raises(SourceError):
        formats.form_of(content.encode(), "a")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings(encoding: str) -> None:
    content = f"INFO 05-19 10:13:12 Gerät bereit – 5\r\nERROR 05-19 10:13:13 {BOOM}\r\n".encode(encoding)
    (event,) = read(content).events
    assert (event.time, event.origin.place) == (AT, "line 2")
    assert event.text.endswith(BOOM)


NAMES = st.sampled_from(["message", "time", "values", "body", "field", "value", "log"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner),
)


@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    content = json.dumps(value).encode()
    list(records_in_document(content, WRITTEN))
    list(records_in_document(content[: len(content) // 2], WRITTEN))


@given(st.binary(max_size=3000))
def test_any_bytes_are_read_or_refused_in_bounded_time(content: bytes) -> None:
    began = time.process_time()
    with suppress(SourceError):
        read(content)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "unit", [b"[", b"{", b'{"a":', b'"', b'\\"', b'["a",', b"{}", b'{"message":"a"}', b'[{"time":1,"log":"']
)
def test_repetitions_take_bounded_time(unit: bytes) -> None:
    began = time.process_time()
    with suppress(SourceError):
        read(unit * (200_000 // len(unit)))
    assert time.process_time() - began < 3
