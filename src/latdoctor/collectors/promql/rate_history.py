"""The request rate of a service over days from a Prometheus server: one range query, in parts of 10,000 points.

Without a query it is the arrival rate of the one kind of server whose families are recorded. Where several kinds are (a
gateway and the engines behind it), they count the same requests, so that the user must choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from latdoctor.collectors.base import PrometheusServer
from latdoctor.collectors.promql import NAME
from latdoctor.collectors.promql.client import PromqlQuery, QueryResult, parse_result, run_queries
from latdoctor.dialects import promql
from latdoctor.dialects.loader import shipped
from latdoctor.errors import SourceError, UsageError
from latdoctor.evidence.model import Origin, Series
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

SIGNAL = "arrival.rate"
STEP = 60.0  # seconds between two points
_RANGE = 120.0  # of the rate at each point: two scrapes a minute suffice
_POINTS = 10_000  # Prometheus refuses more than 11,000 points of a series
_PRESENT = 3600.0  # seconds before the end in which the families are looked for
_CHOOSE = "name one: --query 'sum(rate(…[2m]))', or --select '{job=\"…\"}'"


@dataclass(frozen=True, slots=True)
class RateHistory:
    """The series of a query, and the query itself, to paste."""

    expression: str
    series: tuple[Series, ...]
    warnings: tuple[str, ...]


def rate_history(server: PrometheusServer, query: str, timeout: float) -> RateHistory:
    """The rates from `server.since` to `server.until`. Raises SourceError, UsageError."""
    expression = query or _recognised(server, timeout)
    answers = run_all(server, range_queries(expression, server, STEP), timeout)
    series = tuple(
        Series(SIGNAL, "service", line.times, line.values, Origin(NAME, f"series {number}"))
        for answer in answers
        for number, line in enumerate(answer.lines, 1)
    )
    if not series:
        raise SourceError(
            "the query has no result in that time", where=server.access.name, next_step=_CHOOSE, code=GapCode.EMPTY
        )
    return RateHistory(expression, series, tuple(dict.fromkeys(text for one in answers for text in one.warnings)))


def range_queries(expression: str, server: PrometheusServer, step: float) -> list[PromqlQuery]:
    """Queries for a point every `step` seconds, at whole steps, each with as many as one query may have."""
    first, last = int(-(-server.since // step)), int(server.until // step)
    times = [place * step for place in range(first, last + 1)]
    parts = [times[start : start + _POINTS] for start in range(0, len(times), _POINTS)]
    return [PromqlQuery(expression, part[-1], part[0], step) for part in parts]


def _recognised(server: PrometheusServer, timeout: float) -> str:
    """The expression of the recorded arrival rate. Raises UsageError where there is none, or more than one."""
    options = {dialect.title: dialect for dialect in shipped() if SIGNAL in dialect.signals}
    names = sorted({
        name for dialect in options.values() for rules in dialect.rules for rule in rules
        if rule.signal == SIGNAL for name in promql.rule_samples(rule)
    })  # fmt: skip
    present = present_names(server, names, timeout)
    found = {
        title: curve
        for title, dialect in options.items()
        for curve in promql.curve_queries(dialect, (SIGNAL,), present)
    }
    place = server.access.name
    if not found:
        reason = "no request rate of a server that latdoctor knows is recorded in the hour before the end"
        raise UsageError(reason, where=place, next_step="--query 'sum(rate(YOUR_REQUESTS_TOTAL[2m]))'")
    expressions = {title: f"sum({expression_of(one, server.select, _RANGE)})" for title, one in found.items()}
    if len(expressions) > 1:
        listed = [f"{title}: --query '{text}'" for title, text in expressions.items()]
        reason = f"request rates of {len(expressions)} kinds of servers are recorded, which may be the same requests"
        raise UsageError(reason, where=place, next_step=_CHOOSE, listed=listed)
    return next(iter(expressions.values()))


def present_names(server: PrometheusServer, names: Iterable[str], timeout: float) -> frozenset[str]:
    """Those of `names` that are recorded in the hour before the end."""
    inside = ",".join((promql.name_matcher(sorted(names)), *server.select))
    counted = f"count by (__name__) (last_over_time({{{inside}}}[{promql.duration(_PRESENT)}]))"
    (answer,) = run_all(server, [PromqlQuery(counted, server.until)], timeout)
    return frozenset(line.labels.get("__name__", "") for line in answer.lines)


def expression_of(curve: promql.SignalCurve, select: Sequence[str], seconds: float) -> str:
    """The expression of a curve for the user's matchers, over so many seconds before each point, in its base unit."""
    text = curve.expression.replace("$range", promql.duration(seconds))
    text = text.replace("{$select}", f"{{{','.join(select)}}}" if select else "")
    text = text.replace(",$select", "".join(f",{one}" for one in select))
    return text if curve.factor == 1 else f"({text}) * {curve.factor:g}"


def run_all(server: PrometheusServer, queries: Sequence[PromqlQuery], timeout: float) -> list[QueryResult]:
    """The results, all of them. Raises SourceError for the first that failed."""
    found = []
    for reply in run_queries(server.access, queries, timeout, timeout * len(queries)):
        if reply.body is None:
            raise SourceError(
                clean(reply.why, 300), where=server.access.name, next_step=reply.next_step, code=reply.code
            )
        found.append(parse_result(reply.body, server.access.name))
    return found
