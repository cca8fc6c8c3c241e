"""Growth of counters and histograms between the first and the last page.

A counter that decreased belongs to a restarted server, and its growth is unknown. With a single page the growth is the
whole value: everything since the server started.
"""

from __future__ import annotations

import math
from itertools import pairwise

from latdoctor.dialects.metrics_page_model import BadLine
from latdoctor.dialects.model import Histogram, Rule, Selector, Term, Unusable
from latdoctor.dialects.page_series import DialectView, SampleSeries
from latdoctor.evidence.model import Bucket, Labels
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

_AGAIN = "collect again now that it is up"
RESTART_FAMILY = "process_start_time_seconds"


def restarted(view: DialectView) -> Unusable | None:
    """Return why growth is unknown if the server's start time changed between the pages."""
    starts = {s.value for scrape in view.scrapes for s in scrape.page.samples.get(RESTART_FAMILY, ())[:1]}
    if len(starts) > 1 and max(starts) - min(starts) > 1:
        return Unusable(
            f"the server restarted between the pages ({RESTART_FAMILY} changed)", GapCode.INCONSISTENT, next_step=_AGAIN
        )
    return None


def unsummable(
    view: DialectView, rule: Rule, selector: Selector, series: tuple[SampleSeries, ...], ignored: tuple[str, ...] = ()
) -> Unusable | None:
    """Return why the series of one subject must not be summed: they differ in labels that the rule does not name."""
    free = {*rule.sum_over, *ignored}
    if rule.sum_over and any(_may_be(bad, selector) for scrape in view.scrapes for bad in scrape.page.bad_lines):
        return Unusable(f"a line of {selector.name} could not be read, so its sum is unknown", GapCode.UNREADABLE)
    kept = {tuple(pair for pair in one.labels if pair[0] not in free) for one in series}
    if len(kept) < 2:
        return None
    common = set.intersection(*[set(labels) for labels in kept])
    differing = sorted({pair[0] for labels in kept for pair in labels if pair not in common})
    return Unusable(
        f"{selector} has {len(kept)} series for one subject (by {clean(', '.join(differing), 100)})", GapCode.AMBIGUOUS
    )


def _may_be(bad: BadLine, selector: Selector) -> bool:
    """Whether the line may have been one of the selector's; a truncated page may end within the name."""
    names = (selector.name, selector.name + "_bucket", selector.name + "_sum", selector.name + "_count")
    return bad.name != "" and any(name.startswith(bad.name) for name in names)


def growth(view: DialectView, rule: Rule, selector: Selector, series: tuple[SampleSeries, ...]) -> float | Unusable:
    """The growth of one counter, summed over the series that the rule allows to sum."""
    total = 0.0
    trouble = unsummable(view, rule, selector, series)
    if trouble:
        return trouble
    for one in series:
        grown = _growth_of(view, rule, one)
        if isinstance(grown, Unusable):
            return grown
        total += grown
    return total


def _growth_of(view: DialectView, rule: Rule, series: SampleSeries) -> float | Unusable:
    values: list[float] = []
    for sample in series.samples:
        value = None if sample is None else view.number(rule, series.name, sample)
        if isinstance(value, Unusable):
            return value
        if value is not None:
            values.append(value)
    if series.samples[-1] is None:
        return Unusable(f"{series.name} is gone from the last page (restarted or unloaded)", GapCode.STOPPED)
    if view.lone:
        return values[-1]
    for before, after in pairwise(values):
        if after < before:
            why = f"the server restarted{_doubt(view, series.name)}"
            return Unusable(
                f"{series.name} decreased from {before:g} to {after:g}: {why}", GapCode.INCONSISTENT, next_step=_AGAIN
            )
    if series.samples[0] is not None:
        return values[-1] - values[0]
    if view.scrapes[0].page.bad_lines:
        return Unusable(
            f"{series.name} is missing from the first page, which could not be read completely", GapCode.UNREADABLE
        )
    return values[-1]  # created between the pages: counters begin at zero, so all of it is growth


def _doubt(view: DialectView, name: str) -> str:
    """Other possible reasons for a decrease of the counter `name`."""
    others = "" if view.window else ", or the pages are of two servers or in the wrong order"
    cut = any(scrape.page.unended and scrape.page.unended.name == name for scrape in view.scrapes)
    return others + (", or a page was truncated within this number" if cut else "")


def held_growth(view: DialectView, rule: Rule, term: Term, subject: str) -> float | Unusable:
    """The growth of a gauge, which may be negative."""
    selector = view.present(term)
    series = view.series(selector).get(subject, ()) if selector else ()
    total = 0.0
    for one in series:
        first, last = one.samples[0], one.samples[-1]
        if first is None or last is None or not math.isfinite(last.value - first.value):
            return Unusable(f"{one.name} is not on both pages", GapCode.INSUFFICIENT)
        total += last.value - first.value
    return total if series else Unusable(f"{term} is not exported", GapCode.ABSENT)


def histogram(view: DialectView, rule: Rule, selector: Selector, subject: str) -> Histogram | Unusable:
    """The observations of a histogram between first and last page, summed over the labels that the rule allows."""
    series = view.series(selector, "_bucket").get(subject, ())
    trouble = unsummable(view, rule, selector, series, ("le",))
    if trouble:
        return trouble
    per_bound: dict[float, float] = {}
    shapes: dict[Labels, set[float]] = {}
    for one in series:
        bound = _bound(one)
        grown = _growth_of(view, rule, one)
        if isinstance(bound, Unusable):
            return bound
        if isinstance(grown, Unusable):
            return grown
        shapes.setdefault(tuple(pair for pair in one.labels if pair[0] != "le"), set()).add(bound)
        per_bound[bound] = per_bound.get(bound, 0.0) + grown
    if len({frozenset(shape) for shape in shapes.values()}) != 1 or math.inf not in per_bound:
        return Unusable(f"the buckets of {selector} are inconsistent or lack +Inf", GapCode.INCONSISTENT)
    if len(per_bound) == 1:  # a native histogram in the text format, or one of OpenTelemetry without bounds
        return Unusable(f"{selector} has no bucket bounds, only a sum and a count: no quantiles", GapCode.ABSENT)
    buckets = _buckets(selector, per_bound)
    if isinstance(buckets, Unusable):
        return buckets
    total = growth(view, rule, selector, view.series(selector, "_sum").get(subject, ()))
    return Histogram(buckets, total if isinstance(total, float) and total > 0 else None)


def _bound(series: SampleSeries) -> float | Unusable:
    text = dict(series.labels).get("le", "")
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    return (
        Unusable(f"{series.name} has a bucket bound {clean(text, 40)!r}", GapCode.UNREADABLE)
        if math.isnan(bound)
        else bound
    )


def _buckets(selector: Selector, per_bound: dict[float, float]) -> tuple[Bucket, ...] | Unusable:
    """Convert cumulative counts to counts per bucket. All values are non-negative, so the first bucket starts at 0."""
    buckets: list[Bucket] = []
    low, below = 0.0, 0.0
    for bound in sorted(per_bound):
        count = per_bound[bound] - below
        if count < 0:
            return Unusable(f"the buckets of {selector} are not cumulative at {bound:g}", GapCode.INCONSISTENT)
        buckets.append(Bucket(min(low, bound), bound, count))
        low, below = bound, per_bound[bound]
    return tuple(buckets)
