"""`latdoctor baseline record|show|compare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.options import SourceOptions

if TYPE_CHECKING:
    from latdoctor.cli.request import Looked
    from latdoctor.diagnosis.diagnose import Case

app = typer.Typer(help="What a target is like when healthy.", no_args_is_help=True)


@app.command()
@options.source_options(without=("slo", "slo_errors", "baseline"))
def record(
    *,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", readable=False, help="The file to write.")],
    bundle: Annotated[
        Path | None,
        typer.Argument(metavar="BUNDLE", readable=False, help="A bundle of a healthy time; else a look now."),
    ] = None,
    sources: SourceOptions,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Remember what the target is like now.

    Record it at a healthy time under usual load: rules that say `1.5 x baseline` compare with it.

    Exit codes: 0 recorded · 1 a source that was requested could not be read · 2 usage, or an invalid bundle.
    """
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.request import LEFT_OUT, must_have_read, must_stand_alone, tell
    from latdoctor.cli.session import compared, now, seen
    from latdoctor.errors import OperationError
    from latdoctor.evidence import baseline as baselines
    from latdoctor.pipeline import case
    from latdoctor.sanitize import counted

    must_stand_alone(bundle, sources)
    baselines.may_be_written(to, force=force)
    with interruptible(None if force else to):
        with _looked(bundle, sources) as looked:
            evidence, coverage = seen(looked.bundle)
        must_have_read(looked, evidence, every=True, otherwise="and nothing was remembered")
        _tell_of_trouble(case(looked.bundle, evidence, coverage))
        recorded = baselines.record(evidence, looked.bundle.context.target, now())
        tell(looked.bundle.gaps)
        tell(baselines.left_out(evidence, recorded, compared()), LEFT_OUT)
        if not recorded.values:
            raise OperationError("nothing could be read to remember", next_step="latdoctor preflight")
        baselines.save(recorded, to, force=force)
    typer.echo(f"{counted(len(recorded.values), 'value')} remembered. Next: latdoctor diagnose --baseline {to} …")


def _tell_of_trouble(case: Case) -> None:
    """Says what speaks against calling this a healthy time."""
    from latdoctor.cli.console import notice_console
    from latdoctor.cli.session import rule_set, stamp
    from latdoctor.diagnosis.diagnose import diagnose
    from latdoctor.diagnosis.rule_schema import SEVERITIES
    from latdoctor.report.comparison import answered

    found = diagnose(case, rule_set(()), stamp())
    if found.verdict.level in SEVERITIES[1:]:
        known = answered(found.verdict, found.answer)
        message = f"this is no healthy time ({known}): beside this baseline, what is as bad will pass for usual"
        notice_console().print(message)


@contextmanager
def _looked(bundle: Path | None, sources: options.SourceOptions) -> Iterator[Looked]:
    from latdoctor.cli.request import Looked, Need, must_not_say_how
    from latdoctor.cli.session import look_for
    from latdoctor.evidence.bundle_files import opened

    if bundle is None:
        yield look_for(sources, Need.NONE)
        return
    must_not_say_how(sources)
    with opened(bundle) as saved:
        yield Looked(saved)


@app.command()
def show(file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="A baseline file.")]) -> None:
    """Show what a baseline remembers.

    Exit codes: 0 shown · 2 not a baseline.
    """
    from rich.table import Table

    from latdoctor.cli.console import result_console
    from latdoctor.conditions.evaluator import show as shown
    from latdoctor.evidence import baseline as baselines
    from latdoctor.evidence.catalogue import catalogue
    from latdoctor.sanitize import clean, counted

    found = baselines.load(file)
    console = result_console()
    console.print(f"{clean(found.target)}, recorded {clean(found.recorded_at)}", style="bold")
    table = Table("subject", "signal", "value", box=None, pad_edge=False)
    for row in found.values:
        value = shown(row.signal, row.value) if row.signal in catalogue() else "unknown signal"
        table.add_row(clean(row.subject), clean(row.signal), value)
    console.print(table)
    console.print(f"{counted(len(found.values), 'value')}. Next: latdoctor diagnose --baseline {file} …")


@app.command()
@options.source_options(without=("slo", "slo_errors", "baseline"))
def compare(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="A baseline file.")],
    bundle: Annotated[
        Path | None,
        typer.Argument(metavar="BUNDLE", readable=False, help="The bundle to compare; else a look now."),
    ] = None,
    sources: SourceOptions,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every value that both show.")] = False,
) -> None:
    """Show how the target differs from its healthy time.

    The largest change comes first. It judges nothing: a difference may be the load of the hour. What it means tells
    latdoctor diagnose --baseline FILE.

    Exit codes: 0 compared · 1 a source that was requested could not be read · 2 usage, an invalid bundle or baseline.
    """
    from latdoctor.cli.bundle import print_differences
    from latdoctor.cli.request import must_have_read, must_stand_alone, tell
    from latdoctor.cli.session import seen
    from latdoctor.evidence import baseline as baselines
    from latdoctor.evidence.diff import differences, values

    must_stand_alone(bundle, sources)
    remembered = baselines.load(file)
    with _looked(bundle, sources) as looked:
        evidence, _ = seen(looked.bundle)
    must_have_read(looked, evidence, every=True, otherwise="and nothing was compared")
    tell(looked.bundle.gaps)
    numbers = {key: value for key, value in values(evidence).items() if not isinstance(value, str)}
    print_differences(differences(remembered.lookup, numbers), ("then", "now"), every=verbose)
    typer.echo(f"Next: latdoctor diagnose --baseline {file} …")
