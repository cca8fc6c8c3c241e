"""Causes and findings in plain words: what `latdoctor explain` prints, and the pages of docs/causes hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from latdoctor.conditions import ast
from latdoctor.conditions.ast import Comparison, Condition, comparisons
from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.confusable_causes import Neighbour, Separator
from latdoctor.diagnosis.evaluate import OPTIONAL, PLACE
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet, SiteLimit
from latdoctor.evidence.catalogue import catalogue
from latdoctor.report.playbook import advised
from latdoctor.report.presenter import listed
from latdoctor.units import percent


def in_words(condition: Condition) -> str:
    return ast.in_words(condition, _spanned)


def _spanned(comparison: Comparison) -> str:
    return f"`{listed(comparison.text)}`{_sure(comparison)}"


def _sure(comparison: Comparison) -> str:
    """From where to where a bounded quantity is in doubt."""
    if comparison.ramp is None:
        return ""
    clear, certain = (show(comparison.left.signal, bound) for bound in comparison.ramp)
    return f" (surely not at {clear}, surely at {certain})"


_TOLD = 3  # findings that speak for the one and for the other, on a screen
_MUCH = 10  # points: ten times likelier


@dataclass(frozen=True, slots=True)
class ExplainSection:
    """A part of an explanation: a paragraph, or a list of lines. One without a title goes on with the part before."""

    title: str
    text: str = ""
    lines: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        return bool(self.text or self.lines)


def of_cause(cause: Cause, rules: RuleSet, near: Iterable[Neighbour]) -> Iterator[ExplainSection]:
    """What happens, how to make sure, what helps, by what it is told, and what it is not. `near`: its neighbours."""
    expected = sorted(cause.expects.items(), key=lambda item: -item[1])
    yield ExplainSection("Not ranked", cause.disabled)
    yield ExplainSection("What happens", cause.explanation)
    yield ExplainSection("How to confirm", cause.confirm)
    yield ExplainSection("How to mend", cause.remediation)
    yield ExplainSection("Playbooks (latdoctor playbooks show ID)", lines=tuple(map(advised, cause.playbooks)))
    seen = tuple(f"{percent(weight)} {named(rules.finding[name])}" for name, weight in expected)
    yield ExplainSection("What it makes us see", lines=seen)
    yield ExplainSection(
        "What speaks against it", lines=tuple(named(rules.finding[name]) for name in cause.excluded_by)
    )
    yield ExplainSection("What it is confused with", lines=tuple(_confused(one) for one in near if one.hard))
    yield ExplainSection("When it looks so and is not", lines=cause.false_positives)
    yield ExplainSection("Read more", lines=cause.references)


def of_finding(finding: Finding, rules: RuleSet) -> Iterator[ExplainSection]:
    """By what it holds and why that limit, and who expects it."""
    yield ExplainSection("Not judged", finding.disabled)
    yield ExplainSection("Why this limit", reason(finding, rules))
    yield ExplainSection("Site thresholds", lines=tuple(_site_limit(limit) for limit in finding.site))
    yield ExplainSection("Judged by", lines=tuple(judged_by(finding)))
    yield ExplainSection("", f"Without any of its causes it holds in {finding.leak * 100:g} % of looks.")
    expecting = expecting_it(finding, rules)
    known = tuple(f"{percent(cause.expects[finding.id])} {cause.id}: {cause.title}" for cause in expecting)
    yield ExplainSection("Causes that expect it", lines=known)


def expecting_it(finding: Finding, rules: RuleSet) -> tuple[Cause, ...]:
    """The causes that make us see `finding`, those that hardly ever lack it first."""
    expecting = [cause for cause in rules.causes if finding.id in cause.expects]
    return tuple(sorted(expecting, key=lambda cause: -cause.expects[finding.id]))


def named(finding: Finding) -> str:
    """Its id and what it says."""
    return f"{finding.id}: {sentence(finding)}"


def sentence(finding: Finding) -> str:
    """What the finding says, with dots where its numbers will stand."""
    return PLACE.sub("…", OPTIONAL.sub(r"\1", finding.message))


def reason(finding: Finding, rules: RuleSet) -> str:
    """Why its limit is what it is; where that is the reason of another finding, this too."""
    like = rules.finding.get(finding.rationale_from)
    return f"{finding.rationale} ({reason(like, rules)})" if like else finding.rationale


def judged_by(finding: Finding) -> Iterator[str]:
    """Each comparison with the meaning of its signal."""
    for comparison in comparisons(finding.when):
        yield f"{listed(comparison.text)}  ({catalogue()[comparison.left.signal].description})"


def _confused(near: Neighbour) -> str:
    this = _some(near.for_this, near.for_this_if_clear)
    that = _some(near.for_other, near.for_other_if_clear)
    return f"{near.cause.id} ({near.cause.title}): for this {this}; for that {that}"


def _some(holding: tuple[Separator, ...], clear: tuple[Separator, ...]) -> str:
    """The most telling of what holds; where that is little, of what is not seen."""
    known = [f"{one.finding.id} ({one.points:+d})" for one in holding[:_TOLD]]
    if not any(one.points >= _MUCH for one in holding):
        known += [f"no {one.finding.id} ({one.points:+d})" for one in clear[:_TOLD]]
    return ", ".join(known) or "nothing that is expected"


def _site_limit(limit: SiteLimit) -> str:
    place = Path(limit.where)
    return (
        f"{listed(limit.text)}, shipped as {listed(limit.shipped)}: {limit.rationale} "
        f"({place.parent.parent.name}/{place.parent.name}/{place.name})"
    )
