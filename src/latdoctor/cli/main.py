"""The `latdoctor` command: its sub-commands, and the one place where errors are printed."""

from __future__ import annotations

import sys

import typer

from latdoctor import __version__
from latdoctor.cli import baseline, bundle, diagnose, explain, rules, sight
from latdoctor.errors import DefinitionError, LatdoctorError
from latdoctor.text import clean

app = typer.Typer(
    name="latdoctor",
    help="Find out why an AI inference service has become slow, with the evidence for and against.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("preflight")(sight.preflight)
app.command("targets")(sight.targets)
app.command("collect")(diagnose.collect)
app.command("diagnose")(diagnose.diagnose)
app.command("explain")(explain.explain)
app.add_typer(baseline.app, name="baseline")
app.add_typer(bundle.app, name="bundle")
app.add_typer(rules.app, name="rules")

INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"latdoctor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """The options that stand before the command."""


def main() -> None:
    """Runs the command line and leaves with its exit code; an error of ours is printed once, here."""
    try:
        app(prog_name="latdoctor")
    except LatdoctorError as error:
        _print(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _print(error: LatdoctorError) -> None:
    if isinstance(error, DefinitionError):
        for problem in error.problems:
            typer.echo(clean(str(problem)), err=True)
    where = f"{error.where}: " if error.where else ""
    typer.echo(clean(f"latdoctor: {where}{error.what}"), err=True)
    if error.next_step:
        typer.echo(f"  next: {clean(error.next_step)}", err=True)
