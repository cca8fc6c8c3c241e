"""Results of wrk and wrk2; with `--latency` they list percentiles, wrk2 also the spectrum of HdrHistogram."""

from __future__ import annotations

import re

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LoadResult
from latdoctor.collectors.documents.quantity_text import number, seconds
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_WRK_LATENCY = re.compile(r"^\s*Latency\s+(\S+)\s+(\S+)\s+(\S+)\s+\S+%", re.MULTILINE)
_WRK_PERCENT = re.compile(r"^\s*(\d{1,3}(?:\.\d+)?)%\s+([\d.]+(?:us|ms|s|m|h))\s*$", re.MULTILINE)
_WRK_SPECTRUM = re.compile(r"^\s*([\d.]+)\s+(0\.\d+)\s+\d+\s+[\d.]+\s*$", re.MULTILINE)
_WRK_TOTAL = re.compile(r"^\s*(\d+) requests in ([\d.]+\w+)", re.MULTILINE)
_WRK_SOCKETS = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")
_WRK_MEAN = re.compile(r"#\[(Mean|Max) +=\s+([\d.]+),")


def read_wrk(section: Section) -> Evidence:
    """wrk and wrk2; the detailed spectrum of HdrHistogram is in milliseconds. Raises ValueError."""
    text = section.text
    result = LoadResult()
    timing = result.timing()
    if found := _WRK_LATENCY.search(text):
        timing.put("mean", seconds(found[1]))
        timing.put("max", seconds(found[3]))
    for percent, value in _WRK_PERCENT.findall(text[: max(0, text.find("----------")) or None]):
        timing.put(f"{percent}%", seconds(value))
    for value, share in _WRK_SPECTRUM.findall(text):
        if abs(float(share) - 0.95) < 1e-9:
            timing.put("95%", float(value) / 1e3)
    for name, value in _WRK_MEAN.findall(text):
        timing.put(name, float(value) / 1e3)
    if total := _WRK_TOTAL.search(text):
        result.requests = float(total[1])
        result.seconds = seconds(total[2])
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        result.failed = float(refused[1]) if refused else 0.0
        timing.count = result.requests
        if sockets := _WRK_SOCKETS.search(text):
            *lost, slow = (float(count) for count in sockets.groups())
            result.requests, result.failed = result.requests + sum(lost), result.failed + sum(lost)
            # A request that exceeds wrk's time-out goes on, and is counted when it is done.
            timing.note = f"wrk's time-out was exceeded {slow:g} times" if slow else ""
    if rate := re.search(r"^\s*Requests/sec:\s+([\d.]+)", text, re.MULTILINE):
        result.request_rate = number(rate[1])
    return load_result.evidence(section, [result])


TEXT = TextFormat(
    name="wrk",
    title="the result of wrk",
    begins=re.compile(r"^\s*(?:Running [\d.]+\w+ test @ |Making \d+ requests to |Thread Stats\s+Avg\s+Stdev)"),
    confirms=re.compile(r"^\s*Latency\s+\S+\s+\S+\s+\S+\s+\S+%|Requests/sec:", re.MULTILINE),
    read=read_wrk,
    provides=load_result.SIGNALS,
)
