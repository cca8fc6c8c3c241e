"""What a column of a dashboard export measures, by its name: `E2E latency P99`, `GPU utilization`, `Requests / s`.

The names are those of people, so only plain ones are taken; a latency without a statistic in its name is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_STATISTICS = (
    (re.compile(r"\bp\s?99\b(?!\.)|\b99(?:th)?\s?(?:%|percentile|pct)|\b0?\.99\b", re.I), ".p99"),
    (re.compile(r"\bp\s?95\b|\b95(?:th)?\s?(?:%|percentile|pct)|\b0?\.95\b", re.I), ".p95"),
    (re.compile(r"\bp\s?50\b|\bmedian\b|\b50(?:th)?\s?(?:%|percentile|pct)|\b0?\.5\b", re.I), ".p50"),
    (re.compile(r"\b(?:avg|average|mean)\b", re.I), ".mean"),
)
# A duration: its name, the statistics that the catalogue has of it.
_DURATIONS = (
    (re.compile(r"\bttft\b|time to (?:the )?first token", re.I), "ttft", (".mean", ".p50", ".p99")),
    (re.compile(r"\btpot\b|time per (?:output )?token", re.I), "tpot", (".mean", ".p99")),
    (re.compile(r"\bitl\b|inter[- ]?token", re.I), "itl", (".mean", ".p99")),
    (re.compile(r"queue (?:time|latency|duration)|time in queue|queue[_ ]wait", re.I), "queue.time",
     (".mean", ".p50", ".p99")),
    (re.compile(r"\be2e\b|end[- ]to[- ]end|latenc|response time|request (?:duration|time)|\bduration\b", re.I),
     "latency", (".mean", ".p50", ".p95", ".p99")),
)  # fmt: skip
# A statistic alone. Its values must be times by their own unit: then it is what a panel of latencies shows.
_BARE = re.compile(r"\s*(?:p ?(?:50|95|99)|median|(?:50|95|99)(?:th)?(?: ?%| percentile))\s*", re.I)
_FOREIGN = re.compile(r"\b(?:client|network|disk|db|database|redis|dns|ping|gc|scrape|iteration|step)\b", re.I)


@dataclass(frozen=True, slots=True)
class ColumnMeaning:
    """The signal of a column; `share`: percent or 0 to 1; `kind` of the subject; `duration`: a time. `factor` makes
    base units of values without a unit; None where the unit is not known."""

    signal: str
    kind: str = "server"
    share: bool = False
    duration: bool = False
    factor: float | None = None


_VALUES = (
    (re.compile(r"\bwaiting\b|queue (?:depth|size|length)|(?:queued|pending) requests", re.I),
     ColumnMeaning("queue.depth")),
    (re.compile(r"\brunning\b|active requests", re.I), ColumnMeaning("requests.running")),
    (re.compile(r"\bkv[- _]?cache\b|cache (?:usage|utili[sz]ation)|token usage", re.I),
     ColumnMeaning("kv.usage", share=True)),
    (re.compile(r"\bgpu\b[ \w]{0,12}\butil", re.I), ColumnMeaning("gpu.utilization", "gpu", share=True)),
    (re.compile(r"\bgpu\b.{0,6}\b(?:memory|hbm) temp", re.I), ColumnMeaning("gpu.memory_temperature", "gpu")),
    (re.compile(r"\bgpu\b[ \w]{0,12}\btemp", re.I), ColumnMeaning("gpu.temperature", "gpu")),
    (re.compile(r"\berror (?:rate|ratio|%|percent)|errors? ?\(?%|5xx (?:rate|ratio|%)", re.I),
     ColumnMeaning("error.ratio", share=True)),
    (re.compile(r"\b(?:generation|output|decode) (?:token )?throughput|output tokens? ?(?:/|per) ?s", re.I),
     ColumnMeaning("output.token_rate")),
    (re.compile(r"\b(?:qps|rps)\b|requests? ?(?:/|per) ?s(?:ec(?:ond)?)?\b|request (?:rate|throughput)", re.I),
     ColumnMeaning("completion.rate")),
)  # fmt: skip


def meaning_of(column: str) -> ColumnMeaning | None:
    """The meaning of a column; None where its name does not say it."""
    if _FOREIGN.search(column):
        return None
    for pattern, signal, known in _DURATIONS:
        if pattern.search(column):
            suffix = next((suffix for statistic, suffix in _STATISTICS if statistic.search(column)), "")
            return ColumnMeaning(signal + suffix, duration=True) if suffix in known else None
    if _BARE.fullmatch(column):
        suffix = next(suffix for statistic, suffix in _STATISTICS if statistic.search(column))
        return ColumnMeaning(f"latency{suffix}", duration=True)
    return next((meaning for pattern, meaning in _VALUES if pattern.search(column)), None)
