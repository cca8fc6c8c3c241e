"""Rules over values of a moment: gauges, bit masks, summaries and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from latdoctor.dialects import counters
from latdoctor.dialects.current_level import current_level
from latdoctor.dialects.model import (
    BitMask,
    Rule,
    RuleKind,
    RuleResult,
    RuleValue,
    Selector,
    Take,
    Term,
    Unusable,
    join_notes,
)
from latdoctor.dialects.page_series import DialectView, SampleSeries
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean
from latdoctor.units import format_value


def _page_values(view: DialectView, rule: Rule, term: Term) -> dict[str, list[float | Unusable | None]]:
    """A gauge per subject and page; None if a page lacks it."""
    selector = view.present(term)
    found: dict[str, list[float | Unusable | None]] = {}
    for subject, series in view.series(selector).items() if selector else ():
        trouble = counters.unsummable(view, rule, selector, series) if selector else None
        count = len(view.scrapes)
        found[subject] = [trouble or _sum_on(view, rule, series, page) for page in range(count)]
    return found


def _sum_on(view: DialectView, rule: Rule, series: tuple[SampleSeries, ...], page: int) -> float | Unusable | None:
    total: float | None = None
    for one in series:
        sample = one.samples[page]
        if sample is None:
            continue
        value = view.number(rule, one.name, sample)
        if isinstance(value, Unusable):
            return value
        total = value if total is None else total + value
    return total


def gauge(view: DialectView, rule: Rule) -> RuleResult:
    outcome: dict[str | None, RuleValue | Unusable] = {}
    columns = [_page_values(view, rule, term) for term in rule.terms]
    over = [_page_values(view, rule, term) for term in rule.over]
    less = [_page_values(view, rule, term) for term in rule.less]
    place = view.place(rule.terms)
    place += f" / {view.place(rule.over)}" if over else ""
    place += f" - {view.place(rule.less)}" if less else ""
    for subject in dict.fromkeys(subject for column in columns for subject in column):
        values: dict[int, float] = {}
        trouble: Unusable | None = None
        for page in range(len(view.scrapes)):
            value = _on_page(columns, over, less, subject, page)
            if not isinstance(value, Unusable) and value < 0 and not _may_be_negative(rule):
                value = Unusable(f"{place} is negative ({value:g})", GapCode.INCONSISTENT)
            if isinstance(value, Unusable):
                trouble = trouble or value
            else:
                values[page] = value * rule.factor
        outcome[subject] = (
            _taken(rule, values, place) if values else trouble or Unusable(f"{place} is absent", GapCode.ABSENT)
        )
    return outcome


def _may_be_negative(rule: Rule) -> bool:
    return catalogue()[rule.signal].kind is SignalKind.DEVIATION


_Columns = Sequence[Mapping[str, Sequence[float | Unusable | None]]]


def _on_page(columns: _Columns, over: _Columns, less: _Columns, subject: str, page: int) -> float | Unusable:
    """(sum of columns − sum of less) / sum of over, on one page."""
    sums: list[float] = []
    for group in (columns, over, less):
        total = 0.0
        for column in group:
            value = column[subject][page] if subject in column else None
            if value is None:
                return Unusable("a sample is missing", GapCode.ABSENT)
            if isinstance(value, Unusable):
                return value
            total += value
        sums.append(total)
    if over and sums[1] <= 0:
        return Unusable("the denominator of the share is zero", GapCode.INCONSISTENT)
    return (sums[0] - sums[2]) / (sums[1] if over else 1.0)


def bit_values(view: DialectView, bits: BitMask, signal: str, mask: int) -> RuleResult:
    """1.0 for a page with a bit of `mask` set, else 0.0; the mean over several pages."""
    outcome: dict[str | None, RuleValue | Unusable] = {}
    rule = Rule(signal=signal, kind=RuleKind.GAUGE, where=bits.rule.where, take=Take.MEAN)
    for subject, pages in _page_values(view, bits.rule, bits.rule.terms[0]).items():
        values = {n: 1.0 if int(value) & mask else 0.0 for n, value in enumerate(pages) if isinstance(value, float)}
        trouble = next((value for value in pages if isinstance(value, Unusable)), None)
        place = view.place(bits.rule.terms)
        if values:
            outcome[subject] = _taken(rule, values, f"{place} & {mask:#x}")
        else:
            outcome[subject] = trouble or Unusable(f"{place} is absent", GapCode.ABSENT)
    return outcome


def _taken(rule: Rule, by_page: Mapping[int, float], place: str) -> RuleValue:
    """Reduce the values of several pages to one: mean (with the highest in the note), first, last, highest, current."""
    values = list(by_page.values())
    value, spread, note = values[-1], "", rule.note
    if rule.take == Take.FIRST:
        value = values[0]
    elif rule.take == Take.MAX:
        value = max(values)
    elif rule.take == Take.MEAN and max(values) > min(values):
        value = sum(values) / len(values)
        highest = format_value(max(values), catalogue()[rule.signal].dimension)
        spread = f"mean of {len(values)} pages, highest {highest}"
    elif rule.take == Take.CURRENT and len(values) > 1:
        value, spread = current_level(values, catalogue()[rule.signal].dimension)
    if value == 0 and rule.zero_note:
        note = rule.zero_note
    first = max(by_page) if rule.take == Take.LAST else min(by_page)
    last = min(by_page) if rule.take == Take.FIRST else max(by_page)
    return RuleValue(value, place, join_notes(note, spread), first, last)


# A real server exposed quantiles of 3 µs with a mean of 443 ms. The mean of non-negative values is between
# (1 − q)·Q(q) and the largest value; the factor allows for the quantiles' sliding window.
_SLACK = 10.0
_TOP_QUANTILE = 0.9


def summary(view: DialectView, rule: Rule) -> RuleResult:
    selector = view.present(rule.terms[0])
    if selector is None:
        return {}
    return {subject: _quantile(view, rule, selector, subject) for subject in view.series(selector)}


def _quantile(view: DialectView, rule: Rule, selector: Selector, subject: str) -> RuleValue | Unusable:
    """The server's own quantile on the last page, unless its sum and count contradict it."""
    series = view.series(selector)[subject]
    trouble = counters.unsummable(view, rule, selector, series, ("quantile",))
    if trouble:
        return trouble
    quantiles: dict[float, float | Unusable] = {}
    for one in series:
        sample = one.samples[-1]
        q = _as_float(dict(one.labels).get("quantile", ""))
        if sample is not None and q is not None:
            quantiles[q] = view.number(rule, f"{one.name}{{quantile={q:g}}}", sample)
    value = quantiles.get(
        rule.quantile, Unusable(f"{selector} has no quantile {rule.quantile:g} on the last page", GapCode.ABSENT)
    )
    if isinstance(value, Unusable):
        return value
    known = {q: v for q, v in quantiles.items() if isinstance(v, float)}
    doubt = _contradiction(view, rule, selector, subject, known)
    if doubt:
        return doubt
    return RuleValue(value * rule.factor, str(selector), join_notes("estimated by the server", rule.note))


