"""Summaries of MLPerf LoadGen (`mlperf_log_summary.txt`)."""

from __future__ import annotations

import re

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LoadResult
from latdoctor.collectors.documents.quantity_text import number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_MLPERF = re.compile(r"^\s*(\d\d\.\d\d percentile|Mean|Max) latency \(ns\)\s*: (\d+)", re.MULTILINE)
_MLPERF_TOKENS = re.compile(
    r"^\s*(\d\d\.\d\d percentile|Mean) (?:latency to )?(first token|time to output token|time per output token)"
    r"(?: latency)? \(ns\)\s*: (\d+)",
    re.MULTILINE | re.IGNORECASE,
)
_MLPERF_RATE = re.compile(r"^\s*(?:Scheduled|Completed|QPS w/ loadgen|Samples per second).*?:\s*([\d.]+)", re.MULTILINE)


def read_mlperf(section: Section) -> Evidence:
    """The summary of MLPerf LoadGen; times are nanoseconds. Raises ValueError where it has no number."""
    result = LoadResult()
    for name, value in _MLPERF.findall(section.text):
        result.timing().put(name, float(value) / 1e9)
    for name, metric, value in _MLPERF_TOKENS.findall(section.text):
        result.timing("ttft" if "first" in metric.lower() else "tpot").put(name, float(value) / 1e9)
    if rate := _MLPERF_RATE.search(section.text):
        result.request_rate = number(rate[1])
    scenario = re.search(r"^\s*Scenario : (\S+)", section.text, re.MULTILINE)
    result.note = f"scenario {scenario[1]}" if scenario else ""
    return load_result.evidence(section, [result])


TEXT = TextFormat(
    name="mlperf-loadgen",
    title="the summary of MLPerf LoadGen",
    begins=re.compile(r"^\s*MLPerf Results Summary\s*$"),
    confirms=re.compile(r"^\s*Scenario : ", re.MULTILINE),
    read=read_mlperf,
    provides=load_result.SIGNALS,
)
