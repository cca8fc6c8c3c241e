"""Evaluation of one rule over the pages: its value per subject, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from latdoctor.dialects import counters, gauges
from latdoctor.dialects.model import (
    Histogram,
    MissingSamples,
    Rule,
    RuleKind,
    RuleResult,
    RuleValue,
    Selector,
    Term,
    Unusable,
    join_notes,
)
from latdoctor.dialects.page_series import DialectView
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Labels, Origin, Series
from latdoctor.gap_code import GapCode

LIFETIME = "lifetime average"
_TWO_PAGES = "collect it live (--server URL), or pass a first and a last page (--metrics FIRST --metrics LAST)"
CACHED = "rough over a short window: the exporter refreshes on its own schedule"


def evaluate(view: DialectView, rule: Rule) -> RuleResult | MissingSamples:
    """Evaluate `rule`. A ratio or histogram of a single page covers the server's lifetime; a rate needs two pages."""
    absent = [term for term in _all_terms(rule) if _absent(view, rule, term)]
    if absent:
        return MissingSamples(tuple(_absence(view, term) for term in absent), all(map(view.is_declared, absent)))
    if rule.kind in (RuleKind.SLOPE, RuleKind.RATE, RuleKind.GROWTH, RuleKind.RATIO, RuleKind.HISTOGRAM):
        hindrance = _hindrance(view, rule)
        if hindrance:
            return {None: hindrance}
    readers: dict[RuleKind, Callable[[DialectView, Rule], RuleResult]] = {
        RuleKind.GAUGE: gauges.gauge,
        RuleKind.SLOPE: _slope,
        RuleKind.RATE: _rate,
        RuleKind.GROWTH: _growth,
        RuleKind.RATIO: _ratio,
        RuleKind.HISTOGRAM: _histogram,
        RuleKind.SUMMARY: gauges.summary,
        RuleKind.LABEL: gauges.label,
    }
    outcome = readers[rule.kind](view, rule)
    if rule.kind == RuleKind.LABEL and not outcome:
        return MissingSamples((f"label {' or '.join(rule.label.split('|'))}",))
    return outcome


def _all_terms(rule: Rule) -> tuple[Term, ...]:
    return (*rule.terms, *rule.over, *rule.less)


def _absent(view: DialectView, rule: Rule, term: Term) -> bool:
    return _present(view, rule, term) is None


def _present(view: DialectView, rule: Rule, term: Term) -> Selector | None:
    if rule.kind != RuleKind.HISTOGRAM:
        return view.present(term)
    for option in term.options:
        if view.present(Term((Selector(option.name + "_bucket", option.matches),))):
            return option
    return None


def _absence(view: DialectView, term: Term) -> str:
    names = " or ".join(str(option) for option in term.options)
    return f"{names} (declared, but without a sample)" if view.is_declared(term) else names


def _hindrance(view: DialectView, rule: Rule) -> Unusable | None:
    """Return why no counter's growth can be computed, if so."""
    started = counters.restarted(view)
    if started:
        return started
    if view.unrefreshed():
        return Unusable(
            "the exporter returned the same numbers on every page, without a refresh in between",
            GapCode.INSUFFICIENT,
            next_step="watch for longer (--window 60s)",
        )
    if rule.kind in (RuleKind.SLOPE, RuleKind.RATE, RuleKind.GROWTH) and view.lone:
        return Unusable("a rate needs two pages or a live window", GapCode.INSUFFICIENT, next_step=_TWO_PAGES)
    if rule.kind in (RuleKind.SLOPE, RuleKind.RATE) and view.window is None:
        return Unusable(
            "the time between the saved pages is unknown, so there is no rate",
            GapCode.AMBIGUOUS,
            next_step="collect it live: latdoctor collect --server URL --to FOLDER",
        )
    return None


def _by_subject(view: DialectView, rule: Rule, terms: Sequence[Term]) -> dict[str, float | Unusable]:
    """The growth of a sum of counters per subject. Every term must be present."""
    parts: list[tuple[str, dict[str, float | Unusable]]] = []
    for term in terms:
        selector = view.present(term)
        if selector is not None:
            grown = {s: counters.growth(view, rule, selector, series) for s, series in view.series(selector).items()}
            parts.append((str(selector), grown))
    return _sums(parts)


def _sums(parts: Sequence[tuple[str, Mapping[str, float | Unusable]]]) -> dict[str, float | Unusable]:
    subjects = dict.fromkeys(subject for _, values in parts for subject in values)
    sums: dict[str, float | Unusable] = {}
    for subject in subjects:
        total: float | Unusable = 0.0
        for name, values in parts:
            value = values.get(subject, Unusable(f"{name} has no sample", GapCode.ABSENT))
            if isinstance(value, Unusable):
                total = value
                break
            total = total + value if isinstance(total, float) else total
        sums[subject] = total
    return sums


def _rate(view: DialectView, rule: Rule) -> RuleResult:
    totals = _counted(view, rule)
    return {s: one if isinstance(one, Unusable) else _per_second(view, rule, one) for s, one in totals.items()}


def _growth(view: DialectView, rule: Rule) -> RuleResult:
    totals = _counted(view, rule)
    return {
        s: one if isinstance(one, Unusable) else RuleValue(max(0.0, one), view.place(rule.terms), rule.note)
        for s, one in totals.items()
    }


def _counted(view: DialectView, rule: Rule) -> dict[str, float | Unusable]:
    """What the counters of a rate grew by, and the gauges of what is in flight with them."""
    outcome: dict[str, float | Unusable] = {}
    for subject, grown in _by_subject(view, rule, rule.terms).items():
        total = grown
        for term in rule.held:
            change = counters.held_growth(view, rule, term, subject)
            if isinstance(total, Unusable) or isinstance(change, Unusable):
                total = total if isinstance(total, Unusable) else change
                break
            total += change
        outcome[subject] = total
    return outcome


