"""A page for each cause, and one that lists them: all that the rules say of it, and what tells it from others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Collector
from latdoctor.collectors.prometheus import ANSWERING
from latdoctor.collectors.prometheus import TITLE as LIVE_TITLE
from latdoctor.collectors.promql import CHANGES, TITLE
from latdoctor.conditions.ast import AllOf, AnyOf, Comparison, Condition, Given, Not, Prefer, Reference, signals_of
from latdoctor.detectors.catalog import derivable_signals
from latdoctor.diagnosis.confusable_causes import Neighbour, Separator, neighbours
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet
from latdoctor.dialects.changes import change_signals
from latdoctor.dialects.loader import shipped
from latdoctor.evidence.catalogue import TIERS, catalogue
from latdoctor.report.explain import expecting_it, in_words, reason, sentence
from latdoctor.report.playbook import advised
from latdoctor.units import percent

# These two read pages and series by dialect: a signal comes from the server that shows it.
_BY_DIALECT = ("prometheus", "promql")


def sources() -> Mapping[str, tuple[str, ...]]:
    """Where each signal of the catalogue comes from: dialects, collectors, and the detectors that derive it."""
    found: dict[str, list[str]] = {name: [] for name in catalogue()}
    for title, signals in _given():
        for signal in sorted(signals):
            found[signal].append(title)
    return {name: tuple(titles) for name, titles in found.items()}


def _given() -> Iterator[tuple[str, frozenset[str]]]:
    """Everything that gives signals, by its title."""
    read_by = [(dialect.title, frozenset(dialect.signals)) for dialect in shipped()]
    direct = [(title, signals | change_signals(signals)) for title, signals in read_by]
    direct += [(one.title, one.provides) for one in COLLECTORS if one.name not in _BY_DIALECT]
    direct += [(TITLE, CHANGES), (LIVE_TITLE, frozenset([ANSWERING]))]
    yield from direct
    read = frozenset(signal for _, signals in direct for signal in signals)
    for name, signals in derivable_signals(read).items():
        yield f"derived ({name.replace('_', ' ')})", signals


def page() -> str:
    """docs/signals.md."""
    where = sources()
    reached = sum(1 for titles in where.values() if titles)
    parts = [
        "# Signals",
        f"Every quantity that latdoctor speaks of: {len(where)} signals, {reached} of which some source gives.\n"
        "`python docs/generate.py` writes this page from `src/latdoctor/evidence/catalogue/`, the dialects, the\n"
        "collectors and the detectors.",
        "A server's or exporter's page is read live (`--server`), saved (`--metrics`) or out of the history of a\n"
        "Prometheus server (`--prometheus`): the same dialect gives the same signals. A value that a source does not\n"
        "show is not zero but unknown, and the report says why.",
    ]
    for tier in TIERS:
        parts.append(f"## {tier.capitalize()}\n\n" + "\n".join(_table(tier, where)))
    return "\n\n".join(parts) + "\n"


def _table(tier: str, where: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    yield "| signal | unit | meaning | comes from |"
    yield "|---|---|---|---|"
    for signal in sorted((one for one in catalogue().values() if one.tier == tier), key=lambda one: one.id):
        unit = signal.unit.name if signal.kind in ("value", "share", "distribution") else signal.kind
        kind = f"{unit}, distribution" if signal.kind == "distribution" else unit
        yield f"| `{signal.id}` | {kind} | {signal.description} | {', '.join(where[signal.id]) or 'nothing yet'} |"


_MADE = "`python docs/generate.py` writes this page from the rules; `latdoctor explain {}` prints the gist of it."
_TOLD = 6  # findings that speak for one cause against another: more add nothing


@dataclass(frozen=True, slots=True)
class Source:
    """A way to look, and every signal that it tells or that can be derived from those alone."""

    collector: Collector
    signals: frozenset[str]


def pages(rules: RuleSet, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The pages by file name. `pairs` are the causes that are published as hard to tell apart."""
    ways = tuple(_ways())
    made = {f"{cause.id}.md": _page(cause, rules, pairs, ways) for cause in rules.causes}
    return {"README.md": _index(rules), **made}


