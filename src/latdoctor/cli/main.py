"""The `latdoctor` command: its sub-commands, and the one place where errors are printed.

A command's module is imported when the command runs: the root's `--help` reads its lines from COMMANDS alone.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from latdoctor import __version__
from latdoctor.cli.console import install_streams, notice
from latdoctor.errors import DefinitionError, LatdoctorError, OperationError
from latdoctor.sanitize import clean

# Allocations between two collections of garbage: a command that ends within a second leaves none worth collecting.
_COLLECT_EVERY = 100_000
INTERRUPTED = 130  # 128 + SIGINT, as shells report it

# Name → where it is defined (`module:function`, or a module with sub-commands in `app`), and its line in the help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "preflight": ("preflight:preflight", "Report which sources can be read here, and why not."),
    "targets": ("preflight:targets", "List what there is to diagnose."),
    "collect": ("collect:collect", "Save the raw evidence of one observation as a bundle."),
    "diagnose": ("diagnose:diagnose_command", "Say why the service is slow, with the evidence."),
    "explain": ("explain:explain", "Explain a cause or a finding."),
    "remediate": ("remediate:remediate", "Remediate a cause by a playbook; failed steps roll back."),
    "rollback": ("remediate:rollback", "Roll back what a run has changed."),
    "recover": ("remediate:recover", "Finish runs that were interrupted."),
    "timeline": ("timeline:timeline", "Write the timeline of an incident, and its post-mortem."),
    "listen": ("listen:listen", "Receive alerts, confirm them, and monitor the incident."),
    "forecast": ("forecast:forecast", "Forecast the request rate 10 to 15 minutes ahead."),
    "demo": ("demo:demo", "Run a real incident, diagnose it and remediate it."),
    "capacity": ("capacity", "How much load a service takes, and replicas for a rate."),
    "compare": ("compare:compare", "Say which of two settings is better, under the same load."),
    "baseline": ("baseline", "What a target is like when healthy."),
    "bundle": ("bundle", "Saved evidence."),
    "rules": ("rules", "The rules: what there is, and whether they are sound."),
    "playbooks": ("playbooks", "The playbooks: what they fix and how they verify it."),
    "runs": ("runs", "What was done to which target, and how it ended."),
    "trust": ("trust:trust", "Trust the latdoctor.yaml of a working directory."),
    "alerts": ("alerts", "Alert rules for Prometheus, by the server that they watch."),
    "sop": ("sop", "The procedure of an incident, and its clock."),
    "incidents": ("incidents", "Past incidents: causes, and playbooks that worked."),
    "notify": ("notify", "Notify PagerDuty, Slack and webhooks of incidents."),
    "lab": ("lab", "A reference server with real incidents, to try latdoctor on."),
}


class LazyGroup(TyperGroup):
    """A group that imports the module of a command when that command is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = load_command(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            for name in COMMANDS:  # for "did you mean"
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name][1]) for name in names]


def load_command(name: str) -> Any:
    """The command `name`, as typer builds it from its module."""
    module, _, function = COMMANDS[name][0].partition(":")
    defined = import_module(f"latdoctor.cli.{module}")
    outer = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    if function:
        outer.command(name)(getattr(defined, function))
        return typer.main.get_command(outer)
    outer.add_typer(defined.app, name=name)
    return typer.main.get_group(outer).commands[name]


app = typer.Typer(
    name="latdoctor",
    cls=LazyGroup,
    help="Find out why an AI inference service has become slow, with the evidence for and against.\n\n"
    "Each command's --help lists its exit codes; 130 is an interruption by Ctrl-C.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"latdoctor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """The options before the command."""


def main() -> None:
    """Runs the command line and exits with its code; a LatdoctorError is printed once, here."""
    gc.set_threshold(_COLLECT_EVERY)
    streams = sys.stdout, sys.stderr
    try:
        code = _run() if install_streams() else _report(_NO_STDOUT)
        sys.stderr.flush()
    finally:
        sys.stdout, sys.stderr = streams
    sys.exit(code)


_NO_STDOUT = OperationError("stdout is closed, so the answer cannot be printed", next_step="write it to a file: > FILE")


def _run() -> int:
    try:
        code = _command()
    except LatdoctorError as error:
        code = _report(error)
    try:
        sys.stdout.flush()
    except OperationError as error:
        return _report(error)
    return code


def _command() -> int:
    """The exit code of the command line. Raises LatdoctorError."""
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


def _report(error: LatdoctorError) -> int:
    """Print `error` on stderr and return its exit code."""
    from latdoctor.evidence.redaction.redactor import without_credentials
    from latdoctor.http.safe_address import mask_credentials

    def shown(text: str) -> str:
        return without_credentials(mask_credentials(clean(text)))

    if isinstance(error, DefinitionError):
        for problem in error.problems:
            notice(shown(str(problem)))
    where = f"{error.where}: " if error.where else ""
    notice(shown(f"latdoctor: {where}{error.what}"))
    for line in error.listed:
        notice(f"  {shown(line)}", hang=4)
    if error.next_step:
        notice(f"  next: {shown(error.next_step)}", hang=8)
    return error.exit_code
