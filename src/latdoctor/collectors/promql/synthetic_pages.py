"""Answers of a Prometheus server → metrics pages of each of its targets, as if they had been scraped over the window.

A counter stands on the first page of the window less what it grew by, as the server counted that, and on the last as it
is; a gauge stands on each. So the dialects' rules read them like any other page, and one code judges both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.collectors.promql.client import QuerySeries
from latdoctor.collectors.promql.query_plan import GROWTH, LAST, LEVEL, STEPS, PrometheusTarget, QueryPlan
from latdoctor.dialects.metrics_page import MetricSample, MetricsPage, ScrapedPage
from latdoctor.dialects.promql import SAMPLE
from latdoctor.evidence.model import Labels

_OWN = frozenset({"__name__", "job", "instance", SAMPLE})
_FIRST, _LAST = 0, STEPS


_Key = tuple[PrometheusTarget, str, Labels]


@dataclass
class _TargetPages:
    """The samples of one target, by page and name."""

    pages: dict[int, dict[str, list[MetricSample]]] = field(default_factory=dict)

    def add(self, page: int, name: str, sample: MetricSample) -> None:
        self.pages.setdefault(page, {}).setdefault(name, []).append(sample)


@dataclass(frozen=True)
class PageBuilder:
    """Gathers answers by target. `covers` tells since when each target was scraped, where it was not all along."""

    plan: QueryPlan
    artifact: str
    covers: Mapping[PrometheusTarget, float]
    _targets: dict[PrometheusTarget, _TargetPages] = field(default_factory=dict)
    _last: dict[_Key, tuple[float, bool]] = field(default_factory=dict)
    _grown: dict[_Key, float] = field(default_factory=dict)

    def take(self, role: str, lines: Sequence[QuerySeries]) -> None:
        for line in lines:
            name = line.labels.get(SAMPLE, "")
            if not name or not line.times:
                continue
            target = PrometheusTarget.of(line.labels)
            labels = own_labels(line.labels)
            if role == LAST:
                self._last[target, name, labels] = (line.values[-1], line.whole)
            elif role == GROWTH:
                self._grown[target, name, labels] = line.values[-1]
            elif role == LEVEL:
                self._level(target, name, labels, line)

    def _level(self, target: PrometheusTarget, name: str, labels: Labels, line: QuerySeries) -> None:
        gathered = self._targets.setdefault(target, _TargetPages())
        for time, value in zip(line.times, line.values, strict=True):
            page = round((time - self.plan.start) / self.plan.step)
            if _FIRST <= page <= _LAST:
                gathered.add(page, name, MetricSample(labels, value, line.whole and value == line.values[-1]))

    def scrapes(self) -> dict[PrometheusTarget, list[ScrapedPage]]:
        """The pages of each target in their order; none that has no sample, but for the first and the last."""
        growths = _cumulative(self._grown)
        for (target, name, labels), (last, whole) in self._last.items():
            gathered = self._targets.setdefault(target, _TargetPages())
            # Of a single sample within the window no growth is known, and it is no counter that was just born.
            grown = growths.get((target, name, labels), math.nan)
            gathered.add(_FIRST, name, MetricSample(labels, last - grown))
            gathered.add(_LAST, name, MetricSample(labels, last, whole))
        for target, name, labels in self._grown.keys() - self._last.keys():
            self._targets.setdefault(target, _TargetPages()).add(_FIRST, name, MetricSample(labels, 0.0))
        return {target: self._in_order(target, gathered) for target, gathered in self._targets.items()}

    def _in_order(self, target: PrometheusTarget, gathered: _TargetPages) -> list[ScrapedPage]:
        """A target younger than the window begins with its first sample; its gauges then stand on its first page."""
        first = max(self.plan.start, self.covers.get(target, -math.inf))
        times = {page: self.plan.start + page * self.plan.step for page in sorted({_LAST, *gathered.pages} - {_FIRST})}
        later = {page: at for page, at in times.items() if at > first}
        opening = dict(gathered.pages.get(_FIRST, {}))
        if first > self.plan.start and len(later) > 1:
            nearest = next(iter(later))
            del later[nearest]
            opening = {**gathered.pages.get(nearest, {}), **opening}
        pages = [(first, opening), *((at, gathered.pages.get(page, {})) for page, at in later.items())]
        return [ScrapedPage(_page(samples), self.artifact, at) for at, samples in pages]


def own_labels(labels: Mapping[str, str]) -> Labels:
    """A sample's labels as its exporter wrote them (or relabelling did), without those of the target."""
    return tuple(sorted((name, value) for name, value in labels.items() if name not in _OWN))


def _page(samples: Mapping[str, Sequence[MetricSample]]) -> MetricsPage:
    families = {name.removesuffix("_bucket"): "histogram" for name in samples if name.endswith("_bucket")}
    return MetricsPage({name: tuple(found) for name, found in samples.items()}, families)


def _cumulative(grown: Mapping[_Key, float]) -> dict[_Key, float]:
    """The growths, those of buckets as no less than the one of the bucket below.

    `increase` draws each out to the window's edges by itself, so that a cumulative count may come to lie a little below
    the one before it; `histogram_quantile` of Prometheus does the same.
    """
    found = dict(grown)
    families: dict[_Key, list[tuple[float, _Key]]] = {}
    for key in grown:
        target, name, labels = key
        bound = dict(labels).get("le", "")
        if name.endswith("_bucket") and bound:
            rest = tuple(pair for pair in labels if pair[0] != "le")
            families.setdefault((target, name, rest), []).append((_bound(bound), key))
    for members in families.values():
        below = 0.0
        for _, key in sorted(members):
            below = found[key] = max(found[key], below)
    return found


def _bound(text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        return math.inf  # the dialect's rule will tell of it
    return math.inf if math.isnan(bound) else bound
