"""Series of Prometheus metrics over time, as an export has them, read by the dialects of the servers.

At each time the samples of a target are a metrics page. Every pair of neighbouring times gives a point of each signal's
history. The last minutes are judged like a scraped window, or only those since the last change for the worse; of a
gauge the current level counts. Only the series that were exported are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec import structs

from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.level_changes import lasting_since, level_changes
from latdoctor.collectors.promql.query_plan import PrometheusTarget, target_names
from latdoctor.collectors.promql.synthetic_pages import own_labels
from latdoctor.detectors.quantiles import quantiles
from latdoctor.dialects.current_level import of_now
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import MetricSample, MetricsPage, ScrapedPage
from latdoctor.dialects.model import Dialect, RuleKind
from latdoctor.dialects.to_evidence import read_pages, recognise_dialects
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Series, Subject, is_unknown
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean, counted

JUDGED = 300.0  # seconds at the end of the history, as for --prometheus
_FEWEST = 4  # times that are judged at least
_MAX_STEPS = 120  # points of a history
_MAX_TARGETS = 32
_MIN_POINTS = 4
_MOMENTARY = (RuleKind.GAUGE, RuleKind.SUMMARY)  # values of one time; others are of the time between two
_NEXT_STEP = "latdoctor diagnose --prometheus URL queries all that matters; or export more series of the server"


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A metric with its labels, `__name__` among them, and its values by unix seconds."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def name(self) -> str:
        return self.labels.get("__name__", "")


def evidence(found: Sequence[MetricSeries], artifact: str, otherwise: str) -> Evidence:
    """`otherwise` names a server whose series have no `instance`. Raises ValueError where no series has a dialect."""
    by_target: dict[PrometheusTarget, list[MetricSeries]] = {}
    for series in found:
        if series.name and series.points:
            by_target.setdefault(PrometheusTarget.of(series.labels), []).append(series)
    names = target_names(by_target, otherwise)
    parts = [
        part
        for target, series in list(by_target.items())[:_MAX_TARGETS]
        if (part := _target(series, artifact, f"server/{names[target]}"))
    ]
    parts.extend(_gaps(found, by_target, parts, artifact))
    if not any(part.readings or part.series for part in parts):
        listed = ", ".join(dict.fromkeys(clean(one.name, 60) for one in found if one.name)) or "none has a name"
        raise ValueError(f"no series belongs to a known server or exporter ({listed[:300]})")
    return Evidence.merge(parts)


def _gaps(
    found: Sequence[MetricSeries],
    by_target: Mapping[PrometheusTarget, Sequence[MetricSeries]],
    parts: Sequence[Evidence],
    artifact: str,
) -> Iterator[Evidence]:
    unnamed = sum(not one.name for one in found)
    if unnamed:
        reason = f"{counted(unnamed, 'result')} of an expression without a metric name: what it measures is unknown"
        step = "query the metric itself, or name the result with label_replace"
        yield Evidence(gaps=(Gap(NAME, reason, next_step=step, origin=Origin(artifact), code=GapCode.AMBIGUOUS),))
    more = len(by_target) - len(parts)
    if more > 0:
        reason = f"{counted(more, 'target')} of no known server or exporter, or beyond the first {_MAX_TARGETS}"
        yield Evidence(gaps=(Gap(NAME, reason, origin=Origin(artifact), code=GapCode.UNSUPPORTED),))


def _target(series: Sequence[MetricSeries], artifact: str, server: str) -> Evidence | None:
    pages = _pages(series, artifact)
    parts: list[Evidence] = []
    dialects = _dialects([page.page for page in pages])
    for dialect in dialects:
        plain = structs.replace(of_now(dialect), cached=False)  # the samples depend on no exporter's cache
        history = tuple(_history(plain, pages, server, artifact))
        judged = read_pages(plain, _judged(pages, lasting_since(history)), server, NAME)
        parts.append(structs.replace(judged, gaps=tuple(one for one in judged.gaps if one.code != GapCode.ABSENT)))
        parts.append(Evidence(series=history, events=tuple(level_changes(history))))
        if len(pages) > 1:
            parts[-2] = structs.replace(parts[-2], series=())  # the history covers more
    if not dialects:
        return None
    known = {one.signal for part in parts for one in part.readings}
    known |= {one.signal for part in parts for one in part.distributions}
    lacking = sorted(frozenset[str]().union(*(dialect.signals for dialect in dialects)) - known)
    reason = f"the export has {counted(len({one.name for one in series}), 'metric')} of {server.partition('/')[2]}"
    gap = Gap(NAME, reason, tuple(lacking), server, _NEXT_STEP, Origin(artifact), GapCode.ABSENT)
    return Evidence.merge([*parts, Evidence(subjects=(Subject(server),), gaps=(gap,))])


def _pages(series: Sequence[MetricSeries], artifact: str) -> list[ScrapedPage]:
    """A page for each time, thinned to the number of points that a history keeps; the last times are all kept."""
    times = sorted({time for one in series for time, _ in one.points})
    last = {time for time in times if time >= times[-1] - JUDGED} | set(times[-_FEWEST:])
    step = max(1, len(times) // _MAX_STEPS)
    kept = set(times[::-1][::step]) | (last if len(last) <= _MAX_STEPS else set(sorted(last)[:: len(last) // _FEWEST]))
    samples: dict[float, dict[str, list[MetricSample]]] = {time: {} for time in sorted(kept)}
    for one in series:
        labels = own_labels(one.labels)
        for time, value in one.points:
            if time in samples:
                sample = MetricSample(labels, value, value == int(value) if abs(value) < 1e15 else False)
                samples[time].setdefault(one.name, []).append(sample)
    return [ScrapedPage(_page(found), artifact, time) for time, found in samples.items()]


def _page(samples: Mapping[str, Sequence[MetricSample]]) -> MetricsPage:
    return MetricsPage({name: tuple(found) for name, found in samples.items()})


def _judged(pages: Sequence[ScrapedPage], worse: float | None) -> tuple[ScrapedPage, ...]:
    """The last minutes; of these what lies behind `worse`, the unix time since which a quantity is worse."""
    end = pages[-1].at or 0.0
    recent = [page for page in pages if (page.at or 0.0) >= end - JUDGED]
    recent = recent if len(recent) >= _FEWEST else list(pages[-_FEWEST:])
    since = [page for page in recent if worse is not None and (page.at or 0.0) >= worse]
    return tuple(since if len(since) >= _FEWEST else recent)


@cache
def _shared() -> frozenset[str]:
    """Sample names that several dialects use, such as those of the process: they identify none."""
    used = Counter(name for dialect in shipped() for name in _names(dialect))
    return frozenset(name for name, count in used.items() if count > 1)


@cache
def _names_by_id() -> Mapping[str, frozenset[str]]:
    return {dialect.id: _names(dialect) for dialect in shipped()}


def _names(dialect: Dialect) -> frozenset[str]:
    terms = [term for options in dialect.rules for rule in options for term in (*rule.terms, *rule.over, *rule.less)]
    terms += [bits.rule.terms[0] for bits in dialect.bits]
    return frozenset(option.name for term in terms for option in term.options)


def _dialects(pages: Sequence[MetricsPage]) -> tuple[Dialect, ...]:
    """Those that recognise the pages; else those with a metric that no other has: an export has only some of them."""
    found = recognise_dialects(shipped(), pages)
    if found:
        return found
    names = {name for page in pages for name in page.samples}
    names |= {name.removesuffix("_bucket") for name in names}
    return tuple(one for one in shipped() if (_names_by_id()[one.id] - _shared()) & names)


def _history(dialect: Dialect, pages: Sequence[ScrapedPage], server: str, artifact: str) -> Iterator[Series]:
    """The values of every signal at each time, or between it and the time before."""
    points: dict[tuple[str, str], dict[float, float]] = {}
    momentary = {options[0].signal for options in dialect.rules if options[0].kind in _MOMENTARY}
    for number, page in enumerate(pages):
        moment = read_pages(dialect, (page,), server, NAME).readings
        part = read_pages(dialect, (pages[number - 1], page), server, NAME) if number else Evidence()
        since = (*part.readings, *quantiles(part).readings)
        chosen = [one for one in moment if one.signal in momentary]
        chosen += [one for one in since if one.signal not in momentary]
        for one in chosen:
            if not one.labels and not one.bound and _is_number(one):
                points.setdefault((one.signal, one.subject), {})[page.at or 0.0] = float(one.value)
    for (signal, subject), values in points.items():
        if len(values) >= _MIN_POINTS:
            origin = Origin(artifact, f"{counted(len(values), 'point')} of the exported series")
            yield Series(signal, subject, tuple(values), tuple(values.values()), origin)


def _is_number(reading: Reading) -> bool:
    return not isinstance(reading.value, str) and not is_unknown(reading.value)
