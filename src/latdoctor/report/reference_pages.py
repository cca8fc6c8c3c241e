"""Generated documentation: docs/signals.md, the list of causes and a page for each cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Collector
from latdoctor.collectors.outage import SIGNALS as OUTAGE_SIGNALS
from latdoctor.collectors.prometheus import TITLE as LIVE_TITLE
from latdoctor.collectors.promql import CHANGES, TITLE
from latdoctor.conditions.ast import AllOf, AnyOf, Comparison, Condition, Given, Not, Prefer, Reference, signals_of
from latdoctor.detectors.catalog import derivable_signals
from latdoctor.diagnosis.codes import CauseStatus
from latdoctor.diagnosis.confusable_causes import Neighbour, Separator, neighbours
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet
from latdoctor.dialects.changes import change_signals
from latdoctor.dialects.loader import shipped
from latdoctor.evidence.catalogue import TIERS, SignalKind, catalogue
from latdoctor.report.explain import expecting_it, in_words, reason, sentence
from latdoctor.report.playbook import advised
from latdoctor.units import percent

# These two read pages and series by dialect: the source of a signal is the server that exports it.
_BY_DIALECT = ("prometheus", "promql")


def sources() -> Mapping[str, tuple[str, ...]]:
    """The sources of each signal of the catalogue: dialects, collectors, and the detectors that derive it."""
    found: dict[str, list[str]] = {name: [] for name in catalogue()}
    for title, signals in _signal_sources():
        for signal in sorted(signals):
            found[signal].append(title)
    return {name: tuple(titles) for name, titles in found.items()}


def _signal_sources() -> Iterator[tuple[str, frozenset[str]]]:
    """Everything that provides signals, by its title."""
    read_by = [(dialect.title, frozenset(dialect.signals)) for dialect in shipped()]
    direct = [(title, signals | change_signals(signals)) for title, signals in read_by]
    direct += [(one.title, one.provides) for one in COLLECTORS if one.name not in _BY_DIALECT]
    direct += [(TITLE, CHANGES), (LIVE_TITLE, OUTAGE_SIGNALS)]
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
        f"Every quantity that latdoctor measures: {len(where)} signals, {reached} of which have a source.\n"
        "`python docs/generate.py` writes this page from `src/latdoctor/evidence/catalogue/`, the dialects, the\n"
        "collectors and the detectors.",
        "A server's or exporter's page is read live (`--server`), from a file (`--metrics`) or from the history of a\n"
        "Prometheus server (`--prometheus`): one dialect maps all three to the same signals. A value that is\n"
        "not exported is unknown and not zero, and the report has the reason.",
    ]
    for tier in TIERS:
        parts.append(f"## {tier.capitalize()}\n\n" + "\n".join(_table(tier, where)))
    return "\n\n".join(parts) + "\n"


_WITH_UNIT = (SignalKind.VALUE, SignalKind.SHARE, SignalKind.DEVIATION, SignalKind.DISTRIBUTION)


def _table(tier: str, where: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    yield "| signal | unit | meaning | sources |"
    yield "|---|---|---|---|"
    for signal in sorted((one for one in catalogue().values() if one.tier == tier), key=lambda one: one.id):
        unit = signal.unit.name if signal.kind in _WITH_UNIT else signal.kind
        kind = f"{unit}, distribution" if signal.kind == SignalKind.DISTRIBUTION else unit
        yield f"| `{signal.id}` | {kind} | {signal.description} | {', '.join(where[signal.id]) or 'none'} |"


_MADE = "`python docs/generate.py` writes this page from the rules; `latdoctor explain {}` prints a summary."
_MAX_SEPARATORS = 6  # findings that separate two causes


@dataclass(frozen=True, slots=True)
class Source:
    """A collector with the signals that it provides, and those that can be derived from them alone."""

    collector: Collector
    signals: frozenset[str]


def pages(rules: RuleSet, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The pages by file name. `pairs` are the causes that are known to be hard to distinguish."""
    readers = tuple(_collector_sources())
    made = {f"{cause.id}.md": _page(cause, rules, pairs, readers) for cause in rules.causes}
    return {"README.md": _index(rules), **made}


def _collector_sources() -> Iterator[Source]:
    for collector in COLLECTORS:
        if collector.option:
            derived = frozenset(one for signals in derivable_signals(collector.provides).values() for one in signals)
            yield Source(collector, collector.provides | derived)


