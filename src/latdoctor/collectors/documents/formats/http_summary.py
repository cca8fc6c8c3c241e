"""Results of hey, oha and ghz, which print one kind of summary, and the JSON of oha."""

from __future__ import annotations

import re

import msgspec

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LoadResult
from latdoctor.collectors.documents.quantity_text import number, seconds
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_SUMMARY = re.compile(
    r"^\s*(Count|Success rate|Total|Slowest|Average|Requests/sec):\s+(\S+)(?:\s+(\w+))?", re.MULTILINE
)
_WITHIN = re.compile(r"^\s*([\d.]+) ?%+ in ([\d.]+) ?(\w+)", re.MULTILINE)
_STATUS = re.compile(r"^\s*\[(\w+)\]\s+(\d+) responses", re.MULTILINE)
_ERROR = re.compile(r"^\s*\[(\d+)\]\s+(?!\d+ responses)\S", re.MULTILINE)
_DEADLINE = "aborted due to deadline"  # what was under way when the time of the run was up


def read_summary(section: Section) -> Evidence:
    """hey, oha and ghz. Raises ValueError where it has no number."""
    result = LoadResult()
    pairs = {name: (value, unit) for name, value, unit in _SUMMARY.findall(section.text)}
    timing = result.timing()
    for name in ("Average", "Slowest"):
        if name in pairs:
            timing.put(name, seconds(pairs[name][0], pairs[name][1]))
    for percent, value, unit in _WITHIN.findall(section.text):
        timing.put(f"{percent}%", seconds(value, unit))
    if "Total" in pairs:
        result.seconds = seconds(*pairs["Total"])
    if "Requests/sec" in pairs:
        result.request_rate = number(pairs["Requests/sec"][0])
    statuses = {code: float(count) for code, count in _STATUS.findall(section.text)}
    errors = sum(
        float(found[1])
        for found in _ERROR.finditer(section.text, _after(section.text, "Error distribution"))
        if _DEADLINE not in section.text[found.start() : found.start() + 200].split("\n")[0]
    )
    if statuses or errors:
        good = sum(count for code, count in statuses.items() if _good(code))
        result.requests = sum(statuses.values()) + errors
        result.failed = result.requests - good
        if sum(statuses.values()) > good:
            timing.note = "refused requests included"
    elif "Count" in pairs:
        result.requests = number(pairs["Count"][0])
    return load_result.evidence(section, [result])


def _after(text: str, heading: str) -> int:
    place = text.find(heading)
    return len(text) if place < 0 else place


def _good(code: str) -> bool:
    return code == "OK" or (code.isdigit() and 100 <= int(code) < 400)


class _OhaSummary(msgspec.Struct, rename="camel"):
    total: float | None = None
    slowest: float | None = None
    average: float | None = None
    requests_per_sec: float | None = None


class _Oha(msgspec.Struct, rename="camel"):
    summary: _OhaSummary
    latency_percentiles: dict[str, float | None] = {}
    status_code_distribution: dict[str, float] = {}
    error_distribution: dict[str, float] = {}


def read_oha(section: Section) -> Evidence:
    """`oha --output-format json`; times are seconds. Raises ValueError."""
    found = msgspec.json.decode(section.text, type=_Oha)
    errors = sum(count for name, count in found.error_distribution.items() if name != _DEADLINE)
    codes = found.status_code_distribution
    result = LoadResult(
        requests=sum(codes.values()) + errors,
        failed=sum(count for code, count in codes.items() if not _good(code)) + errors,
        seconds=found.summary.total,
        request_rate=found.summary.requests_per_sec,
    )
    result.timing().put("mean", found.summary.average)
    result.timing().put("max", found.summary.slowest)
    for name, value in found.latency_percentiles.items():
        result.timing().put(name, value)
    return load_result.evidence(section, [result])


TEXT = TextFormat(
    name="http-summary",
    title="the result of hey, oha or ghz",
    begins=re.compile(r"^\s*Summary:\s*$"),
    confirms=re.compile(r"^\s*Slowest:\s+[\d.]+", re.MULTILINE),
    read=read_summary,
    provides=load_result.SIGNALS,
)
OHA_JSON = TextFormat(
    name="oha-json",
    title="the JSON of oha",
    begins=re.compile(r'\A\s*\{(?=[\s\S]*?"summary"\s*:\s*\{)(?=[\s\S]*?"latencyPercentiles"\s*:)'),
    read=read_oha,
    provides=load_result.SIGNALS,
    whole=True,
)
