"""Query results of a Prometheus server → synthetic metrics pages of each target, as if scraped over the window.

On the first page of the window a counter has its last value minus its growth as computed by the server, on the last
page its last value; gauges are on every page. The rules of the dialects then evaluate them like any other page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.collectors.promql.client import QuerySeries
from latdoctor.collectors.promql.query_plan import GROWTH, LAST, LEVEL, STEPS, PrometheusTarget, QueryPlan
from latdoctor.dialects.metrics_page_model import MetricSample, MetricsPage, ScrapedPage
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
    """Collects results by target. `covers` is the time since which each target was scraped, if not the whole window."""

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
        """The pages of each target in order; empty pages are dropped except the first and the last."""
        growths = _cumulative(self._grown)
        for (target, name, labels), (last, whole) in self._last.items():
            gathered = self._targets.setdefault(target, _TargetPages())
            # The growth of a single sample within the window is unknown; it is not a new counter.
            grown = growths.get((target, name, labels), math.nan)
            gathered.add(_FIRST, name, MetricSample(labels, last - grown))
            gathered.add(_LAST, name, MetricSample(labels, last, whole))
        for target, name, labels in self._grown.keys() - self._last.keys():
            self._targets.setdefault(target, _TargetPages()).add(_FIRST, name, MetricSample(labels, 0.0))
        return {target: self._in_order(target, gathered) for target, gathered in self._targets.items()}

    def _in_order(self, target: PrometheusTarget, gathered: _TargetPages) -> list[ScrapedPage]:
        """A target younger than the window starts with its first sample; its gauges are then on its first page."""
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
    """A sample's labels as exported or relabelled, without those of the target."""
    return tuple(sorted((name, value) for name, value in labels.items() if name not in _OWN))


def _page(samples: Mapping[str, Sequence[MetricSample]]) -> MetricsPage:
    families = {name.removesuffix("_bucket"): "histogram" for name in samples if name.endswith("_bucket")}
    return MetricsPage({name: tuple(found) for name, found in samples.items()}, families)


def _cumulative(grown: Mapping[_Key, float]) -> dict[_Key, float]:
    """The growths, with each bucket at least that of the bucket below.

    `increase` extrapolates each series to the window's edges separately, so that a cumulative count may fall slightly
    below the one before it; `histogram_quantile` of Prometheus corrects this the same way.
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
        return math.inf  # the dialect's rule reports it
    return math.inf if math.isnan(bound) else bound