def _slope(view: DialectView, rule: Rule) -> RuleResult:
    selector = view.present(rule.terms[0])
    outcome: dict[str | None, RuleValue | Unusable] = {}
    for subject in view.series(selector) if selector else ():
        by_page = [_at(view, rule.terms[0], subject, page) for page in range(len(view.scrapes))]
        points = [
            (s.at, value)
            for s, value in zip(view.scrapes, by_page, strict=True)
            if s.at is not None and value is not None
        ]
        if len(points) < 2 or points[-1][0] <= points[0][0]:
            outcome[subject] = Unusable(f"{selector} is not on two pages", GapCode.INSUFFICIENT)
        else:
            outcome[subject] = RuleValue(_rise(points) * rule.factor, view.place(rule.terms), rule.note)
    return outcome


def _rise(points: Sequence[tuple[float, float]]) -> float:
    """Growth per second between the first and the last third of the pages, by medians, robust to one odd page."""
    third = max(1, len(points) // 3)
    early, late = points[:third], points[-third:]
    (start, low), (end, high) = ((median(at for at, _ in part), median(v for _, v in part)) for part in (early, late))
    return (high - low) / (end - start)


def page_by_page(view: DialectView, rule: Rule, subject: str, origin: Origin, labels: Labels) -> tuple[Series, ...]:
    """A gauge on every page, or the rate between consecutive pages; none if the time of a page or a sample is missing.

    What is held counts where it is on the pages, as in the rate over all of them. A difference or a share has none.
    """
    if rule.over or rule.less:
        return ()
    times = tuple(scrape.at for scrape in view.scrapes if scrape.at is not None)
    held = [term for term in rule.held if view.present(term) is not None]
    columns = [[_at(view, term, subject, page) for term in (*rule.terms, *held)] for page in range(len(view.scrapes))]
    totals = [math.fsum(value for value in column if value is not None) for column in columns]
    steps = list(zip(pairwise(times), pairwise(totals), strict=True)) if len(times) == len(totals) else []
    if len(steps) < 2 or any(late <= early for (early, late), _ in steps) or any(None in one for one in columns):
        return ()
    if rule.kind == RuleKind.GAUGE:
        return (Series(rule.signal, subject, times, tuple(rule.factor * one for one in totals), origin, labels),)
    # More requests may finish than are counted as in flight, but arrivals are never negative.
    rates = [rule.factor * (after - before) / (late - early) for (early, late), (before, after) in steps]
    values = tuple(max(0.0, rate) for rate in rates) if held else tuple(rates)
    return (Series(rule.signal, subject, times[1:], values, origin, labels),)


def _at(view: DialectView, term: Term, subject: str, page: int) -> float | None:
    """A sum of counters on one page."""
    selector = view.present(term)
    samples = [one.samples[page] for one in view.series(selector).get(subject, ())] if selector else []
    known = [sample.value for sample in samples if sample is not None and math.isfinite(sample.value)]
    return sum(known) if known and len(known) == len(samples) else None


def _per_second(view: DialectView, rule: Rule, grown: float) -> RuleValue:
    # More requests may finish than are counted as in flight, but arrivals are never negative.
    value = max(0.0, grown) * rule.factor / (view.window or 1.0)
    if catalogue()[rule.signal].dimension == "ratio":
        value = min(1.0, value)  # a share of the window, which a cached counter may exceed
    return RuleValue(value, view.place(rule.terms), join_notes(rule.note, CACHED if view.dialect.cached else ""))


def _ratio(view: DialectView, rule: Rule) -> RuleResult:
    upper, lower = _by_subject(view, rule, rule.terms), _by_subject(view, rule, rule.over)
    place = f"{view.place(rule.terms)} / {view.place(rule.over)}"
    outcome: dict[str | None, RuleValue | Unusable] = {}
    for subject in dict.fromkeys([*upper, *lower]):
        above, below = upper.get(subject), lower.get(subject)
        if above is None or below is None:
            outcome[subject] = Unusable(f"{place}: numerator or denominator has no sample", GapCode.ABSENT)
        elif isinstance(above, Unusable) or isinstance(below, Unusable):
            outcome[subject] = above if isinstance(above, Unusable) else _only_trouble(below)
        elif below <= 0:
            outcome[subject] = Unusable(f"{view.place(rule.over)} counted nothing", GapCode.NOTHING_COUNTED)
        else:
            note = join_notes(LIFETIME if view.lone else "", rule.note)
            outcome[subject] = RuleValue(above / below * rule.factor, place, note)
    return outcome


def _only_trouble(value: float | Unusable) -> Unusable:
    return value if isinstance(value, Unusable) else Unusable("", GapCode.ABSENT)


def _histogram(view: DialectView, rule: Rule) -> RuleResult:
    selector = _present(view, rule, rule.terms[0])
    outcome: dict[str | None, RuleValue | Unusable] = {}
    if selector is None:
        return outcome
    for subject in view.series(selector, "_bucket"):
        found = counters.histogram(view, rule, selector, subject)
        if isinstance(found, Histogram) and found.count == 0:
            found = Unusable(f"{selector} counted nothing", GapCode.NOTHING_COUNTED)
        note = join_notes(LIFETIME if view.lone else "", rule.note)
        outcome[subject] = found if isinstance(found, Unusable) else RuleValue(found, f"{selector}_bucket", note)
    return outcome
