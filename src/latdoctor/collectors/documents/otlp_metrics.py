"""Series of metrics out of OTLP exports, under the names that a Prometheus exporter would give them.

The collector's receiver of Prometheus pages keeps their names; of others dots become underscores, and unit and `_total`
are appended as OpenTelemetry specifies, beside the plain name. `service.name` and `service.instance.id` are the job and
the instance. Deltas are added up.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    SummaryDataPoint,
)

from latdoctor.collectors.documents.metric_history import MetricSeries

_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "By": "bytes"}
_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]")
_MAX_SERIES = 20_000

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    labels: _Labels
    time: float
    value: float
    added: bool  # a delta


@dataclass(slots=True)
class OtlpSeries:
    """The series of all exports, and how many metrics of a kind that is not read there were. Mutable while reading."""

    points: dict[tuple[str, _Labels], dict[float, float]] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)
    _sums: dict[tuple[str, _Labels], float] = field(default_factory=dict)  # of the deltas so far

    def add(self, data: MetricsData) -> None:
        for resource in data.resource_metrics:
            for one in _aligned(list(self._samples(resource))):
                key = (one.name, one.labels)
                if key not in self.points and len(self.points) >= _MAX_SERIES:
                    continue
                value = self._sums.get(key, 0.0) + one.value if one.added else one.value
                self._sums[key] = value
                self.points.setdefault(key, {})[one.time] = value

    def series(self) -> list[MetricSeries]:
        return [
            MetricSeries({"__name__": name, **dict(labels)}, sorted(points.items()))
            for (name, labels), points in self.points.items()
        ]

    def _samples(self, resource: ResourceMetrics) -> Iterator[_Sample]:
        target = _target(resource.resource.attributes)
        for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
            kind = metric.WhichOneof("data")
            if kind not in ("gauge", "sum", "histogram", "summary"):
                self.unread[kind or "nothing"] += 1
                continue
            yield from _of_metric(metric, str(kind), target)


def _aligned(samples: Sequence[_Sample]) -> Iterator[_Sample]:
    """The samples of one collection with one time, that of the last: a page is what was collected together."""
    finite = [one for one in samples if math.isfinite(one.value) and one.time > 0]
    count = Counter((one.name, one.labels) for one in finite)
    latest = max((one.time for one in finite), default=0.0)
    together = max(count.values(), default=0) == 1
    for one in sorted(finite, key=lambda sample: sample.time):
        yield _Sample(one.name, one.labels, latest if together else one.time, one.value, one.added)


def _target(attributes: Iterable[KeyValue]) -> dict[str, str]:
    found = {one.key: _text(one.value) for one in attributes}
    names = {"job": "service.name", "instance": "service.instance.id"}
    return {label: found[name] for label, name in names.items() if found.get(name)}


def _text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    return str(getattr(value, kind)) if kind in ("string_value", "int_value", "double_value", "bool_value") else ""


def _of_metric(metric: Metric, kind: str, target: Mapping[str, str]) -> Iterator[_Sample]:
    points: Sequence[_Point]
    temporality, counts = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE, False
    if kind == "gauge":
        points = metric.gauge.data_points
    elif kind == "sum":
        points, counts, temporality = (
            metric.sum.data_points,
            metric.sum.is_monotonic,
            metric.sum.aggregation_temporality,
        )
    elif kind == "histogram":
        points, temporality = metric.histogram.data_points, metric.histogram.aggregation_temporality
    else:
        points = metric.summary.data_points
    delta = temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    for name in _names(metric.name, metric.unit, counts=counts):
        for point in points:
            labels = {**{_NO_NAME.sub("_", one.key): _text(one.value) for one in point.attributes}, **target}
            for suffix, more, value in _values(point):
                whole = tuple(sorted({**labels, **more}.items()))
                yield _Sample(name + suffix, whole, round(point.time_unix_nano / 1e9, 3), value, delta)


_Point = NumberDataPoint | HistogramDataPoint | SummaryDataPoint
_Values = Iterator[tuple[str, dict[str, str], float]]  # suffix of the name, further labels, value


def _values(point: _Point) -> _Values:
    if isinstance(point, NumberDataPoint):
        yield "", {}, float(point.as_double if point.WhichOneof("value") == "as_double" else point.as_int)
        return
    if isinstance(point, HistogramDataPoint):
        below = 0
        bounds = [*(f"{bound:g}" for bound in point.explicit_bounds), "+Inf"]
        for bound, count in zip(bounds, point.bucket_counts, strict=False):
            below += count
            yield "_bucket", {"le": bound}, float(below)
    else:
        for one in point.quantile_values:
            yield "", {"quantile": f"{one.quantile:g}"}, one.value
    yield "_sum", {}, point.sum
    yield "_count", {}, float(point.count)


def _names(name: str, unit: str, *, counts: bool) -> list[str]:
    """The names that a Prometheus exporter may give the metric."""
    plain = _NO_NAME.sub("_", name)
    suffix = _UNITS.get(unit, "")
    names = [plain, f"{plain}_{suffix}"] if suffix and not plain.endswith(suffix) else [plain]
    return [*names, *(f"{one}_total" for one in names if counts and not one.endswith("_total"))]
