"""Reports of vegeta, as text and as JSON."""

from __future__ import annotations

import re

import msgspec

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LoadResult
from latdoctor.collectors.documents.quantity_text import number, seconds
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_VEGETA = re.compile(r"^\s*(Requests|Duration|Latencies|Success|Status Codes)\s+\[([^\]]*)\]\s+(.*?)\s*$", re.MULTILINE)


def read_vegeta(section: Section) -> Evidence:
    """`vegeta report`; the names of the numbers are in the brackets. Raises ValueError."""
    rows: dict[str, dict[str, str]] = {}
    for name, columns, values in _VEGETA.findall(section.text):
        cells = (value.strip() for value in values.split(","))
        rows[name] = dict(zip((column.strip() for column in columns.split(",")), cells, strict=False))
    requests, duration = rows.get("Requests", {}), rows.get("Duration", {})
    result = LoadResult(requests=number(requests.get("total", "")), request_rate=number(requests.get("rate", "")))
    result.seconds = seconds(duration.get("attack", ""))
    for name, value in rows.get("Latencies", {}).items():
        result.timing().put(f"{name}%" if name.isdigit() else name, seconds(value))
    success = number(rows.get("Success", {}).get("ratio", "").rstrip("%"))
    codes = re.findall(r"(\d+):(\d+)", next(iter(rows.get("Status Codes", {}).values()), ""))
    if codes and result.requests is not None:
        result.failed = result.requests - sum(float(count) for code, count in codes if 200 <= int(code) < 400)
    elif success is not None and result.requests is not None:
        result.failed = round(result.requests * (1 - success / 100))
    return load_result.evidence(section, [result])


class _Vegeta(msgspec.Struct):
    latencies: dict[str, float]
    requests: float | None = None
    rate: float | None = None
    duration: float | None = None
    success: float | None = None
    status_codes: dict[str, float] | None = None


def read_vegeta_json(section: Section) -> Evidence:
    """`vegeta report -type=json`; times are nanoseconds. Raises ValueError."""
    found = msgspec.json.decode(section.text, type=_Vegeta)
    result = LoadResult(requests=found.requests, request_rate=found.rate)
    result.seconds = None if found.duration is None else found.duration / 1e9
    if found.requests is not None and found.success is not None:
        result.failed = round(found.requests * (1 - min(1.0, max(0.0, found.success))))
    for name, value in found.latencies.items():
        if name not in ("total", "min") and value >= 0:
            result.timing().put(name, value / 1e9)
    return load_result.evidence(section, [result])


TEXT = TextFormat(
    name="vegeta",
    title="the report of vegeta",
    begins=re.compile(r"^\s*Requests\s+\[total, rate"),
    confirms=re.compile(r"^\s*Latencies\s+\[", re.MULTILINE),
    read=read_vegeta,
    provides=load_result.SIGNALS,
)
JSON = TextFormat(
    name="vegeta-json",
    title="the JSON report of vegeta",
    begins=re.compile(r'\A\s*\{\s*"latencies"\s*:\s*\{\s*"total"\s*:'),
    read=read_vegeta_json,
    provides=load_result.SIGNALS,
    whole=True,
)
