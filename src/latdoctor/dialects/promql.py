"""PromQL queries for a dialect's rules.

There are two kinds of queries. Samples: for each sample name its growth over a window (counters) or its value (gauges),
from which pages are built that the rules evaluate like scraped ones. Curves: a signal over a longer time as one
expression, with rates and quantiles computed by the server.

Only the labels that a rule itself sums over are aggregated, so that replicas and GPUs stay separate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from latdoctor.dialects.model import Dialect, Rule, RuleKind, Selector, Take, Term
from latdoctor.evidence.catalogue import catalogue

# The label that identifies the name of a series in a query of several names: functions drop `__name__`.
SAMPLE = "latdoctor_sample"
_BATCH = 24  # names per query: a proxy may limit its length, and one failure must not lose all of them
_QUANTILES = ((".p50", 0.5), (".p95", 0.95), (".p99", 0.99))
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*')
_SELECT = ("$select",)  # placeholder of the user's matchers in a curve
_MAX_SELECT = 2000  # characters

RAW, MEAN, HIGHEST = "raw", "mean", "highest"


class SampleNames(Struct, frozen=True):
    """The sample names of a dialect: counters, and gauges with the way to aggregate them between two moments."""

    counters: frozenset[str]
    levels: tuple[tuple[str, str], ...]  # (name, RAW | MEAN | HIGHEST)


class SignalCurve(Struct, frozen=True):
    """A signal over time: `$range` in `expression` is a duration; `factor` converts to the base unit."""

    signal: str
    expression: str
    factor: float
    names: frozenset[str]  # every one of them must be there


def parse_matchers(text: str) -> tuple[str, ...]:
    """Parse `{job="a",pod=~"b.*"}` and return its matchers in canonical form. Raises ValueError."""
    inside = text.strip()
    if len(inside) > _MAX_SELECT:
        raise ValueError(f"a selector of more than {_MAX_SELECT} characters")
    if inside.startswith("{") and inside.endswith("}"):
        inside = inside[1:-1]
    found: list[str] = []
    while inside.strip():
        match = _MATCHER.match(inside)
        if not match:
            raise ValueError('a selector is written {label="value",other=~"pattern"}')
        try:
            value = json.loads(match[3])
        except ValueError as error:
            raise ValueError(f"the value of {match[1]} is not a quoted string") from error
        found.append(f"{match[1]}{match[2]}{_quoted(value)}")
        inside = inside[match.end() :]
        if inside and not inside.startswith(","):
            raise ValueError("the matchers of a selector are separated by commas")
        inside = inside[1:]
    return tuple(found)


def name_matcher(names: Iterable[str], label: str = "__name__") -> str:
    """A matcher for any of `names`."""
    return f"{label}=~{_any_of(names)}"


def equals_matcher(label: str, value: str) -> str:
    """A matcher for exactly `value`."""
    return f"{label}={_quoted(value)}"


def format_selector(name: str, extra: Sequence[str] = (), of: Selector | None = None) -> str:
    """Format `name{…}` with the dialect's label filter and the user's matchers."""
    own = []
    for match in of.matches if of else ():
        own.append(f"{match.label}{'!~' if match.negated else '=~'}{_any_of(match.values)}")
    inside = ",".join((*own, *extra))
    return f"{name}{{{inside}}}" if inside else name


def sample_names(dialect: Dialect) -> SampleNames:
    """The samples to query for `dialect`. A name used both as a counter and as a gauge is a counter."""
    counters: set[str] = set()
    levels: dict[str, set[str]] = {}
    exact = bool(dialect.blanks)  # a mean that includes a marker for "no value" would be meaningless
    for rule in [rule for options in dialect.rules for rule in options]:
        names, gauges = _of_rule(rule)
        counters |= names
        raw = exact or rule.kind != RuleKind.GAUGE or rule.percent_or_ratio or rule.blank_from is not None
        for name in gauges:
            levels.setdefault(name, set()).add(RAW if raw else {Take.MEAN: MEAN, Take.MAX: HIGHEST}.get(rule.take, RAW))
    for bits in dialect.bits:
        for name in _names(bits.rule.terms):
            levels.setdefault(name, set()).add(RAW)
    for name in _names(dialect.idle):
        levels.setdefault(name, set()).add(RAW)
    kept = {name: ways.pop() if len(ways) == 1 else RAW for name, ways in levels.items() if name not in counters}
    return SampleNames(frozenset(counters), tuple(sorted(kept.items())))


def _of_rule(rule: Rule) -> tuple[set[str], set[str]]:
    """Its counters and its gauges."""
    terms = _names(rule.terms)
    if rule.kind in (RuleKind.RATE, RuleKind.RATIO):
        return terms | _names(rule.over), _names(rule.held)
    if rule.kind == RuleKind.HISTOGRAM:
        return {name + end for name in terms for end in ("_bucket", "_sum")}, set()
    if rule.kind == RuleKind.SUMMARY:
        return {name + end for name in terms for end in ("_sum", "_count")}, terms
    return set(), terms | _names(rule.over) | _names(rule.less)


def rule_samples(rule: Rule) -> frozenset[str]:
    """Every sample name that `rule` reads."""
    counters, gauges = _of_rule(rule)
    return frozenset(counters | gauges)


def _names(terms: Iterable[Term]) -> set[str]:
    return {option.name for term in terms for option in term.options}


def all_sample_names(dialects: Iterable[Dialect]) -> frozenset[str]:
    """Every sample name that some dialect reads or is recognised by."""
    found: set[str] = set()
    for dialect in dialects:
        needed = sample_names(dialect)
        found |= needed.counters | {name for name, _ in needed.levels} | set(dialect.recognise)
        found |= {name.removesuffix("_bucket") + "_count" for name in needed.counters if name.endswith("_bucket")}
    return frozenset(found)


def growth_queries(names: Iterable[str], window: float, extra: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield queries for the growth of counters over `window` seconds, resets included.

    A series created within the window on a target that was up before has grown from zero: `increase` would miss that
    first step, which may be all there is for an error counter.
    """
    over = duration(window)

    def one(name: str) -> str:
        what = format_selector(name, extra)
        up = f"(up{{{','.join(extra)}}} offset {over} == 1)"
        return f"((({what} unless {what} offset {over}) and on (job, instance) {up}) or increase({what}[{over}]))"

    yield from _batched(sorted(names), one)