def _contradiction(
    view: DialectView, rule: Rule, selector: Selector, subject: str, quantiles: Mapping[float, float]
) -> Unusable | None:
    count = counters.growth(view, rule, selector, view.series(selector, "_count").get(subject, ()))
    total = counters.growth(view, rule, selector, view.series(selector, "_sum").get(subject, ()))
    if isinstance(count, Unusable) or isinstance(total, Unusable):
        return count if isinstance(count, Unusable) else total if isinstance(total, Unusable) else None
    if count <= 0:
        return Unusable(f"{selector}_count counted nothing", GapCode.NOTHING_COUNTED)
    ordered = sorted(quantiles.items())
    if any(later[1] < earlier[1] for earlier, later in pairwise(ordered)):
        return Unusable(f"the quantiles of {selector} do not increase with their rank", GapCode.INCONSISTENT)
    mean, (top, highest) = total / count, ordered[-1]
    too_low = top >= _TOP_QUANTILE and mean > _SLACK * highest
    too_high = any(mean * _SLACK < (1 - q) * value for q, value in ordered)
    if too_low or too_high:
        figures = f"count {count:g}, sum {total:g}, so the mean is {mean:g}, but quantile {top:g} is {highest:g}"
        return Unusable(
            f"{selector} contradicts itself ({figures}): its quantiles are ignored",
            GapCode.INCONSISTENT,
            next_step="use the quantiles measured by the clients or the gateway in front of it",
        )
    return None


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_SWITCH = {"true": 1.0, "false": 0.0}


def label(view: DialectView, rule: Rule) -> RuleResult:
    """The text of a label on the last page, as a number for a signal that is one (information metrics).

    Two different texts for one subject are an error.
    """
    found: dict[str | None, dict[str, str]] = {}
    selectors = [selector for selector in (view.present(term) for term in rule.terms) if selector]
    for selector in selectors or view.selectors():
        for sample in view.scrapes[-1].page.samples.get(selector.name, ()):
            names = rule.label.split("|") if selector.accepts(sample) else []
            name, text = next(((name, clean(value, 200)) for name in names if (value := sample.label(name))), ("", ""))
            subject = view.subject(sample.labels)
            if text and subject is not None:
                found.setdefault(subject, {}).setdefault(text, f"{selector.name}, label {name}")
    return {subject: _one_text(rule, texts) for subject, texts in found.items()}


def _one_text(rule: Rule, texts: Mapping[str, str]) -> RuleValue | Unusable:
    if len(texts) > 1:
        quantiles = ", ".join(f"{text!r} ({place})" for text, place in list(texts.items())[:2])
        return Unusable(f"{len(texts)} values on one page: {quantiles}", GapCode.AMBIGUOUS)
    text, place = next(iter(texts.items()))
    if catalogue()[rule.signal].kind is SignalKind.TEXT:
        return RuleValue(text, place, rule.note)
    number = _SWITCH.get(text.lower(), _as_float(text))
    if number is None:
        return Unusable(f"{place} is {text!r} and not a number", GapCode.ABSENT)
    return RuleValue(number * rule.factor, place, rule.note)
