"""The result of a load test as evidence of a client: latency and its percentiles, throughput, errors.

A percentile that the tool does not report is unknown. Where P99 is not reported but a lower percentile or the largest
value is, it is a bound: P99 is at least P95, and at most the slowest request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from latdoctor.collectors.access_log.replica_stats import RATE_REQUESTS, RATE_SECONDS
from latdoctor.collectors.documents.text_format import Section
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Evidence, Labels, Origin, Reading, Subject, Window
from latdoctor.sanitize import clean, counted

LATENCY = "client.latency"
ENOUGH = {50.0: 3, 90.0: 10, 95.0: 20, 99.0: 100}  # observations for a percentile, as in detectors/quantiles.py
_SUFFIX = {50.0: ".p50", 95.0: ".p95", 99.0: ".p99"}
_TAIL = 90.0  # a percentile from here on is near enough to P99 to bound it from below
STAGE_SHARE = "stage.time_share"
NO_STAGE = "none"

SIGNALS = frozenset(
    {
        *(f"{LATENCY}{suffix}" for suffix in (".mean", ".p50", ".p95", ".p99", ".max")),
        *(f"{name}{suffix}" for name in ("ttft", "tpot", "itl") for suffix in (".mean", ".p99")),
        "ttft.p50",
        "client.requests",
        "client.request_rate",
        "client.offered_rate",
        "client.error_ratio",
        "client.in_flight",
        "input.length.mean",
        "output.length.mean",
        "input.token_rate",
        "output.token_rate",
    }
)


@dataclass(slots=True)
class Timing:
    """Statistics of one duration, seconds; percentiles by their number (99.9)."""

    mean: float | None = None
    maximum: float | None = None
    percentiles: dict[float, float] = field(default_factory=dict)
    count: float | None = None  # observations, where it differs from the number of requests
    note: str = ""

    @property
    def known(self) -> bool:
        return self.mean is not None or self.maximum is not None or bool(self.percentiles)

    def put(self, statistic: str, value: float | None) -> None:
        """Store one statistic by the name that tools give it; what is not known, or no duration, is ignored."""
        name = statistic.strip().lower().rstrip(":")
        if value is None or not 0 <= value < math.inf:
            return
        if name in ("mean", "avg", "average"):
            self.mean = value
        elif name in ("max", "maximum", "slowest"):
            self.maximum = value
        elif name in ("median", "med"):
            self.percentiles.setdefault(50.0, value)
        elif (percent := percentile_of(name)) is not None:
            self.percentiles[percent] = value


def percentile_of(name: str) -> float | None:
    """`p99`, `P99.9`, `p(95)`, `99%`, `99th`, `99.00 percentile` → the number; None for anything else."""
    text = name.strip().lower().removeprefix("p").strip("()")
    for ending in ("percentile", "%", "th"):
        text = text.removesuffix(ending).strip()
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= 100 else None


@dataclass(slots=True)
class LoadResult:
    """One run of a load test, or one level of it. Rates per second; `failed` of `requests`; None is unknown."""

    label: str = ""  # distinguishes the runs of one file: `concurrency=4`
    timings: dict[str, Timing] = field(default_factory=dict)  # by signal: client.latency, ttft, tpot, itl
    requests: float | None = None  # completed, the failed ones included
    failed: float | None = None
    seconds: float | None = None
    request_rate: float | None = None
    values: dict[str, float] = field(default_factory=dict)  # further signals
    started: float | None = None  # unix seconds UTC
    line: int = 0  # of the section
    place: str = ""
    note: str = ""

    def timing(self, signal: str = LATENCY) -> Timing:
        return self.timings.setdefault(signal, Timing())

    @property
    def known(self) -> bool:
        """Whether it says anything of latency, errors or throughput."""
        timed = any(one.known for one in self.timings.values())
        return timed or self.request_rate is not None or self.failed is not None or bool(self.values)


def file_name(section: Section) -> str:
    """The name of the file by which its subjects are called."""
    return section.artifact.rpartition("/")[2]


def subject_name(section: Section, kind: str, label: str = "") -> str:
    """`client/bench.json:concurrency=4`; a further part of a file has its line."""
    name = f"{kind}/{file_name(section)}"
    if label:
        return f"{name}:{clean(label, 80)}"
    return f"{name}:{section.first_line}" if section.further else name


def evidence(section: Section, results: Iterable[LoadResult]) -> Evidence:
    """The evidence of all results. Raises ValueError where none of them has a value."""
    known = [one for one in results if one.known]
    if not known:
        raise ValueError("it has no latency, rate or number of requests")
    parts = [_evidence(section, one) for one in known]
    return Evidence.merge(parts)


def _evidence(section: Section, result: LoadResult) -> Evidence:
    subject = subject_name(section, "client", result.label)
    origin = section.origin(result.line, result.place)
    started, length = result.started, result.seconds
    window = Window(started, None if started is None or length is None else started + length)
    readings = []
    for signal, value, note, bound in _values(result):
        if signal in catalogue() and 0 <= value < math.inf:
            noted = "; ".join(part for part in (note, result.note) if part)
            readings.append(Reading(signal, subject, value, origin, window, note=noted, bound=bound))
    return Evidence(subjects=(Subject(subject),), readings=tuple(readings))


_Value = tuple[str, float, str, str]  # signal, value, note, bound


def _values(result: LoadResult) -> Iterator[_Value]:
    for signal, timing in result.timings.items():
        count = timing.count if timing.count is not None else _answered(result)
        if count != 0:  # tools print zeros for the statistics of nothing
            yield from _timing(signal, timing, count)
    if LATENCY not in result.timings or not result.timings[LATENCY].known:
        first = result.timings.get("ttft", Timing()).percentiles
        tail = [percent for percent in first if _TAIL <= percent <= 99]
        if tail:
            yield f"{LATENCY}.p99", first[max(tail)], "no answer is whole before its first token", AT_LEAST
    if result.requests is not None:
        yield "client.requests", result.requests, "", ""
        if result.failed is not None and result.requests > 0:
            failed = min(max(0.0, result.failed), result.requests)
            yield "client.error_ratio", failed / result.requests, f"{failed:g} of {result.requests:g}", ""
    if (rate := _request_rate(result)) is not None:
        yield "client.request_rate", rate, "", ""
    for signal, value in result.values.items():
        yield signal, value, "", ""


def _request_rate(result: LoadResult) -> float | None:
    """The rate that the tool printed, else requests by time; None of a few requests in hardly any time."""
    count, seconds = result.requests, result.seconds
    if count is not None and count < RATE_REQUESTS and (seconds or 0.0) < RATE_SECONDS:
        return None
    if result.request_rate is not None:
        return result.request_rate
    return count / seconds if count is not None and seconds else None


def _answered(result: LoadResult) -> float | None:
    return None if result.requests is None else result.requests - (result.failed or 0.0)


def _timing(signal: str, timing: Timing, count: float | None) -> Iterator[_Value]:
    observed = "" if count is None else f"of {count:g} requests"
    noted = "; ".join(part for part in (observed, timing.note) if part)
    if timing.mean is not None:
        yield f"{signal}.mean", timing.mean, noted, ""
    if timing.maximum is not None:
        yield f"{signal}.max", timing.maximum, noted, ""
    for percent, suffix in _SUFFIX.items():
        if percent in timing.percentiles:
            few = count is not None and count < ENOUGH[percent]
            note = f"{noted}, fewer than the {ENOUGH[percent]} that P{percent:g} needs" if few else noted
            yield f"{signal}{suffix}", timing.percentiles[percent], note, ""
    if 99.0 not in timing.percentiles and (bound := _bound(timing)):
        value, what, which = bound
        yield f"{signal}.p99", value, f"P99 is not in the result; {what}", which


def _bound(timing: Timing) -> tuple[float, str, str] | None:
    """What its neighbours say of P99: the nearest percentile below it, else the nearest above, else the largest."""
    below = [percent for percent in timing.percentiles if _TAIL <= percent < 99]
    if below:
        return timing.percentiles[max(below)], f"this is P{max(below):g}", AT_LEAST
    above = [percent for percent in timing.percentiles if 99 < percent < 100]
    if above:
        return timing.percentiles[min(above)], f"this is P{min(above):g}", AT_MOST
    largest = timing.percentiles.get(100.0, timing.maximum)
    return None if largest is None else (largest, "this is the slowest request", AT_MOST)


def stages(
    subject: str, origin: Origin, total: float | None, times: Mapping[str, float], labels: Labels = ()
) -> Iterator[Reading]:
    """The share of each stage in the time of a request, and the rest that belongs to none; seconds."""
    whole = total if total is not None and total > 0 else sum(times.values())
    if whole <= 0:
        return
    rest = whole - sum(times.values())
    shares = {**times, NO_STAGE: rest} if rest > 0.005 * whole else dict(times)
    note = f"of {counted(len(times), 'stage')}"
    for name, value in shares.items():
        yield Reading(STAGE_SHARE, subject, value / whole, origin, labels=(*labels, ("stage", name)), note=note)
