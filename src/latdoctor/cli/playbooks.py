"""`latdoctor playbooks list|lint|show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.options import OutputFormat, OutputOption

if TYPE_CHECKING:
    from latdoctor.remediation.playbook import Playbook
    from latdoctor.remediation.playbook_library import Library
    from latdoctor.report.playbook import PlaybookTexts

app = typer.Typer(help="Playbooks: what they fix and how they verify it.", no_args_is_help=True)


def library(extra: Sequence[Path]) -> Library:
    """The shipped playbooks, with the user's own folders beside them. Raises DefinitionError."""
    from latdoctor.remediation import playbook_library
    from latdoctor.resources import folder

    return playbook_library.read_library([folder("playbooks"), *extra]) if extra else playbook_library.shipped()


@app.command("list")
def list_playbooks(playbooks: options.Playbooks = None, output: OutputOption = OutputFormat.TEXT) -> None:
    """List every playbook with the causes that it fixes.

    Exit codes: 0 listed · 2 an invalid playbook.
    """
    known = library(playbooks or [])
    if output is OutputFormat.JSON:
        from latdoctor.report import playbook

        typer.echo(playbook.as_json(playbook.pages(known)))
        return
    _print_list(known)


def _print_list(known: Library) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from latdoctor.cli.console import result_console
    from latdoctor.report.playbook import facts, purpose

    console = result_console()
    for playbook in known.playbooks:
        head = Table.grid(expand=True, padding=(0, 1))
        head.add_column(ratio=1, overflow="fold")
        head.add_column(justify="right")
        head.add_row(Text(playbook.id, style="bold"), Text(facts(playbook), style="dim"))
        console.print(head)
        console.print(Padding(Text(playbook.title), (0, 0, 0, 2)))
        console.print(Padding(Text(purpose(playbook), style="dim"), (0, 0, 0, 2)))
    console.print(f"{len(known.playbooks)} playbooks. Next: latdoctor playbooks show ID")


@app.command()
def lint(playbooks: options.Playbooks = None, rules: options.Rules = None) -> None:
    """Check that every playbook is sound.

    Its format and ranges, and that its actions, causes and findings exist.

    Exit codes: 0 sound · 2 problems, each with its file and line.
    """
    from latdoctor.cli.collect_and_diagnose import rule_set
    from latdoctor.errors import DefinitionError
    from latdoctor.remediation.playbook_library import lint as lint_playbooks

    known, found = library(playbooks or []), rule_set(rules or [])
    problems = lint_playbooks(known, {cause.id: frozenset(cause.expects) for cause in found.causes}, found.finding)
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for what makes a playbook sound")
    typer.echo(f"{len(known.playbooks)} playbooks are sound. Next: latdoctor playbooks list")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a playbook.")],
    playbooks: options.Playbooks = None,
    rules: options.Rules = None,
    verbose: options.VerboseOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show what a playbook does.

    What it fixes and changes, how a run is verified, its risk and its undo; with -v guards, parameters and explanation.

    Exit codes: 0 shown · 2 no such playbook, or an invalid playbook or rule.
    """
    from latdoctor.report.playbook import as_json, page

    known = library(playbooks or [])
    found = known.find(name)
    if output is OutputFormat.JSON:
        typer.echo(as_json(page(found)))
        return
    texts = _texts(rules or [])
    if verbose:
        _print_in_full(found, known, texts)
        return
    from latdoctor.cli.console import result_console
    from latdoctor.report.fit_to_screen import print_lines
    from latdoctor.report.playbook_answer import playbook_answer

    print_lines(playbook_answer(found, known, texts), result_console())


def _texts(rules: Sequence[Path]) -> PlaybookTexts:
    from latdoctor.cli.collect_and_diagnose import rule_set
    from latdoctor.report.explain import sentence
    from latdoctor.report.playbook import PlaybookTexts

    known = rule_set(rules)
    return PlaybookTexts(
        {cause.id: cause.title for cause in known.causes},
        {finding.id: sentence(finding) for finding in known.findings},
    )


def _print_in_full(playbook: Playbook, known: Library, texts: PlaybookTexts) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from latdoctor.cli.console import result_console
    from latdoctor.report.playbook import facts, next_step, sections

    console = result_console()
    console.print(Text(playbook.title, style="bold"))
    console.print(Text(f"{playbook.id} · {facts(playbook)} · for {', '.join(playbook.targets)}", style="dim"))
    for heading, lines in sections(playbook, known, texts):
        if lines:
            console.print(Text(f"\n{heading}", style="bold"))
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
    console.print(Text(f"\nNext: {next_step(playbook)}"))
    console.print(Text("      (it shows the plan; --apply runs it)"))
