"""The report of `trtllm-bench` of TensorRT-LLM: throughput and latencies in milliseconds."""

from __future__ import annotations

import re

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LATENCY, LoadResult
from latdoctor.collectors.documents.quantity_text import number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_NAMES = {"latency": LATENCY, "request latency": LATENCY, "ttft": "ttft", "tpot": "tpot"}
_STATISTIC = re.compile(r"^\s*\[(\w[\w ]*)\]\s+(P\d{1,2}|MAXIMUM|AVERAGE)\s*: *([\d.]+)", re.MULTILINE)
_PAIR = re.compile(r"^\s*([A-Z][\w .\[\]/]+?) \(([^()]*)\): +([\d.eE+]+)\s*$", re.MULTILINE)
_COUNT = re.compile(
    r"^\s*(?:Number of (?:Requests|Sequences)|Total Requests|Num Requests):\s+(\d+)", re.MULTILINE | re.IGNORECASE
)
_MEANS = {"Average request latency": LATENCY, "Average time-to-first-token [TTFT]": "ttft",
          "Average time-per-output-token [TPOT]": "tpot"}  # fmt: skip


def read(section: Section) -> Evidence:
    """The evidence of the report. Raises ValueError where it has no number."""
    result = LoadResult()
    for name, statistic, value in _STATISTIC.findall(section.text):
        signal = _NAMES.get(name.lower())
        parsed = number(value)
        if signal and parsed is not None:
            result.timing(signal).put(statistic, parsed / 1e3)
    for name, unit, value in _PAIR.findall(section.text):
        parsed = number(value)
        if parsed is None:
            continue
        if name in _MEANS and unit == "ms":
            result.timing(_MEANS[name]).put("mean", parsed / 1e3)
        elif name == "Request Throughput":
            result.request_rate = parsed
        elif name == "Total Output Throughput":
            result.values["output.token_rate"] = parsed
    if count := _COUNT.search(section.text):
        result.requests = float(count[1])
    return load_result.evidence(section, [result])


FORMAT = TextFormat(
    name="trtllm-bench",
    title="the report of trtllm-bench",
    begins=re.compile(r"^\s*=+ ?(?:PERFORMANCE OVERVIEW|ENGINE DETAILS|PYTORCH BACKEND|REQUEST DETAILS)\s*$"),
    confirms=re.compile(r"^\s*Request Throughput \(req/sec\):", re.MULTILINE),
    read=read,
    provides=load_result.SIGNALS,
)