def _ways() -> Iterator[Source]:
    for collector in COLLECTORS:
        if collector.option:
            derived = frozenset(one for given in derivable_signals(collector.provides).values() for one in given)
            yield Source(collector, collector.provides | derived)


def _index(rules: RuleSet) -> str:
    parts = [
        "# Causes",
        f"The {len(rules.causes)} causes that latdoctor tells apart, and a page for each: what one sees, why it\n"
        "happens, how to confirm and how to mend it, and what it is confused with. `python docs/generate.py` writes\n"
        "them from the rules.",
    ]
    for tier in TIERS:
        rows = [
            f"| [`{one.id}`]({one.id}.md) | {one.title} | {one.severity} |" for one in rules.causes if one.tier == tier
        ]
        parts.append(
            "\n".join([f"## {tier.capitalize()}\n", "| cause | what is wrong | severity |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _page(cause: Cause, rules: RuleSet, pairs: Sequence[tuple[str, str]], ways: Sequence[Source]) -> str:
    expected = [rules.finding[name] for name in sorted(cause.expects, key=lambda name: (-cause.expects[name], name))]
    near = neighbours(cause, rules, pairs)
    rows = [f"* {line}" for line in cause.references]
    parts = [
        f"# {cause.title}",
        _facts(cause),
        _MADE.format(cause.id),
        "## What one sees\n\n" + "\n".join(_seen(cause, expected, rules)),
        f"## Why\n\n{cause.explanation}",
        f"## How to confirm\n\n{cause.confirm}",
        "## How to mend\n\n" + "\n\n".join(_mending(cause)),
        "## What it is confused with\n\n" + "\n\n".join(_confused(near)),
        "## What speaks against it\n\n" + "\n".join(_against(cause, rules)) if cause.excluded_by else "",
        "## When it looks so and is not\n\n" + "\n".join(f"* {line}" for line in cause.false_positives),
        "## Where to look\n\n" + "\n\n".join(_looks(cause, expected, ways)),
        "## Signals\n\n" + "\n".join(_signals(expected)),
        "## References\n\n" + "\n".join(rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(cause: Cause) -> str:
    stage = f" · takes its time from the stage `{cause.stage}`" if cause.stage else ""
    status = "" if cause.status == "stable" else f" · {cause.status}"
    return f"`{cause.id}` · [{cause.tier}](README.md#{cause.tier}) · {cause.severity}{status}{stage}"


def _seen(cause: Cause, expected: Sequence[Finding], rules: RuleSet) -> Iterator[str]:
    """What the cause makes us see, and by which limits; what points at causes before what many of them do."""
    yield "How often this cause makes each finding hold, and in how many looks it holds with no cause behind it:"
    yield ""
    for finding in sorted(expected, key=lambda one: not one.specific):
        kind = "" if finding.specific else f", a {finding.kind} that names nobody"
        yield (
            f"* **`{finding.id}`** {percent(cause.expects[finding.id])}, otherwise {finding.leak * 100:g} %{kind}: "
            f"{sentence(finding)}"
        )
        yield f"  * holds where {in_words(finding.when)}"
        if finding.not_applicable_when is not None:
            yield f"  * does not apply where {in_words(finding.not_applicable_when)}"
        if finding.rationale:
            yield f"  * why: {reason(finding, rules)}"


def _mending(cause: Cause) -> Iterator[str]:
    yield cause.remediation
    for name in cause.playbooks:
        yield f"Playbook: {advised(name)} (`latdoctor playbooks show {name}`)."
    if cause.keep_evidence:
        yield "Do not restart before `latdoctor collect` has run: a restart destroys what proves it."
    if cause.owner:
        yield f"Whom to wake: {cause.owner}."


def _confused(near: Sequence[Neighbour]) -> Iterator[str]:
    """The neighbours, and which findings tell them apart."""
    if not near:
        yield "No other cause makes us see any of the same findings."
        return
    yield (
        "Points are what a finding counts where it holds: 10 points make the one cause ten times likelier than the "
        "other.\nFirst what is published as hard to tell apart, then whatever makes us see some of the same."
    )
    for one in near:
        hard = " (hard to tell apart)" if one.hard else ""
        shared = ", ".join(f"`{finding.id}`" for finding in one.shared) or "no specific finding"
        yield (
            f"### {one.cause.title}{hard}\n\n"
            f"[`{one.cause.id}`]({one.cause.id}.md). Both make us see: {shared}.\n\n"
            f"* For this one: {_told(one.for_this, one.for_this_if_clear)}\n"
            f"* For that one: {_told(one.for_other, one.for_other_if_clear)}"
        )


def _told(holding: Sequence[Separator], clear: Sequence[Separator]) -> str:
    """What speaks for one side: what holds, and what is clear though the other side would show it."""
    parts = [_some(holding) or "nothing beyond what both expect"]
    if clear:
        parts.append(f"not seeing {_some(clear)}")
    return "; ".join(parts)


def _some(separators: Sequence[Separator]) -> str:
    shown = [f"`{one.finding.id}` ({one.points:+d})" for one in separators[:_TOLD]]
    more = f" and {len(separators) - _TOLD} more" if len(separators) > _TOLD else ""
    return ", ".join(shown) + more


def _against(cause: Cause, rules: RuleSet) -> Iterator[str]:
    """What makes the cause fifty times less likely where it holds, and whom it points at."""
    yield "Where one of these holds, this cause becomes fifty times less likely:"
    yield ""
    for finding in (rules.finding[name] for name in cause.excluded_by):
        others = [f"[`{one.id}`]({one.id}.md)" for one in expecting_it(finding, rules)]
        yield f"* `{finding.id}`: {sentence(finding)}" + (f" ({', '.join(others)})" if others else "")


def _looks(cause: Cause, expected: Sequence[Finding], ways: Sequence[Source]) -> Iterator[str]:
    """Which looks can judge which findings, each by itself."""
    known = {way.collector.name: [one.id for one in expected if can_judge(one.when, way.signals)] for way in ways}
    rows = [
        f"| {way.collector.title} | `{way.collector.option}` | {way.collector.cost} | "
        f"{', '.join(f'`{name}`' for name in known[way.collector.name])} |"
        for way in ways
        if known[way.collector.name]
    ]
    yield f"Next look: `{cause.next_look}`"
    yield "\n".join(["| source | flag | cost | can judge by itself |", "|---|---|---|---|", *rows])
    alone = {name for names in known.values() for name in names}
    together = [f"`{one.id}`" for one in expected if one.id not in alone]
    if together:
        yield f"Two sources together: {', '.join(together)}."


def can_judge(condition: Condition, signals: frozenset[str]) -> bool:
    """Whether `condition` can be judged where only `signals` are told, with the baseline and SLO that it asks for."""
    match condition:
        case Comparison(left, _, right):
            against = {right.of} & catalogue().keys() if isinstance(right, Reference) else set()
            return {left.signal, *against} <= signals
        case AllOf(parts):
            return all(can_judge(part, signals) for part in parts)
        case AnyOf(parts):
            return any(can_judge(part, signals) for part in parts)
        case Not(part):
            return can_judge(part, signals)
        case Given(part, given):
            return can_judge(part, signals) and can_judge(given, signals)
        case Prefer(first, otherwise):
            return can_judge(first, signals) or can_judge(otherwise, signals)


def _signals(expected: Iterable[Finding]) -> Iterator[str]:
    """Every signal that a finding speaks of, and who tells it."""
    where = sources()
    yield "| signal | meaning | comes from |"
    yield "|---|---|---|"
    for signal in sorted({name for finding in expected for name in signals_of(finding.when)}):
        yield f"| `{signal}` | {catalogue()[signal].description} | {', '.join(where[signal])} |"
