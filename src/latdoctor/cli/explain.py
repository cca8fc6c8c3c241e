"""`latdoctor explain ID`: a cause or a finding in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from latdoctor.diagnosis.rules import Cause, Finding, RuleSet


def explain(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a cause or a finding.")],
    rules: options.Rules = None,
) -> None:
    """Say what a cause or a finding means, how to confirm it and how to mend it."""
    from difflib import get_close_matches

    from latdoctor.cli.answering import rule_set
    from latdoctor.cli.screen import result_console
    from latdoctor.errors import UsageError

    known = rule_set(rules or [])
    console = result_console()
    if name in known.cause:
        _cause(known.cause[name], known, console)
    elif name in known.finding:
        _finding(known.finding[name], known, console)
    else:
        near = get_close_matches(name, [*known.cause, *known.finding], n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else "latdoctor rules list shows all of them"
        raise UsageError(f"there is no cause or finding {name!r}", next_step=hint)


def _cause(cause: Cause, rules: RuleSet, console: Console) -> None:
    console.print(cause.title, style="bold")
    console.print(f"{cause.id} · {cause.tier} · {cause.severity} · {cause.status}", style="dim")
    _paragraph(console, "What happens", cause.explanation)
    _paragraph(console, "How to confirm", cause.confirm)
    _paragraph(console, "How to mend", cause.mend)
    console.print("\nWhat it makes us see", style="bold")
    for name, weight in sorted(cause.expects.items(), key=lambda item: -item[1]):
        console.print(f"  {weight:4.0%}  {name}: {rules.finding[name].says}")
    _list(console, "What speaks against it", cause.rules_out)
    _list(console, "When it looks so and is not", cause.false_positives)
    _list(console, "Read more", cause.references)
    console.print(f"\nOwner: {cause.owner or 'not stated'}")
    if cause.next_look:
        console.print(f"Next: {cause.next_look}")


def _finding(finding: Finding, rules: RuleSet, console: Console) -> None:
    from latdoctor.evidence.conditions import comparisons
    from latdoctor.evidence.signals import catalogue

    console.print(finding.says, style="bold")
    console.print(f"{finding.id} · {finding.tier or finding.kind} · {finding.where}", style="dim")
    _paragraph(console, "Why this limit", finding.why)
    console.print("\nHolds by", style="bold")
    for comparison in comparisons(finding.when):
        console.print(f"  {comparison.text}  ({catalogue()[comparison.left.signal].says})")
    console.print(f"\nWithout any of its causes it holds in {finding.leak:.1%} of looks.")
    expecting = [c for c in rules.causes if finding.id in c.expects]
    _list(console, "Causes that expect it", [f"{c.expects[finding.id]:.0%} {c.id}" for c in expecting])


def _paragraph(console: Console, title: str, text: str) -> None:
    if text:
        console.print(f"\n{title}", style="bold")
        console.print(text)


def _list(console: Console, title: str, lines: tuple[str, ...] | list[str]) -> None:
    if lines:
        console.print(f"\n{title}", style="bold")
        for line in lines:
            console.print(f"  {line}")
