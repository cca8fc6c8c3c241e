"""PromQL of each signal of a target, to paste into Prometheus: it gives the judged value at the end of the window."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

from latdoctor.collectors.promql.client import QuerySeries
from latdoctor.collectors.promql.query_plan import PrometheusTarget, QueryPlan
from latdoctor.collectors.promql.synthetic_pages import own_labels
from latdoctor.dialects import promql
from latdoctor.dialects.model import Dialect
from latdoctor.dialects.promql import SAMPLE
from latdoctor.evidence.model import Labels, SourceQuery

_UNITS = ((3600, "h"), (60, "m"), (1, "s"))
_RATE = re.compile(r"rate\(([\w:]+(?:\{[^}]*\})?)\[\$range\]\)")
# `rate` starts at the first sample: of a counter that appeared within the window it misses that first value.
_BORN_RATE = r"((\1 unless \1 offset $range) or increase(\1[$range])) / $seconds"

_Counter = tuple[PrometheusTarget, str, Labels]


def source_queries(
    plan: QueryPlan,
    dialect: Dialect,
    target: PrometheusTarget,
    present: frozenset[str],
    subject: str,
    window: float,
    born: Set[str] = frozenset(),
) -> Iterator[SourceQuery]:
    """One query for each signal that `dialect` computes from the samples `present` of `target`.

    `window`: the seconds for which the target was scraped, at most the judged window; `born` are the counters with a
    series that appeared within it.
    """
    matchers = [promql.equals_matcher("instance", target.instance)] if target.instance else []
    matchers += [promql.equals_matcher("job", target.job)] if target.job else []
    select = ",".join(matchers)
    for curve in promql.curve_queries(dialect, [*dialect.signals], present):
        expression = curve.expression
        if curve.names & born:
            expression = _RATE.sub(lambda found: f"({found.expand(_BORN_RATE)})", expression)
        expression = expression.replace("$range", _duration(window)).replace("$seconds", f"{window:g}")
        expression = expression.replace("{$select}", f"{{{select}}}" if select else "")
        expression = expression.replace(",$select", f",{select}" if select else "")
        if curve.factor != 1:
            expression = f"({expression}) * {curve.factor:g}"
        yield SourceQuery(curve.signal, subject, expression, plan.until)


def born_counters(last: Iterable[QuerySeries], growth: Iterable[QuerySeries]) -> dict[PrometheusTarget, set[str]]:
    """The counters of each target that grew by all that they are: they appeared within the window."""
    values = _values(last)
    found: dict[PrometheusTarget, set[str]] = {}
    for (target, name, labels), grown in _values(growth).items():
        if grown > 0 and values.get((target, name, labels)) == grown:
            found.setdefault(target, set()).add(name)
    return found


def _values(lines: Iterable[QuerySeries]) -> dict[_Counter, float]:
    return {
        (PrometheusTarget.of(line.labels), line.labels.get(SAMPLE, ""), own_labels(line.labels)): line.values[-1]
        for line in lines
        if line.values
    }


def _duration(seconds: float) -> str:
    """`5m`, `90s`; milliseconds only where there is a part of a second."""
    if seconds >= 1 and seconds == int(seconds):
        return next(f"{int(seconds) // size}{unit}" for size, unit in _UNITS if int(seconds) % size == 0)
    return promql.duration(seconds)
