"""Gauges: what an exporter showed at the moment of each page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latdoctor.dialects import counters
from latdoctor.dialects.model import Bits, Rule, Term
from latdoctor.dialects.outcome import Found, Outcome, Trouble, notes
from latdoctor.dialects.view import Series, View
from latdoctor.evidence.signals import catalogue
from latdoctor.units import format_value


def _page_values(view: View, rule: Rule, term: Term) -> dict[str, list[float | Trouble | None]]:
    """A gauge per subject and page; None where a page lacks it."""
    selector = view.present(term)
    found: dict[str, list[float | Trouble | None]] = {}
    for subject, series in view.series(selector).items() if selector else ():
        trouble = counters.mixed(view, rule, selector, series) if selector else None
        count = len(view.scrapes)
        found[subject] = [trouble or _sum_on(view, rule, series, page) for page in range(count)]
    return found


def _sum_on(view: View, rule: Rule, series: tuple[Series, ...], page: int) -> float | Trouble | None:
    total: float | None = None
    for one in series:
        sample = one.samples[page]
        if sample is None:
            continue
        value = view.number(rule, one.name, sample)
        if isinstance(value, Trouble):
            return value
        total = value if total is None else total + value
    return total


def gauge(view: View, rule: Rule) -> Outcome:
    outcome: dict[str | None, Found | Trouble] = {}
    columns = [_page_values(view, rule, term) for term in rule.terms]
    over = [_page_values(view, rule, term) for term in rule.over]
    less = [_page_values(view, rule, term) for term in rule.less]
    place = view.place(rule.terms)
    place += f" / {view.place(rule.over)}" if over else ""
    place += f" - {view.place(rule.less)}" if less else ""
    for subject in dict.fromkeys(subject for column in columns for subject in column):
        values: dict[int, float] = {}
        trouble: Trouble | None = None
        for page in range(len(view.scrapes)):
            value = _on_page(columns, over, less, subject, page)
            if isinstance(value, Trouble):
                trouble = trouble or value
            else:
                values[page] = value * rule.factor
        outcome[subject] = _taken(rule, values, place) if values else trouble or Trouble(f"{place} is not there")
    return outcome


_Columns = Sequence[Mapping[str, Sequence[float | Trouble | None]]]


def _on_page(columns: _Columns, over: _Columns, less: _Columns, subject: str, page: int) -> float | Trouble:
    """(sum of columns − sum of less) / sum of over, on one page."""
    sums: list[float] = []
    for group in (columns, over, less):
        total = 0.0
        for column in group:
            value = column[subject][page] if subject in column else None
            if value is None:
                return Trouble(f"a sample of {subject} is missing")
            if isinstance(value, Trouble):
                return value
            total += value
        sums.append(total)
    if over and sums[1] <= 0:
        return Trouble(f"the whole that the share of {subject} is taken of is zero")
    return (sums[0] - sums[2]) / (sums[1] if over else 1.0)


def bit_values(view: View, bits: Bits, signal: str, mask: int) -> Outcome:
    """1.0 for a page on which a bit of `mask` is set, 0.0 for one on which none is; over several pages their mean."""
    outcome: dict[str | None, Found | Trouble] = {}
    rule = Rule(signal=signal, kind="gauge", where=bits.rule.where, take="mean")
    for subject, pages in _page_values(view, bits.rule, bits.rule.terms[0]).items():
        values = {n: 1.0 if int(value) & mask else 0.0 for n, value in enumerate(pages) if isinstance(value, float)}
        trouble = next((value for value in pages if isinstance(value, Trouble)), None)
        place = view.place(bits.rule.terms)
        if values:
            outcome[subject] = _taken(rule, values, f"{place} & {mask:#x}")
        else:
            outcome[subject] = trouble or Trouble(f"{place} is not there")
    return outcome


def _taken(rule: Rule, by_page: Mapping[int, float], place: str) -> Found:
    """Several pages' values as one: their mean (with the highest in the note), the first, the last, or the highest."""
    values = list(by_page.values())
    value, spread, note = values[-1], "", rule.note
    if rule.take == "first":
        value = values[0]
    elif rule.take == "max":
        value = max(values)
    elif rule.take == "mean" and max(values) > min(values):
        value = sum(values) / len(values)
        highest = format_value(max(values), catalogue()[rule.signal].dimension)
        spread = f"mean of {len(values)} pages, highest {highest}"
    if value == 0 and rule.zero_note:
        note = rule.zero_note
    first = max(by_page) if rule.take == "last" else min(by_page)
    last = min(by_page) if rule.take == "first" else max(by_page)
    return Found(value, place, notes(note, spread), first, last)
