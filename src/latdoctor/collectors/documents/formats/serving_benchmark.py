"""Results of vLLM's, SGLang's and related benchmarks of a serving engine: the text block, the result JSON, JSON lines.

All descend from vLLM's `benchmark_serving.py`: TTFT, TPOT, ITL and E2EL in milliseconds, statistics chosen by the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.load_result import LATENCY, LoadResult
from latdoctor.collectors.documents.quantity_text import number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_SIGNALS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": LATENCY, "e2e latency": LATENCY,
            "e2e_latency": LATENCY}  # fmt: skip
_STATISTIC = re.compile(
    r"^[ \t]*(Mean|Median|Max|P\d{1,2}(?:\.\d+)?) (TTFT|TPOT|ITL|E2EL|E2E Latency) ?\((ms|s)\):?[ \t]+(\S+)",
    re.MULTILINE | re.IGNORECASE,
)
_PAIR = re.compile(r"^[ \t]*([A-Z][A-Za-z #()/-]+?)(?: \(([^()]*)\))?:[ \t]+(\S[^\r\n]*?)[ \t]*$", re.MULTILINE)
_KEY = re.compile(r"(mean|median|max|p\d{1,2}(?:\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_END = re.compile(r"^={20,}[ \t]*$", re.MULTILINE)
_MAX_RUNS = 64  # lines of one file of JSON lines


def read(section: Section) -> Evidence:
    """The evidence of the block. Raises ValueError where it has no number."""
    _, _, rest = section.text.partition("\n")
    end = _END.search(rest)
    return load_result.evidence(section, [_block(rest[: end.start()] if end else rest)])


def _block(text: str) -> LoadResult:
    result = LoadResult()
    for statistic, name, unit, value in _STATISTIC.findall(text):
        parsed = number(value)
        factor = 1e-3 if unit == "ms" else 1.0
        result.timing(_SIGNALS[name.lower()]).put(statistic, None if parsed is None else parsed * factor)
    pairs = {name.strip().lower(): number(value) for name, _, value in _PAIR.findall(text)}
    _totals(
        result,
        {
            "completed": pairs.get("successful requests"),
            "failed": pairs.get("failed requests"),
            "duration": pairs.get("benchmark duration"),
            "request_throughput": pairs.get("request throughput"),
            "output_throughput": pairs.get("output token throughput"),
            "input_throughput": pairs.get("input token throughput"),
            "total_input_tokens": pairs.get("total input tokens"),
            "total_output_tokens": pairs.get("total generated tokens"),
            "concurrency": pairs.get("concurrency"),
            "request_rate": pairs.get("request rate configured", pairs.get("traffic request rate")),
        },
    )
    return result


def _totals(result: LoadResult, found: Mapping[str, float | None]) -> None:
    """Counts and rates, which the text and the JSON have under different names."""
    completed, failed, seconds = found.get("completed"), found.get("failed"), found.get("duration")
    if completed is not None:
        result.requests = completed + (failed or 0.0)
        result.failed = failed
        for name, signal in (("total_input_tokens", "input"), ("total_output_tokens", "output")):
            tokens = found.get(name)
            if completed > 0 and tokens is not None:
                result.values[f"{signal}.length.mean"] = tokens / completed
    result.seconds = seconds
    result.request_rate = found.get("request_throughput")
    inputs = found.get("total_input_tokens")
    rates = {
        "output.token_rate": found.get("output_throughput"),
        "input.token_rate": found.get("input_throughput") or (inputs / seconds if inputs and seconds else None),
        "client.in_flight": found.get("concurrency"),
        "client.offered_rate": found.get("request_rate"),
    }
    result.values.update({signal: value for signal, value in rates.items() if value is not None})


def read_json(section: Section) -> Evidence:
    """The evidence of a result file: one object, a list, or a line for each run. Raises ValueError."""
    found = list(_objects(section.text))
    results = [_result(fields) for fields in found]
    if len(results) > 1:
        for place, (fields, result) in enumerate(zip(found, results, strict=True), 1):
            result.label = _label(fields, place)
    return load_result.evidence(section, results)


Fields = Mapping[str, msgspec.Raw]


def _objects(text: str) -> Iterator[Fields]:
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    stripped = text.strip()
    if stripped.startswith("["):
        yield from (_inner(one) for one in msgspec.json.decode(stripped, type=list[dict[str, msgspec.Raw]])[:_MAX_RUNS])
        return
    try:
        yield _inner(decoder.decode(stripped))
        return
    except msgspec.DecodeError:
        lines = [line for line in stripped.split("\n") if line.strip()][:_MAX_RUNS]
        if len(lines) < 2:
            raise
    for line in lines:
        yield _inner(decoder.decode(line))


def _inner(fields: Fields) -> Fields:
    """The object with the numbers, which some wrappers nest."""
    for name in ("results", "metrics", "summary"):
        if name in fields and "request_throughput" not in fields:
            try:
                return msgspec.json.decode(fields[name], type=dict[str, msgspec.Raw])
            except msgspec.ValidationError:
                continue  # a list of something else
    return fields


def _result(fields: Fields) -> LoadResult:
    result = LoadResult()
    for key, raw in fields.items():
        found = _KEY.fullmatch(key)
        value = _float(raw) if found else None
        if found and value is not None:
            result.timing(_SIGNALS[found[2]]).put(found[1], value / 1e3)
    names = ("completed", "failed", "duration", "request_throughput", "output_throughput", "input_throughput",
             "total_input_tokens", "total_output_tokens", "concurrency", "request_rate")  # fmt: skip
    _totals(result, {name: _float(fields[name]) for name in names if name in fields})
    if not result.timing().known:
        _whole_answers(result, fields)
    return result


def _whole_answers(result: LoadResult, fields: Fields) -> None:
    """The latency of each answer from its first token and the steps after it, where a detailed file has both."""
    from latdoctor.collectors.documents.samples import timing_of

    if "ttfts" not in fields or "itls" not in fields:
        return
    try:
        first = msgspec.json.decode(fields["ttfts"], type=list[float])
        steps = msgspec.json.decode(fields["itls"], type=list[list[float]])
    except msgspec.DecodeError:
        return
    if len(first) == len(steps):
        whole = [begin + sum(rest) for begin, rest in zip(first, steps, strict=True) if begin > 0]
        result.timings[LATENCY] = timing_of(whole, "the first token and the steps after it, added up")


def _float(raw: msgspec.Raw) -> float | None:
    try:
        value = msgspec.json.decode(raw, type=float | str | None)
    except msgspec.DecodeError:
        return None
    value = number(value) if isinstance(value, str) else value
    return value if value is not None and 0 <= value < 1e15 else None


def _label(fields: Fields, place: int) -> str:
    """What distinguishes one run of several: the rate or concurrency that was asked for, and its place in the file."""
    for name in ("max_concurrency", "request_rate"):
        value = _float(fields[name]) if name in fields else None
        if value is not None:
            return f"{place} {name}={value:g}"
    return str(place)


TEXT = TextFormat(
    name="serving-benchmark",
    title="the result of a serving benchmark",
    begins=re.compile(r"^\s*=+ ?(?:Serving |Online )?(?:[A-Za-z]+ )?Benchmark Result(?: \([^)]*\))? ?=+"),
    confirms=re.compile(r"(?:TTFT|TPOT|ITL|E2EL|E2E Latency) ?\(m?s\)|[Rr]equest throughput"),
    read=read,
    provides=load_result.SIGNALS,
    contains_times=True,
)
JSON = TextFormat(
    name="serving-benchmark-json",
    title="the result file of a serving benchmark",
    begins=re.compile(
        r'\A\s*\[?\s*\{(?=[\s\S]*?"request_throughput"\s*:\s*(?:[\d.]|null))'
        r'(?=[\s\S]*?"(?:total_output_tokens|output_throughput|total_token_throughput)"\s*:)'
    ),
    read=read_json,
    provides=load_result.SIGNALS,
    whole=True,
)
