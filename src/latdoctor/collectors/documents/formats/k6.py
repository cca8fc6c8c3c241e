"""Results of Grafana k6: the summary at the end of a run, its JSON (`--summary-export`, handleSummary), `--out json`.

Latency is `http_req_duration` (or that of gRPC): from sending to the last byte, connecting left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LoadResult
from latdoctor.collectors.documents.quantity_text import number, seconds
from latdoctor.collectors.documents.samples import timing_of
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_METRIC = re.compile(r"^(?:\S+ +\| )?[ \t✓✗]*([\w.-]+?)\.{2,} ?: ?(.+)$")
_STATISTIC = re.compile(r"(avg|med|max|p\([\d.]+\))=(\S+)")
_DURATIONS = ("http_req_duration", "grpc_req_duration")
# Trends of scripts that measure a stream of tokens.
_CUSTOM = {"ttft": "ttft", "time_to_first_token": "ttft", "tpot": "tpot", "time_per_output_token": "tpot",
           "itl": "itl", "inter_token_latency": "itl"}  # fmt: skip
_MAX_POINTS = 2_000_000
NOTE = "connecting left out"


def read(section: Section) -> Evidence:
    """The evidence of a summary. Raises ValueError where it has no number."""
    result = LoadResult(note="")
    metrics = {found[1]: found[2] for line in section.text.splitlines() if (found := _METRIC.match(line))}
    name = next((one for one in _DURATIONS if one in metrics), "iteration_duration")
    timing = result.timing()
    timing.note = NOTE if name in _DURATIONS else "whole iterations of the script"
    for statistic, value in _STATISTIC.findall(metrics.get(name, "")):
        timing.put(statistic, seconds(value))
    for metric, text in metrics.items():
        if signal := _custom(metric):
            for statistic, value in _STATISTIC.findall(text):
                result.timing(signal).put(statistic, seconds(value))
    if counted := re.match(r"(\d+)\s+([\d.]+)/s", metrics.get("http_reqs", metrics.get("iterations", ""))):
        result.requests, result.request_rate = float(counted[1]), number(counted[2])
    failed = metrics.get("http_req_failed", "")
    if marked := re.search(r"✓ (\d+)\s+✗ (\d+)|(\d+) out of (\d+)", failed):
        result.failed = float(marked[1] or marked[3])
        result.requests = float(marked[4]) if marked[4] else float(marked[1]) + float(marked[2])
    return load_result.evidence(section, [result])


def _custom(metric: str) -> str:
    name = re.sub(r"^(?:llm|gen_ai|vllm)_|_(?:ms|s|seconds)$", "", metric.lower())
    return _CUSTOM.get(name, "")


class _Metric(msgspec.Struct):
    """A metric of either JSON: `values` of handleSummary; the other fields are those of `--summary-export`."""

    contains: str = "time"
    values: dict[str, float | str | bool] | None = None
    avg: float | None = None
    max: float | None = None
    med: float | None = None
    p90: float | None = msgspec.field(default=None, name="p(90)")
    p95: float | None = msgspec.field(default=None, name="p(95)")
    p99: float | None = msgspec.field(default=None, name="p(99)")
    p999: float | None = msgspec.field(default=None, name="p(99.9)")
    count: float | None = None
    rate: float | None = None
    passes: float | None = None
    fails: float | None = None

    def statistics(self) -> Mapping[str, float]:
        if self.values is not None:
            return {name: float(value) for name, value in self.values.items() if not isinstance(value, str)}
        found = {"avg": self.avg, "max": self.max, "med": self.med, "p(90)": self.p90, "p(95)": self.p95,
                 "p(99)": self.p99, "p(99.9)": self.p999, "count": self.count, "rate": self.rate,
                 "passes": self.passes, "fails": self.fails}  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}


class _Summary(msgspec.Struct):
    metrics: dict[str, _Metric]


def read_json(section: Section) -> Evidence:
    """The evidence of a summary; times are milliseconds. Raises ValueError."""
    metrics = msgspec.json.decode(section.text, type=_Summary).metrics
    result = LoadResult()
    for name, metric in metrics.items():
        signal = "client.latency" if name in _DURATIONS else _custom(name)
        if signal:
            timing = result.timing(signal)
            timing.note = NOTE if name in _DURATIONS else ""
            for statistic, value in metric.statistics().items():
                if statistic != "count":
                    timing.put(statistic, value / 1e3 if value >= 0 else None)
    counted = metrics["http_reqs"].statistics() if "http_reqs" in metrics else {}
    result.requests, result.request_rate = counted.get("count"), counted.get("rate")
    failed = metrics["http_req_failed"].statistics() if "http_req_failed" in metrics else {}
    if "passes" in failed:
        result.failed = failed["passes"]  # the rate of what failed passes where a request failed
    return load_result.evidence(section, [result])


class _PointData(msgspec.Struct, frozen=True):
    time: str = ""
    value: float | None = None


class _Point(msgspec.Struct):
    type: str = ""
    metric: str = ""
    data: _PointData = _PointData()


def read_lines(section: Section) -> Evidence:
    """The evidence of the single requests of `--out json`; a truncated last line is left out. Raises ValueError."""
    decoder = msgspec.json.Decoder(_Point)
    durations: list[float] = []
    failed = 0
    first = last = ""
    lines = section.text.split("\n")
    for place, line in enumerate(lines):
        if '"Point"' not in line or '"http_req_' not in line:
            continue
        try:
            point = decoder.decode(line)
        except msgspec.DecodeError:
            if place < len(lines) - 1:
                raise
            continue
        if point.data.value is None:
            continue
        if point.metric == "http_req_duration" and len(durations) < _MAX_POINTS:
            durations.append(point.data.value / 1e3)
            first, last = first or point.data.time, point.data.time
        elif point.metric == "http_req_failed":
            failed += point.data.value > 0
    result = LoadResult(requests=float(len(durations)), failed=float(failed))
    result.timings["client.latency"] = timing_of(durations, NOTE)
    start, end = _time(first), _time(last)
    if start is not None and end is not None and end > start:
        result.started, result.seconds = start, end - start
    return load_result.evidence(section, [result])


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
    except ValueError:
        return None


TEXT = TextFormat(
    name="k6",
    title="the summary of k6",
    begins=re.compile(
        r"^(?:\S+ +\| )?[ \t✓✗#]*(?:█ TOTAL RESULTS"
        r"|(?:checks|data_received|http_req_blocked|http_req_duration)\.{3,} ?:)"
    ),
    confirms=re.compile(r"(?:http_req_duration|grpc_req_duration|iteration_duration)\.+ ?: ?avg="),
    read=read,
    provides=load_result.SIGNALS,
)
JSON = TextFormat(
    name="k6-json",
    title="the summary of k6 as JSON",
    begins=re.compile(
        r'\A\s*\{(?=[\s\S]*?"metrics"\s*:\s*\{)(?=[\s\S]*?"(?:http_req_\w+|grpc_req_duration|iteration_duration)"\s*:)'
    ),
    read=read_json,
    provides=load_result.SIGNALS,
    whole=True,
)
LINES = TextFormat(
    name="k6-points",
    title="the points of k6 --out json",
    begins=re.compile(r'\A\s*\{(?=[^\n]*"type"\s*:\s*"(?:Metric|Point)")(?=[^\n]*"metric"\s*:)'),
    read=read_lines,
    provides=load_result.SIGNALS,
    whole=True,
)
