"""Results of ApacheBench (ab)."""

from __future__ import annotations

import re

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LoadResult
from latdoctor.collectors.documents.quantity_text import number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_AB = {
    "Complete requests": "requests",
    "Time taken for tests": "seconds",
    "Requests per second": "request_rate",
    "Failed requests": "failed",
    "Non-2xx responses": "refused",
}
_AB_TOTAL = re.compile(r"^\s*Total:\s+(\d+)\s+(\d+)\s+[\d.]+\s+(\d+)\s+(\d+)", re.MULTILINE)
_AB_PERCENT = re.compile(r"^\s*(\d{1,3})%\s+(\d+)", re.MULTILINE)


def read_ab(section: Section) -> Evidence:
    """ApacheBench; times are milliseconds. Raises ValueError where it has no number."""
    found: dict[str, float] = {}
    for line in section.text.splitlines():
        name, _, rest = line.strip().partition(":")
        value = number(rest.split()[0]) if rest.split() else None
        if name in _AB and value is not None:
            found.setdefault(_AB[name], value)
    result = LoadResult(
        requests=found.get("requests"), seconds=found.get("seconds"), request_rate=found.get("request_rate")
    )
    # Answers of another length count as failed there; of what a model generates, nearly all differ in length.
    lengths = re.search(r"Length: (\d+)", section.text)
    failed = found.get("failed", 0.0) - (float(lengths[1]) if lengths else 0.0) + found.get("refused", 0.0)
    if result.requests is not None:
        result.failed = min(result.requests, max(0.0, failed))
    timing = result.timing()
    if total := _AB_TOTAL.search(section.text):
        timing.put("mean", float(total[2]) / 1e3)
        timing.put("median", float(total[3]) / 1e3)
        timing.put("max", float(total[4]) / 1e3)
    for percent, value in _AB_PERCENT.findall(section.text):
        timing.put(f"{percent}%", float(value) / 1e3)
    return load_result.evidence(section, [result])


TEXT = TextFormat(
    name="ab",
    title="the result of ApacheBench",
    begins=re.compile(r"^\s*(?:This is ApacheBench|Concurrency Level:\s+\d)"),
    confirms=re.compile(r"^\s*Complete requests:\s+\d", re.MULTILINE),
    read=read_ab,
    provides=load_result.SIGNALS,
)
