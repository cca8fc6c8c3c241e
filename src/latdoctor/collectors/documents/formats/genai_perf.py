"""Results of NVIDIA GenAI-Perf and AIPerf: the table on the screen, the CSV and the JSON of `profile_export`.

Their inter-token latency is an average over each answer: time per output token, in the words of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.csv_rows import rows
from latdoctor.collectors.documents.load_result import LATENCY, LoadResult
from latdoctor.collectors.documents.quantity_text import UNIT_SECONDS, number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_TIMES = {
    "request latency": LATENCY,
    "time to first token": "ttft",
    "inter token latency": "tpot",
    "inter chunk latency": "itl",
}
_VALUES = {
    "output token throughput": "output.token_rate",
    "output sequence length": "output.length.mean",
    "input sequence length": "input.length.mean",
}
_NAME = re.compile(r"(.+?)(?: \(([^()]*)\))?")
_CELLS = re.compile(r"[│┃|]")


def read(section: Section) -> Evidence:
    """The evidence of the table. Raises ValueError where it has no number."""
    rows = [[cell.strip() for cell in _CELLS.split(line)[1:-1]] for line in section.text.splitlines()]
    result = _result(_tables([row for row in rows if len(row) > 1]))
    for name, value in re.findall(r"^(\w[\w ]+ throughput \([^()]*\)): +(\S+)", section.text, re.MULTILINE):
        _put(result, name, {"avg": value})
    return load_result.evidence(section, [result])


def read_csv(section: Section) -> Evidence:
    """The evidence of the CSV, which has a table of statistics and one of single values. Raises ValueError."""
    return load_result.evidence(section, [_result(_tables(rows(section.text.removeprefix("\ufeff"))))])


def _tables(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row with its statistics by the heading above it."""
    heading: list[str] = []
    for row in rows:
        if row and row[0].strip().lower() in ("metric", "statistic"):
            heading = [cell.strip().lower() for cell in row[1:]]
        elif row and heading:
            yield row[0], dict(zip(heading, row[1:], strict=False))


def _result(rows: Iterator[tuple[str, dict[str, str]]]) -> LoadResult:
    result = LoadResult()
    for name, cells in rows:
        _put(result, name, cells)
    return result


def _put(result: LoadResult, title: str, cells: Mapping[str, str]) -> None:
    found = _NAME.fullmatch(title.strip())
    if found is None:
        return
    numbers = {statistic: number(text) for statistic, text in cells.items()}
    _metric(result, found[1].strip().lower().replace("-", " "), found[2] or "", numbers)


def _metric(result: LoadResult, name: str, unit: str, found: Mapping[str, float | None]) -> None:
    """One metric by its name in words; `found` are its statistics, `value` or `avg` where there is only one."""
    single = found.get("avg", found.get("value"))
    if name in _TIMES:
        factor = UNIT_SECONDS.get(unit.lower())
        for statistic, value in found.items():
            if factor is not None and value is not None and statistic not in ("std", "min", "sum"):
                result.timing(_TIMES[name]).put(statistic, value * factor)
    elif single is None:
        return
    elif name == "request throughput":
        result.request_rate = single
    elif name == "request count":
        result.requests = single + (result.failed or 0.0)
    elif name == "error request count":
        result.failed = single
        result.requests = single + (result.requests or 0.0)
    elif name == "benchmark duration":
        result.seconds = single * UNIT_SECONDS.get(unit.lower(), 1.0)
    elif name in _VALUES:
        result.values[_VALUES[name]] = single


class _Statistics(msgspec.Struct):
    """A metric of the JSON; other statistics (std, min) are not read."""

    unit: str = ""
    avg: float | None = None
    max: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


def read_json(section: Section) -> Evidence:
    """The evidence of `profile_export_genai_perf.json` or `profile_export_aiperf.json`. Raises ValueError."""
    fields = msgspec.json.decode(section.text, type=dict[str, msgspec.Raw])
    for name in ("records", "metrics"):
        if "request_latency" not in fields and name in fields:
            fields = msgspec.json.decode(fields[name], type=dict[str, msgspec.Raw])
    result = LoadResult()
    for key, raw in fields.items():
        name = key.replace("_", " ")
        if name not in {*_TIMES, *_VALUES, "request throughput", "request count", "error request count",
                        "benchmark duration"}:  # fmt: skip
            continue
        try:
            one = msgspec.json.decode(raw, type=_Statistics)
        except msgspec.ValidationError:
            continue  # a field of that name that is no metric
        statistics = {"avg": one.avg, "max": one.max, "p50": one.p50, "p90": one.p90, "p95": one.p95, "p99": one.p99}
        _metric(result, name, one.unit, statistics)
    return load_result.evidence(section, [result])


TEXT = TextFormat(
    name="genai-perf",
    title="the table of GenAI-Perf or AIPerf",
    begins=re.compile(r"NVIDIA (?:GenAI-Perf|AIPerf) \||^\s*[┃|]\s*(?:Statistic|Metric)\s*[┃|]\s*avg\b"),
    confirms=re.compile(r"^\s*[┃│|]\s*(?:Statistic|Metric)\s*[┃│|]", re.MULTILINE),
    read=read,
    provides=load_result.SIGNALS,
    contains_times=True,
)
CSV = TextFormat(
    name="genai-perf-csv",
    title="the CSV of GenAI-Perf or AIPerf",
    begins=re.compile(r"^\ufeff?Metric,avg,min,max\b"),
    read=read_csv,
    provides=load_result.SIGNALS,
    contains_times=True,
)
JSON = TextFormat(
    name="genai-perf-json",
    title="the JSON of GenAI-Perf or AIPerf",
    begins=re.compile(
        r'\A\s*\{[\s\S]*?"(?:request_latency|time_to_first_token|request_throughput)"\s*:\s*\{[^{}]*"avg"\s*:'
    ),
    read=read_json,
    provides=load_result.SIGNALS,
    whole=True,
)
