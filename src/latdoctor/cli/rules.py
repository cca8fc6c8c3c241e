"""`latdoctor rules list|lint|test`."""

from __future__ import annotations

import typer

from latdoctor.cli import options

app = typer.Typer(help="The rules: what there is, and whether they are sound.", no_args_is_help=True)

FAILED = 3


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
                table.add_row(cause.id, cause.severity, cause.title)
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
def run_cases(rules: options.Rules = None) -> None:
    """Run the cases of the rules.

    They stand in cases/ beside findings/ and causes/.

    Exit codes: 0 all passed · 2 an invalid rule or case · 3 a case failed.
    """
    from latdoctor.cli.answering import rule_set
    from latdoctor.diagnosis.cases import read_cases, run
    from latdoctor.packaged import folder

    known = rule_set(rules or [])
    cases = read_cases([base / "cases" for base in (folder("rules"), *(rules or []))], known)
    outcomes = [run(case, known) for case in cases]
    for outcome in outcomes:
        for failure in outcome.failures:
            typer.echo(f"{outcome.case.where}: {outcome.case.cause} {outcome.case.name}: {failure}")
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    typer.echo(f"{len(outcomes) - failed} passed, {failed} failed")
    raise typer.Exit(FAILED if failed else 0)
