"""What a server counted between the pages, how long requests took before, and the most that ran on any page.

Enough to see that it stands still, or at a ceiling. A rate needs the time between two pages; that nothing at all came
out needs only their counters.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from latdoctor.dialects.model import COUNTS, MEAN, PAST_MEAN, RUNNING, RUNNING_MOST, Dialect, Rule, RuleKind, Take


def counting_rules(dialect: Dialect) -> Iterator[tuple[Rule, ...]]:
    """For each rate of requests or tokens the rules of its count, alternatives together."""
    for options in dialect.rules:
        rates = [option for option in options if option.kind == RuleKind.RATE and option.signal in COUNTS]
        if rates:
            yield tuple(_renamed(rate, RuleKind.GROWTH, COUNTS[rate.signal]) for rate in rates)


def past_mean_rules(dialect: Dialect) -> Iterator[tuple[Rule, ...]]:
    """The rules of the mean latency, to be evaluated on the first page alone."""
    for options in dialect.rules:
        ratios = [option for option in options if option.kind == RuleKind.RATIO and option.signal == MEAN]
        if ratios:
            yield tuple(_renamed(ratio, RuleKind.RATIO, PAST_MEAN) for ratio in ratios)


def highest_rules(dialect: Dialect) -> Iterator[tuple[Rule, ...]]:
    """The rules of the requests that run, to be reduced to the most on any of several pages."""
    for options in dialect.rules:
        gauges = [option for option in options if option.kind == RuleKind.GAUGE and option.signal == RUNNING]
        if gauges:
            yield tuple(structs.replace(gauge, signal=RUNNING_MOST, take=Take.MAX, series=False) for gauge in gauges)


def _renamed(rule: Rule, kind: RuleKind, signal: str) -> Rule:
    return structs.replace(rule, kind=kind, signal=signal, series=False)