def last_value_queries(names: Iterable[str], extra: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield queries for the current value of each name."""
    yield from _batched(sorted(names), lambda name: format_selector(name, extra))


def gauge_queries(
    levels: Iterable[tuple[str, str]], step: float, extra: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield step-by-step queries for gauges: their mean or maximum since the previous step if the rule takes that."""
    ways = dict(levels)

    def one(name: str) -> str:
        what = format_selector(name, extra)
        function = {MEAN: "avg_over_time", HIGHEST: "max_over_time"}.get(ways[name])
        return f"({function}({what}[{duration(step)}]) or {what})" if function else what

    yield from _batched(sorted(ways), one)


def _batched(names: Sequence[str], one: Callable[[str], str]) -> Iterator[tuple[tuple[str, ...], str]]:
    for start in range(0, len(names), _BATCH):
        part = tuple(names[start : start + _BATCH])
        marked = [f'label_replace({one(name)}, "{SAMPLE}", "{name}", "", "")' for name in part]
        yield part, " or ".join(marked)


def curve_queries(dialect: Dialect, signals: Sequence[str], present: frozenset[str]) -> Iterator[SignalCurve]:
    """Yield the curves of those `signals` that the dialect provides and whose samples are `present`, once each.

    Rules that keep a label separate or distinguish percent from ratio by the number format have no curve.
    """
    reported: set[str] = set()
    for rule in (rule for options in dialect.rules for rule in options):
        if rule.signal not in signals or rule.by or rule.percent_or_ratio:
            continue
        for one in _curves_of(dialect, rule, present):
            if one.names <= present and one.signal not in reported:
                reported.add(one.signal)
                yield one


def _curves_of(dialect: Dialect, rule: Rule, present: frozenset[str]) -> Iterator[SignalCurve]:
    if rule.kind == RuleKind.HISTOGRAM:
        yield from _spread(rule, present)
    elif rule.kind == RuleKind.RATIO:
        above, below = _summed(rule, rule.terms, present), _summed(rule, rule.over, present)
        yield _curve(rule, f"{above[0]} / ({below[0]} > 0)", above[1] | below[1])
    elif rule.kind == RuleKind.RATE:
        grown, names = _summed(rule, rule.terms, present)
        held = [_option(term, present) for term in rule.held]
        for one in held:
            change = f"deriv({format_selector(one.name, _SELECT, one)}[$range])"
            grown += f" + {_over(rule, change)}"
        yield _curve(rule, f"clamp_min({grown}, 0)", names | {one.name for one in held})
    elif rule.kind == RuleKind.GAUGE:
        exact = bool(dialect.blanks) or rule.blank_from is not None
        parts = [_level(rule, terms, present, exact=exact) for terms in (rule.terms, rule.over, rule.less)]
        text = parts[0][0]
        text += f" - {parts[2][0]}" if rule.less else ""
        text = f"({text}) / ({parts[1][0]} > 0)" if rule.over else text
        yield _curve(rule, text, parts[0][1] | parts[1][1] | parts[2][1])


def _curve(rule: Rule, expression: str, names: frozenset[str], suffix: str = "") -> SignalCurve:
    return SignalCurve(rule.signal + suffix, expression, rule.factor, names)


def _spread(rule: Rule, present: frozenset[str]) -> Iterator[SignalCurve]:
    """The quantiles of a histogram, computed by the server, and its mean."""
    name = _option(rule.terms[0], present, "_bucket")
    buckets = format_selector(name.name + "_bucket", _SELECT, name)
    for suffix, share in _QUANTILES:
        if rule.signal + suffix in catalogue():
            inside = _over(rule, f"rate({buckets}[$range])")
            yield _curve(rule, f"histogram_quantile({share}, {inside})", frozenset({name.name + "_bucket"}), suffix)
    if rule.signal + ".mean" in catalogue():
        total, count = (
            _over(rule, f"rate({format_selector(name.name + end, _SELECT, name)}[$range])")
            for end in ("_sum", "_count")
        )
        names = frozenset({name.name + "_sum", name.name + "_count"})
        yield _curve(rule, f"{total} / ({count} > 0)", names, ".mean")


def _summed(rule: Rule, terms: Sequence[Term], present: frozenset[str]) -> tuple[str, frozenset[str]]:
    chosen = [_option(term, present) for term in terms]
    parts = [_over(rule, f"rate({format_selector(one.name, _SELECT, one)}[$range])") for one in chosen]
    return _sum(parts), frozenset(one.name for one in chosen)


def _level(rule: Rule, terms: Sequence[Term], present: frozenset[str], *, exact: bool) -> tuple[str, frozenset[str]]:
    chosen = [_option(term, present) for term in terms]
    what = [format_selector(one.name, _SELECT, one) for one in chosen]
    parts = [_over(rule, one if exact else f"(avg_over_time({one}[$range]) or {one})") for one in what]
    return _sum(parts), frozenset(one.name for one in chosen)


def _sum(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


def _over(rule: Rule, expression: str) -> str:
    return f"sum without ({', '.join(rule.sum_over)}) ({expression})" if rule.sum_over else expression


def _option(term: Term, present: frozenset[str], suffix: str = "") -> Selector:
    """The first of the names that is there; else the first of all, which is then missing."""
    return next((one for one in term.options if one.name + suffix in present), term.options[0])


def duration(seconds: float) -> str:
    """A PromQL duration of at least a millisecond."""
    return f"{max(1, round(seconds * 1000))}ms"


def _any_of(values: Iterable[str]) -> str:
    """A pattern for these very texts."""
    return _quoted("|".join(_SPECIAL.sub(r"\\\1", value) for value in values))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
