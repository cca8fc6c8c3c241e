"""`latdoctor rules list|lint|test|diff`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options

if TYPE_CHECKING:
    from latdoctor.diagnosis.cases import Outcome

app = typer.Typer(help="The rules: what there is, and whether they are sound.", no_args_is_help=True)

FAILED = 3
_JUNIT = "the JUnit report"


class Shape(StrEnum):
    """How a difference is printed."""

    TEXT = "text"
    JSON = "json"


@app.command("list")
def list_rules(rules: options.Rules = None) -> None:
    """List every cause, by tier.

    Exit codes: 0 listed · 2 an invalid rule.
    """
    from rich.table import Table

    from latdoctor.cli.answering import rule_set
    from latdoctor.cli.screen import result_console
    from latdoctor.evidence.signals import TIERS

    known = rule_set(rules or [])
    console = result_console()
    for tier in TIERS:
        table = Table(
            "cause", "severity", "what it is", title=tier, title_justify="left", box=None, pad_edge=False, expand=True
        )
        for cause in known.causes:
            if cause.tier == tier:
                table.add_row(cause.id, "disabled" if cause.disabled else cause.severity, cause.title)
        console.print(table)
    console.print(f"{len(known.causes)} causes, {len(known.findings)} findings. Next: latdoctor explain ID")


@app.command()
def lint(rules: options.Rules = None) -> None:
    """Check that every rule is sound.

    Its format, its references, its weights, and that each cause can be told by its own findings.

    Exit codes: 0 sound · 2 problems, each with its file and line.
    """
    from latdoctor.cli.answering import rule_set
    from latdoctor.diagnosis.lint import lint as lint_rules
    from latdoctor.errors import DefinitionError

    known = rule_set(rules or [])
    problems = lint_rules(known)
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for what makes a rule sound")
    typer.echo(f"{len(known.causes)} causes and {len(known.findings)} findings are sound")


@app.command("test")
def run_cases(
    rules: options.Rules = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", readable=False, help="Write the outcome for a CI server too."),
    ] = None,
) -> None:
    """Run the cases of the rules.

    They stand in cases/ beside findings/ and causes/. Shipped cases are judged by the shipped limits, yours by those
    of your overlays.

    Exit codes: 0 all passed · 2 an invalid rule or case, or a file that cannot be written · 3 a case failed.
    """
    from latdoctor.cli.answering import rule_set
    from latdoctor.cli.screen import telling
    from latdoctor.diagnosis.cases import read_cases, run
    from latdoctor.diagnosis.rule_files import read
    from latdoctor.evidence.places import must_be_writable
    from latdoctor.packaged import folder

    if junit is not None:
        must_be_writable(junit, _JUNIT)
    shipped, extra = folder("rules"), rules or []
    known = rule_set(extra)
    plain = read([shipped, *extra], overlaid=False) if extra else known
    cases = read_cases([base / "cases" for base in (shipped, *extra)], known)
    outcomes = []
    with telling() as tell:
        for number, case in enumerate(cases, 1):
            tell(f"case {number} of {len(cases)}")
            outcomes.append(run(case, plain if Path(case.where).is_relative_to(shipped) else known))
    for outcome in outcomes:
        for failure in outcome.failures:
            typer.echo(f"{outcome.case.where}: {outcome.case.cause} {outcome.case.name}: {failure}")
    if junit is not None:
        _write_junit(outcomes, junit)
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    typer.echo(f"{len(outcomes) - failed} passed, {failed} failed")
    raise typer.Exit(FAILED if failed else 0)


def _write_junit(outcomes: Sequence[Outcome], path: Path) -> None:
    """Raises BundleError where it cannot be written."""
    from latdoctor.evidence.places import cannot_write
    from latdoctor.report.junit import render

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(outcomes), encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, _JUNIT, error) from error


@app.command()
def diff(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="[OLD] NEW", readable=False, help="Folders of rules; without OLD, the shipped ones are the old."
        ),
    ],
    bundles: Annotated[
        list[Path] | None,
        typer.Option(
            "--bundles",
            metavar="PATH",
            readable=False,
            help="A recorded incident, or a folder of them; may be repeated.",
        ),
    ] = None,
    output: Annotated[Shape, typer.Option("--output", "-o", help="How it is printed.")] = Shape.TEXT,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="Exit with 3 where a verdict, or what is named, is another.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every change of every incident.")] = False,
) -> None:
    """Show what a change of rules does.

    To the rules themselves, and to recorded incidents: whose causes get another probability or rank, and which verdicts
    become others. A folder that holds shipped causes stands in place of the shipped rules, any other beside them.

    Exit codes: 0 shown · 2 an invalid rule or bundle · 3 an answer became another, with --fail-on-change.
    """
    from latdoctor.cli.rules_diff import compared, print_difference
    from latdoctor.errors import UsageError

    if len(folders) > 2:
        raise UsageError(
            f"{len(folders)} folders of rules were given",
            next_step="give [OLD] NEW, and each bundle with --bundles PATH",
        )
    if fail_on_change and not bundles:
        raise UsageError(
            "--fail-on-change is about the answers to recorded incidents, and none was given",
            next_step="name them: --bundles PATH",
        )
    found = compared(folders, bundles or [])
    print_difference(found, folders[-1], as_json=output is Shape.JSON, every=verbose)
    raise typer.Exit(FAILED if fail_on_change and found.answers_changed else 0)
