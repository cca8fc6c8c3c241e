"""What a server computed or says itself: quantiles of summaries, and texts in labels."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from latdoctor.dialects import counters
from latdoctor.dialects.model import Rule, Selector
from latdoctor.dialects.outcome import NOTHING_COUNTED, Found, Outcome, Trouble, notes
from latdoctor.dialects.view import View
from latdoctor.text import clean

# A summary that shows quantiles of 3 µs beside a mean of 443 ms was seen on a real server. The mean of what is not
# negative lies between (1 − q)·Q(q) and the largest value; the factor allows for the quantiles' sliding window.
_SLACK = 10.0
_TOP_QUANTILE = 0.9


def summary(view: View, rule: Rule) -> Outcome:
    selector = view.present(rule.terms[0])
    if selector is None:
        return {}
    return {subject: _quantile(view, rule, selector, subject) for subject in view.series(selector)}


def _quantile(view: View, rule: Rule, selector: Selector, subject: str) -> Found | Trouble:
    """The server's own quantile on the last page, unless its own sum and count contradict it."""
    series = view.series(selector)[subject]
    trouble = counters.mixed(view, rule, selector, series, ("quantile",))
    if trouble:
        return trouble
    shown: dict[float, float | Trouble] = {}
    for one in series:
        sample = one.samples[-1]
        q = _as_float(dict(one.labels).get("quantile", ""))
        if sample is not None and q is not None:
            shown[q] = view.number(rule, f"{one.name}{{quantile={q:g}}}", sample)
    value = shown.get(rule.quantile, Trouble(f"{selector} has no quantile {rule.quantile:g} on the last page"))
    if isinstance(value, Trouble):
        return value
    known = {q: v for q, v in shown.items() if isinstance(v, float)}
    doubt = _contradiction(view, rule, selector, subject, known)
    if doubt:
        return doubt
    return Found(value * rule.factor, str(selector), notes("as the server estimates it", rule.note))


def _contradiction(
    view: View, rule: Rule, selector: Selector, subject: str, shown: Mapping[float, float]
) -> Trouble | None:
    count = counters.growth(view, rule, selector, view.series(selector, "_count").get(subject, ()))
    total = counters.growth(view, rule, selector, view.series(selector, "_sum").get(subject, ()))
    if isinstance(count, Trouble) or isinstance(total, Trouble):
        return count if isinstance(count, Trouble) else total if isinstance(total, Trouble) else None
    if count <= 0:
        return Trouble(f"{selector}_count {NOTHING_COUNTED}", unused=True)
    ordered = sorted(shown.items())
    if any(later[1] < earlier[1] for earlier, later in pairwise(ordered)):
        return Trouble(f"the quantiles of {selector} do not rise with their rank")
    mean, (top, highest) = total / count, ordered[-1]
    too_low = top >= _TOP_QUANTILE and mean > _SLACK * highest
    too_high = any(mean * _SLACK < (1 - q) * value for q, value in ordered)
    if too_low or too_high:
        figures = f"count {count:g}, sum {total:g}, so the mean is {mean:g}, but quantile {top:g} is {highest:g}"
        return Trouble(
            f"{selector} contradicts itself ({figures}): its quantiles are not used",
            next_step="take the quantiles that the clients or the gateway in front of it measure",
        )
    return None


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def label(view: View, rule: Rule) -> Outcome:
    """The text of a label on the last page. Two different texts for one subject are none."""
    seen: dict[str | None, dict[str, str]] = {}
    wanted = [selector for selector in (view.present(term) for term in rule.terms) if selector]
    for selector in wanted or view.selectors():
        for sample in view.scrapes[-1].page.samples.get(selector.name, ()):
            names = rule.label.split("|") if selector.accepts(sample) else []
            name, text = next(((name, clean(value, 200)) for name in names if (value := sample.label(name))), ("", ""))
            subject = view.subject(sample.labels)
            if text and subject is not None:
                seen.setdefault(subject, {}).setdefault(text, f"{selector.name}, label {name}")
    return {subject: _one_text(rule, texts) for subject, texts in seen.items()}


def _one_text(rule: Rule, texts: Mapping[str, str]) -> Found | Trouble:
    if len(texts) > 1:
        shown = ", ".join(f"{text!r} ({place})" for text, place in list(texts.items())[:2])
        return Trouble(f"{len(texts)} values stand on one page: {shown}")
    text, place = next(iter(texts.items()))
    return Found(text, place, rule.note)