def _index(rules: RuleSet) -> str:
    parts = [
        "# Causes",
        f"The {len(rules.causes)} causes that latdoctor distinguishes. Each page has expected findings, explanation,\n"
        "confirmation, remediation and similar causes. `python docs/generate.py` writes them from the rules.",
    ]
    for tier in TIERS:
        rows = [
            f"| [`{one.id}`]({one.id}.md) | {one.title} | {one.severity} |" for one in rules.causes if one.tier == tier
        ]
        parts.append("\n".join([f"## {tier.capitalize()}\n", "| cause | title | severity |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _page(cause: Cause, rules: RuleSet, pairs: Sequence[tuple[str, str]], readers: Sequence[Source]) -> str:
    expected = [rules.finding[name] for name in sorted(cause.expects, key=lambda name: (-cause.expects[name], name))]
    near = neighbours(cause, rules, pairs)
    rows = [f"* {line}" for line in cause.references]
    parts = [
        f"# {cause.title}",
        _facts(cause),
        _MADE.format(cause.id),
        "## Expected findings\n\n" + "\n".join(_expected(cause, expected, rules)),
        f"## Explanation\n\n{cause.explanation}",
        f"## Confirmation\n\n{cause.confirm}",
        "## Remediation\n\n" + "\n\n".join(_remediation(cause)),
        "## Similar causes\n\n" + "\n\n".join(_similar(near)),
        "## Findings against it\n\n" + "\n".join(_against(cause, rules)) if cause.excluded_by else "",
        "## False positives\n\n" + "\n".join(f"* {line}" for line in cause.false_positives),
        "## Sources\n\n" + "\n\n".join(_sources(cause, expected, readers)),
        "## Signals\n\n" + "\n".join(_signals(expected)),
        "## References\n\n" + "\n".join(rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(cause: Cause) -> str:
    stage = f" · stage `{cause.stage}`" if cause.stage else ""
    status = "" if cause.status == CauseStatus.STABLE else f" · {cause.status}"
    return f"`{cause.id}` · [{cause.tier}](README.md#{cause.tier}) · {cause.severity}{status}{stage}"


def _expected(cause: Cause, expected: Sequence[Finding], rules: RuleSet) -> Iterator[str]:
    """The findings that the cause expects with their limits, specific ones first."""
    yield "How often each finding holds with this cause, and how often without any of its causes:"
    yield ""
    for finding in sorted(expected, key=lambda one: not one.specific):
        kind = "" if finding.specific else f", a {finding.kind} that points at no cause"
        yield (
            f"* **`{finding.id}`** {percent(cause.expects[finding.id])}, otherwise {finding.leak * 100:g} %{kind}: "
            f"{sentence(finding)}"
        )
        yield f"  * holds where {in_words(finding.when)}"
        if finding.not_applicable_when is not None:
            yield f"  * does not apply where {in_words(finding.not_applicable_when)}"
        if finding.rationale:
            yield f"  * why: {reason(finding, rules)}"


def _remediation(cause: Cause) -> Iterator[str]:
    yield cause.remediation
    for name in cause.playbooks:
        yield f"Playbook: {advised(name)} (`latdoctor playbooks show {name}`)."
    if cause.keep_evidence:
        yield "Run `latdoctor collect` before a restart: the restart destroys the evidence."
    if cause.owner:
        yield f"Page: {cause.owner}."


def _similar(near: Sequence[Neighbour]) -> Iterator[str]:
    """The similar causes, and the findings that separate them."""
    if not near:
        yield "No other cause expects any of the same findings."
        return
    yield (
        "A finding that holds counts its points: 10 points are ten times the odds of one cause against the other.\n"
        "Causes that are hard to distinguish come first, then others that share findings."
    )
    for one in near:
        hard = " (hard to distinguish)" if one.hard else ""
        shared = ", ".join(f"`{finding.id}`" for finding in one.shared) or "no specific finding"
        yield (
            f"### {one.cause.title}{hard}\n\n"
            f"[`{one.cause.id}`]({one.cause.id}.md). Both expect: {shared}.\n\n"
            f"* For this cause: {_separating(one.for_this, one.for_this_if_clear)}\n"
            f"* For the other: {_separating(one.for_other, one.for_other_if_clear)}"
        )


def _separating(holding: Sequence[Separator], clear: Sequence[Separator]) -> str:
    """The findings for one side: those that hold, and those that are clear although the other side expects them."""
    parts = [_some(holding) or "no finding beyond the shared ones"]
    if clear:
        parts.append(f"clear: {_some(clear)}")
    return "; ".join(parts)


def _some(separators: Sequence[Separator]) -> str:
    shown = [f"`{one.finding.id}` ({one.points:+d})" for one in separators[:_MAX_SEPARATORS]]
    more = f" and {len(separators) - _MAX_SEPARATORS} more" if len(separators) > _MAX_SEPARATORS else ""
    return ", ".join(shown) + more


def _against(cause: Cause, rules: RuleSet) -> Iterator[str]:
    """The findings that make the cause fifty times less likely, and the causes that they point at."""
    yield "Each of these makes the cause fifty times less likely:"
    yield ""
    for finding in (rules.finding[name] for name in cause.excluded_by):
        others = [f"[`{one.id}`]({one.id}.md)" for one in expecting_it(finding, rules)]
        yield f"* `{finding.id}`: {sentence(finding)}" + (f" ({', '.join(others)})" if others else "")


def _sources(cause: Cause, expected: Sequence[Finding], readers: Sequence[Source]) -> Iterator[str]:
    """The findings that each source can judge by itself."""
    known = {
        source.collector.name: [one.id for one in expected if can_judge(one.when, source.signals)] for source in readers
    }
    rows = [
        f"| {source.collector.title} | `{source.collector.option}` | {source.collector.cost} | "
        f"{', '.join(f'`{name}`' for name in known[source.collector.name])} |"
        for source in readers
        if known[source.collector.name]
    ]
    yield f"Next: `{cause.next_look}`"
    yield "\n".join(["| source | flag | cost | can judge by itself |", "|---|---|---|---|", *rows])
    alone = {name for names in known.values() for name in names}
    together = [f"`{one.id}`" for one in expected if one.id not in alone]
    if together:
        yield f"With two sources together: {', '.join(together)}."


def can_judge(condition: Condition, signals: frozenset[str]) -> bool:
    """Whether `condition` can be judged from `signals` alone, given the baseline and SLO that it uses."""
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
        case Given(part, premise):
            return can_judge(part, signals) and can_judge(premise, signals)
        case Prefer(first, otherwise):
            return can_judge(first, signals) or can_judge(otherwise, signals)


def _signals(expected: Iterable[Finding]) -> Iterator[str]:
    """Every signal of the findings with its sources."""
    where = sources()
    yield "| signal | meaning | sources |"
    yield "|---|---|---|"
    for signal in sorted({name for finding in expected for name in signals_of(finding.when)}):
        yield f"| `{signal}` | {catalogue()[signal].description} | {', '.join(where[signal])} |"
