"""Every rule of every dialect gives its signal from a page that shows what it reads: no row stands there in vain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import MetricSample, MetricsPage, ScrapedPage
from latdoctor.dialects.model import Dialect, LabelMatch, Rule, Term
from latdoctor.dialects.to_evidence import read_pages
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import Labels

RULES = [(dialect, rule) for dialect in shipped() for options in dialect.rules for rule in options]
Shown = dict[str, tuple[MetricSample, ...]]


def _labels(matches: tuple[LabelMatch, ...], rule: Rule, *more: tuple[str, str]) -> Labels:
    """Labels that a filter lets pass."""
    fitting = {match.label: "other" if match.negated else match.values[0] for match in matches}
    if rule.by:
        fitting.setdefault(rule.by, "one")
    return tuple(sorted({**fitting, **dict(more)}.items()))


def _label_value(rule: Rule) -> str:
    """A text, or a number for a signal that is one."""
    return "text" if catalogue()[rule.signal].kind is SignalKind.TEXT else "16"


def _samples(rule: Rule, which: int, way: int) -> Shown:
    """One page: each name with alternatives by its `way`; counters grow by 10, of which 5 lie in the first bucket."""
    shown: Shown = {}
    value = 20.0 + 10 * which

    def put(name: str, labels: Labels, number: float) -> None:
        shown[name] = (*shown.get(name, ()), MetricSample(labels, number, whole=True))

    def term(one: Term, number: float) -> None:
        option = one.options[min(way, len(one.options) - 1)]
        if rule.kind == "histogram":
            put(f"{option.name}_bucket", _labels(option.matches, rule, ("le", "1")), number / 2)
            put(f"{option.name}_bucket", _labels(option.matches, rule, ("le", "+Inf")), number)
            put(f"{option.name}_sum", _labels(option.matches, rule), number)
        elif rule.kind == "summary":
            put(option.name, _labels(option.matches, rule, ("quantile", f"{rule.quantile:g}")), 2.0)
            put(f"{option.name}_sum", _labels(option.matches, rule), number)
            put(f"{option.name}_count", _labels(option.matches, rule), number)
        elif rule.kind == "label":
            put(option.name, _labels(option.matches, rule, (rule.label.split("|")[0], _label_value(rule))), 1.0)
        else:
            labels = _labels(option.matches, rule)
            if (option.name, labels) not in {(name, one.labels) for name, found in shown.items() for one in found}:
                put(option.name, labels, number)

    for one in (*rule.terms, *rule.held):
        term(one, value)
    for one in rule.over:
        term(one, 2 * value)
    for one in rule.less:
        term(one, value / 2)
    return shown


def _pages(dialect: Dialect, rule: Rule, way: int) -> Iterator[ScrapedPage]:
    for which in (0, 1):
        shown = _samples(rule, which, way)
        if rule.kind == "label" and not rule.terms:
            name = next(option.name for options in dialect.rules for one in options[0].terms for option in one.options)
            shown[name] = (MetricSample(((rule.label.split("|")[0], "text"),), 1.0),)
        yield ScrapedPage(MetricsPage(shown), f"{which}", 1000.0 + 10 * which)


@pytest.mark.parametrize(("dialect", "rule"), RULES, ids=[f"{d.id}-{r.where.rpartition('/')[2]}" for d, r in RULES])
def test_a_rule_gives_its_signal(dialect: Dialect, rule: Rule) -> None:
    ways = max((len(one.options) for one in (*rule.terms, *rule.over, *rule.less, *rule.held)), default=1)
    for way in range(ways):
        alone = structs.replace(dialect, rules=((rule,),), bits=(), idle=(), subjects=())
        pages = list(_pages(dialect, rule, way))
        if rule.kind == "label" and not rule.terms:
            alone = structs.replace(alone, rules=((rule,), *dialect.rules))
        seen = read_pages(alone, pages, "server/x")
        given = [one for one in (*seen.readings, *seen.distributions) if one.signal == rule.signal]
        assert given, [gap.reason for gap in seen.gaps_by_signal.get(rule.signal, ())]
