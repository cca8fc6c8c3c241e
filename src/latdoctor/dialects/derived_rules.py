"""Rules that follow from those of a dialect: what was counted, how things were before, and the most on any page.

Counts show a standstill where the time between two pages is unknown. The first page alone shows the average since the
server started, to which the time between the pages can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from latdoctor.dialects.model import (
    ARRIVALS,
    COUNTS,
    OUTPUT_LENGTH,
    PAST,
    RUNNING,
    RUNNING_MEAN,
    RUNNING_MOST,
    SHARES,
    Dialect,
    Rule,
    RuleKind,
    Take,
)


def counting_rules(dialect: Dialect) -> Iterator[tuple[Rule, ...]]:
    """For each rate of requests or tokens the rules of its count, alternatives together."""
    for options in dialect.rules:
        rates = [option for option in options if option.kind == RuleKind.RATE and option.signal in COUNTS]
        if rates:
            yield tuple(_renamed(rate, RuleKind.GROWTH, COUNTS[rate.signal]) for rate in rates)


def share_rules(dialect: Dialect) -> Iterator[tuple[Rule, ...]]:
    """For each rate of SHARES the rules of its share of all requests, alternatives together."""
    rates = {options[0].signal: options for options in dialect.rules if options[0].kind == RuleKind.RATE}
    arrivals = rates.get(ARRIVALS, ())
    for signal in rates.keys() & SHARES.keys() if arrivals else ():
        yield tuple(
            structs.replace(
                _renamed(rate, RuleKind.RATIO, SHARES[signal]),
                over=(of := arrivals[min(place, len(arrivals) - 1)]).terms,
                sum_over=(*rate.sum_over, *of.sum_over),
            )
            for place, rate in enumerate(rates[signal])
            if rate.kind == RuleKind.RATE
        )


def past_rules(dialect: Dialect) -> Iterator[tuple[Rule, ...]]:
    """The rules of means and shares that are compared with their past, to be evaluated on the first page alone."""
    for options in dialect.rules:
        ratios = [option for option in options if option.kind == RuleKind.RATIO and option.signal in PAST]
        past = [_renamed(ratio, RuleKind.RATIO, PAST[ratio.signal]) for ratio in ratios]
        if past and ratios[0].signal == OUTPUT_LENGTH:
            past.extend(_tokens_per_request(dialect))
        if past:
            yield tuple(past)


def _tokens_per_request(dialect: Dialect) -> Iterator[Rule]:
    """All tokens over all requests, where the server does not sum the lengths of its answers."""
    rates = {option.signal: option for options in dialect.rules for option in options if option.kind == RuleKind.RATE}
    tokens, requests = rates.get("output.token_rate"), rates.get("completion.rate")
    if tokens and requests:
        summed = (*tokens.sum_over, *requests.sum_over)
        rule = _renamed(tokens, RuleKind.RATIO, PAST[OUTPUT_LENGTH])
        yield structs.replace(rule, over=requests.terms, sum_over=summed, held=(), note="tokens over requests")


def spread_rules(dialect: Dialect) -> Iterator[tuple[Rule, ...]]:
    """The rules of the requests that run, to be reduced to the mean and to the most of several pages."""
    for options in dialect.rules:
        gauges = [option for option in options if option.kind == RuleKind.GAUGE and option.signal == RUNNING]
        for signal, take in ((RUNNING_MEAN, Take.MEAN), (RUNNING_MOST, Take.MAX)) if gauges else ():
            yield tuple(structs.replace(gauge, signal=signal, take=take, series=False) for gauge in gauges)


def _renamed(rule: Rule, kind: RuleKind, signal: str) -> Rule:
    return structs.replace(rule, kind=kind, signal=signal, series=False)
