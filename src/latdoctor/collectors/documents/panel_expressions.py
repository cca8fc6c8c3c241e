"""What a column measures that is named after its PromQL expression, as Grafana does where a panel has no legend.

Understood are quantiles of a histogram, means (sum over count), rates of a counter, and gauges, alone or aggregated, of
metrics that a dialect maps to one signal. An expression with other arithmetic, or of a selection by further labels,
measures something else; it is no reason to guess by the words in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from latdoctor.collectors.documents.panel_names import ColumnMeaning
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.model import Rule, RuleKind, Term
from latdoctor.evidence.catalogue import catalogue

_QUANTILES = {"0.5": ".p50", "0.50": ".p50", "0.95": ".p95", "0.99": ".p99"}
_QUANTILE = re.compile(r"histogram_quantile\(([\d.]+),(.+)\)")
_RATE = re.compile(r"(?:rate|irate)\((\S+?)\)")
_AGGREGATE = re.compile(r"(?:sum|avg|max|min)\((.+)\)")
_CLAUSE = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_MATCHERS = re.compile(r"\{([^{}]*)\}")
_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
_RANGE = re.compile(r"\[[^\[\]]*\]")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_MAX_LENGTH = 2000
# Labels that choose a target, a model or a device, and nothing of what is measured.
_WHERE = frozenset(
    {
        "job", "instance", "model", "model_name", "model_id", "namespace", "pod", "service", "container", "cluster",
        "node", "host", "region", "engine", "gpu", "UUID", "Hostname", "server", "exported_job", "exported_instance",
        "exported_pod", "exported_namespace",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Known:
    """Signals with the factor to their base unit, by what an expression asks for."""

    histograms: Mapping[str, tuple[str, float]]
    rates: Mapping[str, tuple[str, float]]
    gauges: Mapping[str, tuple[str, float]]
    ratios: Mapping[str, tuple[str, float]]  # by both counters: `a/b`
    names: frozenset[str]


def is_expression(text: str) -> bool:
    """Whether `text` is an expression of a metric that some dialect knows."""
    return len(text) <= _MAX_LENGTH and "(" in text and bool(_known().names & set(_NAME.findall(text)))


def meaning_of_expression(text: str) -> ColumnMeaning | None:
    """The meaning of an expression; None where it is not one of the known forms."""
    if any(label not in _WHERE for found in _MATCHERS.findall(text) for label in _LABEL.findall(found)):
        return None
    plain = re.sub(r"\s+", "", _CLAUSE.sub("", _RANGE.sub("", _MATCHERS.sub("", text))))
    signal, factor = _signal(_bare(plain)) or ("", 1.0)
    if signal not in catalogue():
        return None
    dimension = catalogue()[signal].dimension
    if plain.startswith("sum(") and "rate(" not in plain and dimension != "count":
        return None  # of shares and temperatures a sum means nothing
    kind = "gpu" if signal.startswith("gpu.") else "server"
    return ColumnMeaning(signal, kind, dimension == "ratio", dimension == "time", factor)


def _bare(text: str) -> str:
    """`text` without the aggregations around it."""
    while (found := _AGGREGATE.fullmatch(text)) and _closed(found[1]):
        text = found[1]
    return text


def _closed(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def _signal(text: str) -> tuple[str, float] | None:
    known = _known()
    if (quantile := _QUANTILE.fullmatch(text)) and quantile[1] in _QUANTILES:
        rate = _RATE.fullmatch(_bare(quantile[2]))
        found = known.histograms.get(rate[1]) if rate else None
        return (found[0] + _QUANTILES[quantile[1]], found[1]) if found else None
    above, divided, below = text.partition("/")
    if divided:
        rates = [_RATE.fullmatch(_bare(part)) for part in (above, below)]
        names = [one[1] for one in rates if one]
        return known.ratios.get("/".join(names)) if len(names) == len(rates) else None
    if rate := _RATE.fullmatch(text):
        return known.rates.get(rate[1])
    return known.gauges.get(text)


@cache
def _known() -> _Known:
    histograms: dict[str, set[tuple[str, float]]] = {}
    rates: dict[str, set[tuple[str, float]]] = {}
    gauges: dict[str, set[tuple[str, float]]] = {}
    ratios: dict[str, set[tuple[str, float]]] = {}
    names: set[str] = set()
    for rule in (one for dialect in shipped() for options in dialect.rules for one in options):
        found = (rule.signal, rule.factor)
        for name in _names(rule.terms):
            names |= {name, f"{name}_bucket"} if rule.kind == RuleKind.HISTOGRAM else {name}
        if len(rule.terms) != 1 or rule.less or rule.held or rule.by or rule.percent_or_ratio:
            continue
        for name in _names(rule.terms, whole=True):
            if rule.kind == RuleKind.HISTOGRAM:
                histograms.setdefault(f"{name}_bucket", set()).add(found)
            elif rule.kind == RuleKind.RATE:
                rates.setdefault(name, set()).add(found)
            elif rule.kind == RuleKind.GAUGE and not rule.over:
                gauges.setdefault(name, set()).add(found)
            elif rule.kind == RuleKind.RATIO:
                for over in _over(rule):
                    ratios.setdefault(f"{name}/{over}", set()).add(found)
    return _Known(_single(histograms), _single(rates), _single(gauges), _single(ratios), frozenset(names))


def _over(rule: Rule) -> Iterator[str]:
    yield from _names(rule.over, whole=True) if len(rule.over) == 1 else ()


def _names(terms: tuple[Term, ...], *, whole: bool = False) -> Iterator[str]:
    """The names of the terms; `whole`: only of those without a filter of labels."""
    yield from (one.name for term in terms for one in term.options if not (whole and one.matches))


def _single(found: Mapping[str, set[tuple[str, float]]]) -> dict[str, tuple[str, float]]:
    """What all dialects agree on."""
    return {key: next(iter(signals)) for key, signals in found.items() if len(signals) == 1}
