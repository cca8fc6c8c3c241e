"""What a server did at each load, from the history in Prometheus: for each replica a point of every signal each step.

A replica is a scraped target (labels job and instance). Of several models on one server the rates are added, and the
slowest latency counts. Rates and quantiles are those of the step before the point, so that no two share a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latdoctor.collectors.base import PrometheusServer
from latdoctor.collectors.promql import NAME
from latdoctor.collectors.promql.client import QueryResult
from latdoctor.collectors.promql.rate_history import expression_of, present_names, range_queries, run_all
from latdoctor.dialects import promql
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.model import Dialect
from latdoctor.errors import SourceError, UsageError
from latdoctor.evidence.model import Origin, Series
from latdoctor.gap_code import GapCode

ARRIVALS = ("arrival.rate", "completion.rate")  # the first that is known
_LATENCIES = ("latency.mean", "latency.p50", "latency.p95", "latency.p99")
_ASKED = (*ARRIVALS, "latency", "latency.mean", "requests.running", "queue.depth", "batch.size.mean", "error.rate")
_ADDED = frozenset({*ARRIVALS, "requests.running", "queue.depth", "error.rate"})
_CHOOSE = "name one: --select '{job=\"…\"}'"


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """The series of each replica (subject `instance`); `title`: of the kind of server."""

    title: str
    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()


def load_history(server: PrometheusServer, step: float, timeout: float) -> LoadHistory:
    """Points every `step` seconds from `server.since` to `server.until`. Raises SourceError, UsageError."""
    dialect, curves = _recognised(server, timeout)
    found: list[Series] = []
    warnings: list[str] = []
    for curve in curves:
        way = "sum" if curve.signal in _ADDED else "max"
        expression = f"{way} by (job, instance) ({expression_of(curve, server.select, step)})"
        answers = run_all(server, range_queries(expression, server, step), timeout)
        found += _series(curve.signal, answers)
        warnings += (text for one in answers for text in one.warnings)
    if not found:
        what = f"{dialect.title} has no samples in that time"
        raise SourceError(what, where=server.access.name, next_step=_CHOOSE, code=GapCode.EMPTY)
    return LoadHistory(dialect.title, tuple(found), tuple(dict.fromkeys(warnings)))


def _series(signal: str, answers: Sequence[QueryResult]) -> Iterator[Series]:
    points: dict[str, tuple[list[float], list[float]]] = {}
    for answer in answers:
        for line in answer.lines:
            times, values = points.setdefault(line.labels.get("instance", "server"), ([], []))
            times += line.times
            values += line.values
    for instance, (times, values) in points.items():
        yield Series(signal, f"replica/{instance}", tuple(times), tuple(values), Origin(NAME, signal))


def _recognised(server: PrometheusServer, timeout: float) -> tuple[Dialect, tuple[promql.SignalCurve, ...]]:
    """The one kind of server whose rate and latency are recorded, with its curves. Raises UsageError."""
    options = [one for one in shipped() if "latency" in one.signals and set(ARRIVALS) & set(one.signals)]
    present = present_names(server, promql.all_sample_names(options), timeout)
    found = {}
    for dialect in options:
        curves = {one.signal: one for one in promql.curve_queries(dialect, _ASKED, present)}
        if set(_LATENCIES) <= curves.keys() and set(ARRIVALS) & curves.keys():
            found[dialect.id] = (dialect, tuple(curves.values()))
    place = server.access.name
    if not found:
        reason = "no server that latdoctor knows has a rate and a latency histogram in the hour before the end"
        raise UsageError(reason, where=place, next_step="latdoctor preflight --prometheus URL lists what is recorded")
    if len(found) > 1:
        listed = [one.title for one, _ in found.values()]
        reason = f"{len(found)} kinds of servers are recorded; a limit is that of one replica of one kind"
        raise UsageError(reason, where=place, next_step=_CHOOSE, listed=listed)
    return next(iter(found.values()))
