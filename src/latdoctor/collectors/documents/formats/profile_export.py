"""Single requests that NVIDIA's load generators export: AIPerf's `profile_export.jsonl`, perf_analyzer's JSON.

The JSON of perf_analyzer (and GenAI-Perf's `profile_export.json`) has an experiment for each level of load.
"""

from __future__ import annotations

import re

import msgspec

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LATENCY, LoadResult
from latdoctor.collectors.documents.quantity_text import UNIT_SECONDS
from latdoctor.collectors.documents.samples import timing_of
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_TIMES = {"request_latency": LATENCY, "time_to_first_token": "ttft", "inter_token_latency": "tpot"}
_NS = 1e-9


class _Metric(msgspec.Struct):
    value: float | list[float] | None = None
    unit: str = ""


class _Metadata(msgspec.Struct):
    request_start_ns: int | None = None
    request_end_ns: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class _Record(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Metric] = {}
    error: msgspec.Raw = msgspec.Raw()


def read_lines(section: Section) -> Evidence:
    """A request on each line; the warm-up and what was cancelled at the end are left out. Raises ValueError."""
    decoder = msgspec.json.Decoder(_Record)
    times: dict[str, list[float]] = {signal: [] for signal in _TIMES.values()}
    failed, starts, ends = 0, [], []
    lines = [line for line in section.text.split("\n") if line.strip()]
    for place, line in enumerate(lines, 1):
        try:
            record = decoder.decode(line)
        except msgspec.DecodeError:
            if place < len(lines):
                raise
            continue  # still being written
        if record.metadata.benchmark_phase != "profiling" or record.metadata.was_cancelled:
            continue
        if record.metadata.request_start_ns and record.metadata.request_end_ns:
            starts.append(record.metadata.request_start_ns * _NS)
            ends.append(record.metadata.request_end_ns * _NS)
        if record.error and bytes(record.error) != b"null":
            failed += 1
            continue
        for name, signal in _TIMES.items():
            metric = record.metrics.get(name)
            factor = UNIT_SECONDS.get(metric.unit.lower()) if metric else None
            if metric and factor is not None and isinstance(metric.value, float):
                times[signal].append(metric.value * factor)
    result = LoadResult(requests=float(len(times[LATENCY]) + failed), failed=float(failed))
    result.timings = {signal: timing_of(values) for signal, values in times.items() if values}
    if starts:
        result.started, result.seconds = min(starts), max(ends) - min(starts)
    return load_result.evidence(section, [result])


class _ExportedRequest(msgspec.Struct):
    timestamp: int
    response_timestamps: list[int] = []
    success: bool = True


class _Experiment(msgspec.Struct):
    mode: str = ""
    value: float = 0.0


class _Level(msgspec.Struct):
    requests: list[_ExportedRequest] = []
    experiment: _Experiment = msgspec.field(default_factory=_Experiment)


class _Export(msgspec.Struct):
    experiments: list[_Level]


def read(section: Section) -> Evidence:
    """The evidence of each level of load. Raises ValueError."""
    levels = msgspec.json.decode(section.text, type=_Export).experiments
    results = []
    for level in levels:
        answered = [one for one in level.requests if one.response_timestamps and one.success]
        result = LoadResult(requests=float(len(level.requests)), failed=float(len(level.requests) - len(answered)))
        result.label = f"{level.experiment.mode}={level.experiment.value:g}" if len(levels) > 1 else ""
        whole = [(max(one.response_timestamps) - one.timestamp) * _NS for one in answered]
        result.timings[LATENCY] = timing_of(whole)
        streamed = [one for one in answered if len(one.response_timestamps) > 1]
        if streamed:
            first = [(min(one.response_timestamps) - one.timestamp) * _NS for one in streamed]
            result.timings["ttft"] = timing_of(first)
        if answered:
            last = max(max(one.response_timestamps) for one in answered)
            result.seconds = (last - min(one.timestamp for one in answered)) * _NS
        results.append(result)
    return load_result.evidence(section, results)


LINES = TextFormat(
    name="aiperf-records",
    title="the records of AIPerf",
    begins=re.compile(r'\A\s*\{\s*"metadata"\s*:\s*\{[^{}]*"request_start_ns"\s*:'),
    read=read_lines,
    provides=load_result.SIGNALS,
    whole=True,
)
JSON = TextFormat(
    name="perf-analyzer-export",
    title="the profile that perf_analyzer exports",
    begins=re.compile(
        r'\A\s*\{(?=[\s\S]*?"experiments"\s*:\s*\[)(?=[\s\S]*?"(?:requests|response_timestamps)"\s*:\s*\[)'
    ),
    read=read,
    provides=load_result.SIGNALS,
    whole=True,
    entries=1,
)
