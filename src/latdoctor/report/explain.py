"""Causes and findings in words, for `latdoctor explain` and the pages of docs/causes."""

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
from latdoctor.report.diagnosis_text import listed
from latdoctor.report.playbook import advised
from latdoctor.units import percent


def in_words(condition: Condition) -> str:
    return ast.in_words(condition, _spanned)


def _spanned(comparison: Comparison) -> str:
    return f"`{listed(comparison.text)}`{_sure(comparison)}"


def _sure(comparison: Comparison) -> str:
    """The range in which a bounded quantity is uncertain."""
    if comparison.ramp is None:
        return ""
    clear, certain = (show(comparison.left.signal, bound) for bound in comparison.ramp)
    return f" (surely not at {clear}, surely at {certain})"


_MAX_SEPARATORS = 3  # findings for either cause, on a screen
_DECISIVE = 10  # points: ten times the odds


@dataclass(frozen=True, slots=True)
class ExplainSection:
    """A paragraph or a list of lines; without a title it continues the section before."""

    title: str
    text: str = ""
    lines: tuple[str, ...] = ()

    @property
    def has_content(self) -> bool:
        return bool(self.text or self.lines)


def of_cause(cause: Cause, rules: RuleSet, near: Iterable[Neighbour]) -> Iterator[ExplainSection]:
    """Explanation, confirmation, remediation, expected findings and similar causes, of which `near` are given."""
    expected = sorted(cause.expects.items(), key=lambda item: -item[1])
    yield ExplainSection("Not ranked", cause.disabled)
    yield ExplainSection("Explanation", cause.explanation)
    yield ExplainSection("Confirmation", cause.confirm)
    yield ExplainSection("Remediation", cause.remediation)
    yield ExplainSection("Playbooks (latdoctor playbooks show ID)", lines=tuple(map(advised, cause.playbooks)))
    expected_lines = tuple(f"{percent(weight)} {named(rules.finding[name])}" for name, weight in expected)
    yield ExplainSection("Expected findings", lines=expected_lines)
    yield ExplainSection("Findings against it", lines=tuple(named(rules.finding[name]) for name in cause.excluded_by))
    yield ExplainSection("Similar causes", lines=tuple(_similar(one) for one in near if one.hard))
    yield ExplainSection("False positives", lines=cause.false_positives)
    yield ExplainSection("References", lines=cause.references)


def of_finding(finding: Finding, rules: RuleSet) -> Iterator[ExplainSection]:
    """The condition of a finding, why its limit is what it is, and the causes that expect it."""
    yield ExplainSection("Not judged", finding.disabled)
    yield ExplainSection("Why this limit", reason(finding, rules))
    yield ExplainSection("Site thresholds", lines=tuple(_site_limit(limit) for limit in finding.site))
    yield ExplainSection("Judged by", lines=tuple(judged_by(finding)))
    yield ExplainSection("", f"Without any of its causes it holds in {finding.leak * 100:g} % of observations.")
    expecting = expecting_it(finding, rules)
    known = tuple(f"{percent(cause.expects[finding.id])} {cause.id}: {cause.title}" for cause in expecting)
    yield ExplainSection("Causes that expect it", lines=known)


def expecting_it(finding: Finding, rules: RuleSet) -> tuple[Cause, ...]:
    """The causes that expect `finding`, the highest weight first."""
    expecting = [cause for cause in rules.causes if finding.id in cause.expects]
    return tuple(sorted(expecting, key=lambda cause: -cause.expects[finding.id]))


def named(finding: Finding) -> str:
    """Its id and its message."""
    return f"{finding.id}: {sentence(finding)}"


def sentence(finding: Finding) -> str:
    """The message of a finding, with dots in place of its numbers."""
    return PLACE.sub("…", OPTIONAL.sub(r"\1", finding.message))


def reason(finding: Finding, rules: RuleSet) -> str:
    """The rationale of its limit, with that of the finding it refers to."""
    like = rules.finding.get(finding.rationale_from)
    return f"{finding.rationale} ({reason(like, rules)})" if like else finding.rationale


def judged_by(finding: Finding) -> Iterator[str]:
    """Each comparison with the meaning of its signal."""
    for comparison in comparisons(finding.when):
        yield f"{listed(comparison.text)}  ({catalogue()[comparison.left.signal].description})"


def _similar(near: Neighbour) -> str:
    this = _some(near.for_this, near.for_this_if_clear)
    that = _some(near.for_other, near.for_other_if_clear)
    return f"{near.cause.id} ({near.cause.title}): for this {this}; for that {that}"


def _some(holding: tuple[Separator, ...], clear: tuple[Separator, ...]) -> str:
    """The findings with the most points that hold; where these are few points, also those that are clear."""
    known = [f"{one.finding.id} ({one.points:+d})" for one in holding[:_MAX_SEPARATORS]]
    if not any(one.points >= _DECISIVE for one in holding):
        known += [f"no {one.finding.id} ({one.points:+d})" for one in clear[:_MAX_SEPARATORS]]
    return ", ".join(known) or "no finding"


def _site_limit(limit: SiteLimit) -> str:
    place = Path(limit.where)
    return (
        f"{listed(limit.text)}, shipped as {listed(limit.shipped)}: {limit.rationale} "
        f"({place.parent.parent.name}/{place.parent.name}/{place.name})"
    )
