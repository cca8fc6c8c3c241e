"""`latdoctor explain ID`: a cause or a finding in plain words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet
    from latdoctor.report.explain import ExplainSection


def explain(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a cause or a finding.")],
    rules: options.Rules = None,
) -> None:
    """Explain a cause or a finding.

    For a cause: explanation, confirmation, remediation and what separates it from similar causes. For a finding: its
    condition, and why its limit is what it is. docs/causes has a page for each cause, with all limits and reasons.

    Exit codes: 0 explained · 2 no such cause or finding, or an invalid rule.
    """
    from latdoctor.cli.collect_and_diagnose import rule_set
    from latdoctor.cli.console import result_console
    from latdoctor.errors import UsageError

    known = rule_set(rules or [])
    if name in known.cause:
        _cause(known.cause[name], known, result_console())
    elif name in known.finding:
        _finding(known.finding[name], known, result_console())
    else:
        raise UsageError(f"there is no cause or finding {name!r}", next_step=_instead(name, known))


def _instead(name: str, rules: RuleSet) -> str:
    """What to do with `name`, which is no cause and no finding: other things that an answer names have ids, too."""
    from difflib import get_close_matches

    from latdoctor.evidence.catalogue import catalogue
    from latdoctor.remediation.playbook_library import shipped

    if name in shipped().by_id:
        return f"it is a playbook: latdoctor playbooks show {name}"
    if name in catalogue():
        return f"it is a signal: {catalogue()[name].description} (docs/signals.md has all)"
    near = get_close_matches(name.lower(), [*rules.cause, *rules.finding], n=3, cutoff=0.5)
    return f"did you mean {', '.join(near)}?" if near else "latdoctor rules list shows all of them"


def _cause(cause: Cause, rules: RuleSet, console: Console) -> None:
    from latdoctor.diagnosis.confusable_causes import confusable_pairs, neighbours
    from latdoctor.report.explain import of_cause

    console.print(cause.title, style="bold")
    console.print(f"{cause.id} · {cause.tier} · {cause.severity} · {cause.status}", style="dim")
    _sections(console, of_cause(cause, rules, neighbours(cause, rules, confusable_pairs())))
    console.print(f"\nOwner: {cause.owner or 'not stated'}")
    console.print(f"Next: {cause.next_look or 'latdoctor diagnose'}")


def _finding(finding: Finding, rules: RuleSet, console: Console) -> None:
    from latdoctor.report.explain import expecting_it, of_finding, sentence

    place = Path(finding.where)
    facts = (finding.id, finding.tier, finding.kind, finding.severity, f"{place.parent.name}/{place.name}")
    console.print(sentence(finding), style="bold")
    console.print(" · ".join(fact for fact in facts if fact), style="dim")
    _sections(console, of_finding(finding, rules))
    expecting = expecting_it(finding, rules)
    console.print(f"\nNext: latdoctor {f'explain {expecting[0].id}' if expecting else 'rules list'}")


def _sections(console: Console, sections: Iterable[ExplainSection]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for section in sections:
        if not section.has_content:
            continue
        console.print(f"\n{section.title}" if section.title else "", style="bold")
        if section.text:
            console.print(section.text)
        for line in section.lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
