"""The `latdoctor` command: its sub-commands, and the one place where errors are printed."""

from __future__ import annotations

import sys

import typer

from latdoctor import __version__
from latdoctor.cli import (
    alerts,
    baseline,
    bundle,
    collect,
    demo,
    diagnose,
    explain,
    incidents,
    lab,
    listen,
    notify,
    playbooks,
    remediate,
    rules,
    runs,
    sop,
    timeline,
)
from latdoctor.cli import preflight as sight
from latdoctor.cli.console import prepare, say
from latdoctor.cli.interrupt import INTERRUPTED
from latdoctor.errors import DefinitionError, LatdoctorError, OperationError
from latdoctor.http.address import mask_credentials
from latdoctor.sanitize import clean

app = typer.Typer(
    name="latdoctor",
    help="Find out why an AI inference service has become slow, with the evidence for and against.\n\n"
    "Each command's --help tells how it exits; where Ctrl-C broke it off, with 130.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("preflight")(sight.preflight)
app.command("targets")(sight.targets)
app.command("collect")(collect.collect)
app.command("diagnose")(diagnose.diagnose_command)
app.command("explain")(explain.explain)
app.command("remediate")(remediate.remediate)
app.command("rollback")(remediate.rollback)
app.command("recover")(remediate.recover)
app.command("timeline")(timeline.timeline)
app.command("listen")(listen.listen)
app.command("demo")(demo.demo)
app.add_typer(baseline.app, name="baseline")
app.add_typer(bundle.app, name="bundle")
app.add_typer(rules.app, name="rules")
app.add_typer(playbooks.app, name="playbooks")
app.add_typer(runs.app, name="runs")
app.add_typer(alerts.app, name="alerts")
app.add_typer(sop.app, name="sop")
app.add_typer(incidents.app, name="incidents")
app.add_typer(notify.app, name="notify")
app.add_typer(lab.app, name="lab")


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
    streams = sys.stdout, sys.stderr
    try:
        code = _run() if prepare() else _told(_NO_STDOUT)
        sys.stderr.flush()
    finally:
        sys.stdout, sys.stderr = streams
    sys.exit(code)


_NO_STDOUT = OperationError("stdout is closed: nobody would see the answer", next_step="write it to a file: > FILE")


def _run() -> int:
    try:
        code = _command()
    except LatdoctorError as error:
        code = _told(error)
    try:
        sys.stdout.flush()
    except OperationError as error:
        return _told(error)
    return code


def _told(error: LatdoctorError) -> int:
    _print(error)
    return error.exit_code


def _command() -> int:
    """The exit code of the command that was given. Raises LatdoctorError."""
    try:
        app(prog_name="latdoctor")
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            typer.echo("latdoctor: interrupted", err=True)
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        typer.echo("latdoctor: interrupted", err=True)
        return INTERRUPTED
    return 0


def _print(error: LatdoctorError) -> None:
    if isinstance(error, DefinitionError):
        for problem in error.problems:
            say(mask_credentials(clean(str(problem))))
    where = f"{error.where}: " if error.where else ""
    say(mask_credentials(clean(f"latdoctor: {where}{error.what}")))
    for line in error.listed:
        say(f"  {mask_credentials(clean(line))}", hang=4)
    if error.next_step:
        say(f"  next: {mask_credentials(clean(error.next_step))}", hang=8)
