"""`latdoctor explain ID`: a cause or a finding in plain words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from latdoctor.diagnosis.rules import Cause, Finding, RuleSet, SiteLimit


def explain(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a cause or a finding.")],
    rules: options.Rules = None,
) -> None:
    """Say what a cause or a finding means.

    For a cause: how to confirm it and how to mend it. For a finding: by what it holds, and why that limit.

    Exit codes: 0 explained · 2 no such cause or finding, or an invalid rule.
    """
    from difflib import get_close_matches

    from latdoctor.cli.answering import rule_set
    from latdoctor.cli.screen import result_console
    from latdoctor.errors import UsageError

    known = rule_set(rules or [])
    if name in known.cause:
        _cause(known.cause[name], known, result_console())
    elif name in known.finding:
        _finding(known.finding[name], known, result_console())
    else:
        near = get_close_matches(name, [*known.cause, *known.finding], n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else "latdoctor rules list shows all of them"
        raise UsageError(f"there is no cause or finding {name!r}", next_step=hint)


def _cause(cause: Cause, rules: RuleSet, console: Console) -> None:
    from latdoctor.report.playbook import advised
    from latdoctor.report.view import percent

    console.print(cause.title, style="bold")
    console.print(f"{cause.id} · {cause.tier} · {cause.severity} · {cause.status}", style="dim")
    _paragraph(console, "Not ranked", cause.disabled)
    _paragraph(console, "What happens", cause.explanation)
    _paragraph(console, "How to confirm", cause.confirm)
    _paragraph(console, "How to mend", cause.mend)
    expected = sorted(cause.expects.items(), key=lambda item: -item[1])
    _list(console, "What it makes us see", [f"{percent(weight)} {_named(name, rules)}" for name, weight in expected])
    _list(console, "What speaks against it", [_named(name, rules) for name in cause.rules_out])
    _list(console, "When it looks so and is not", cause.false_positives)
    _list(console, "Playbooks (latdoctor playbooks show ID)", map(advised, cause.playbooks))
    _list(console, "Read more", cause.references)
    console.print(f"\nOwner: {cause.owner or 'not stated'}")
    console.print(f"Next: {cause.next_look or 'latdoctor diagnose'}")


def _named(name: str, rules: RuleSet) -> str:
    return f"{name}: {sentence(rules.finding[name])}"


def sentence(finding: Finding) -> str:
    """What the finding says, with dots where its numbers will stand."""
    from latdoctor.diagnosis.judge import OPTIONAL, PLACE

    return PLACE.sub("…", OPTIONAL.sub(r"\1", finding.says))


def _finding(finding: Finding, rules: RuleSet, console: Console) -> None:
    from latdoctor.evidence.conditions import comparisons
    from latdoctor.evidence.signals import catalogue
    from latdoctor.report.view import listed, percent

    place = Path(finding.where)
    facts = (finding.id, finding.tier, finding.kind, finding.severity, f"{place.parent.name}/{place.name}")
    console.print(sentence(finding), style="bold")
    console.print(" · ".join(fact for fact in facts if fact), style="dim")
    _paragraph(console, "Not judged", finding.disabled)
    _paragraph(console, "Why this limit", finding.why)
    _list(console, "Site thresholds", [_site_limit(limit) for limit in finding.site])
    told = [f"{listed(c.text)}  ({catalogue()[c.left.signal].says})" for c in comparisons(finding.when)]
    _list(console, "Judged by", told)
    console.print(f"\nWithout any of its causes it holds in {finding.leak * 100:g} % of looks.")
    expecting = sorted((c for c in rules.causes if finding.id in c.expects), key=lambda c: -c.expects[finding.id])
    _list(console, "Causes that expect it", [f"{percent(c.expects[finding.id])} {c.id}: {c.title}" for c in expecting])
    console.print(f"\nNext: latdoctor {f'explain {expecting[0].id}' if expecting else 'rules list'}")


def _site_limit(limit: SiteLimit) -> str:
    from latdoctor.report.view import listed

    place = Path(limit.where)
    return (
        f"{listed(limit.text)}, shipped as {listed(limit.shipped)}: {limit.why} "
        f"({place.parent.parent.name}/{place.parent.name}/{place.name})"
    )


def _paragraph(console: Console, title: str, text: str) -> None:
    if text:
        console.print(f"\n{title}", style="bold")
        console.print(text)


def _list(console: Console, title: str, lines: Iterable[str]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    shown = [Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines]
    if shown:
        console.print(f"\n{title}", style="bold")
        for line in shown:
            console.print(line)
