"""Servers that Prometheus could scrape within the history and no longer can, and since when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from latdoctor.collectors.outage import Outage
from latdoctor.collectors.promql.client import QuerySeries
from latdoctor.collectors.promql.query_plan import PrometheusTarget, QueryPlan
from latdoctor.collectors.time_range import format_utc

FAILED = 2  # scrapes in a row; a single failure is no outage


@dataclass(frozen=True, slots=True)
class ScrapeStates:
    """How the scrapes of each target went: `ups` over the history, and the time of the last successful one.

    `scraping`: Prometheus had a current sample of any target at the end; without one it may itself have been down.
    """

    ups: Mapping[PrometheusTarget, QuerySeries]
    answered: Mapping[PrometheusTarget, float]
    scraping: bool


def outages(
    plan: QueryPlan, states: ScrapeStates, servers: Set[PrometheusTarget], names: Mapping[PrometheusTarget, str]
) -> Iterator[Outage]:
    """The `servers` that are down. One that is no longer a target is, unless another of its job still answers."""
    for target in sorted(servers):
        line, last = states.ups.get(target), states.answered.get(target, 0.0)
        if line is None or last <= 0 or plan.until - last < FAILED * plan.pace:
            continue
        if _is_current(plan, line):
            if line.values[-1] == 0:
                why = f"could not be scraped by Prometheus after {format_utc(last)}"
                yield Outage(names[target], why, last, plan.pace)
        elif states.scraping and not _replaced(plan, states, servers, target):
            why = f"is no longer a target of Prometheus, which last scraped it {format_utc(last)}"
            yield Outage(names[target], why, last, plan.pace)


def answering(
    plan: QueryPlan, states: ScrapeStates, servers: Set[PrometheusTarget], names: Mapping[PrometheusTarget, str]
) -> Iterator[str]:
    """The names of the `servers` whose last scrape succeeded."""
    yield from (names[target] for target in sorted(servers) if _is_up(plan, states.ups.get(target)))


def _replaced(plan: QueryPlan, states: ScrapeStates, servers: Set[PrometheusTarget], target: PrometheusTarget) -> bool:
    """Whether another server of its job answers: replicas come and go with each rollout."""
    return any(other.job == target.job and _is_up(plan, states.ups.get(other)) for other in servers)


def _is_up(plan: QueryPlan, line: QuerySeries | None) -> bool:
    return line is not None and _is_current(plan, line) and line.values[-1] == 1


def _is_current(plan: QueryPlan, line: QuerySeries) -> bool:
    """Whether it still had a sample at the end."""
    return bool(line.times) and line.times[-1] >= plan.until - 2 * plan.curve_step and math.isfinite(line.values[-1])


def states_of(
    ups: Sequence[QuerySeries], answered: Mapping[PrometheusTarget, float], *, scraping: bool
) -> ScrapeStates:
    """`ups`: the series of `up`, one for each target."""
    return ScrapeStates({PrometheusTarget.of(line.labels): line for line in ups}, answered, scraping)
