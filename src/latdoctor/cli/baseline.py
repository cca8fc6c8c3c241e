"""`latdoctor baseline record|show|compare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.options import OutputFormat, OutputOption, SourceOptions

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
        typer.Argument(metavar="BUNDLE", readable=False, help="A bundle of a healthy time; else an observation now."),
    ] = None,
    sources: SourceOptions,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Remember what the target is like now.

    Record it at a healthy time under usual load: rules that say `1.5 x baseline` compare with it.

    Exit codes: 0 recorded · 1 a source that was requested could not be read · 2 usage, or an invalid bundle.
    """
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.request import must_have_read, must_stand_alone, print_gaps, print_left_out
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
        print_gaps(looked.bundle.gaps)
        print_left_out(baselines.left_out(evidence, recorded, compared()))
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
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="A baseline file.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every value.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show the values of a baseline.

    Exit codes: 0 shown · 2 not a baseline.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.evidence import baseline as baselines
    from latdoctor.report import baseline as report

    found = baselines.load(file)
    report.print_baseline(found, str(file), result_console(), as_json=output is OutputFormat.JSON, verbose=verbose)


@app.command()
@options.source_options(without=("slo", "slo_errors", "baseline"))
def compare(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="A baseline file.")],
    bundle: Annotated[
        Path | None,
        typer.Argument(metavar="BUNDLE", readable=False, help="The bundle to compare; else an observation now."),
    ] = None,
    sources: SourceOptions,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every value that both have.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Compare the target with its healthy time.

    Faster or slower, by how much, and why.

    With -v every value, the largest change first. A difference may be the load of the hour: latdoctor diagnose
    --baseline FILE judges it.

    Exit codes: 0 compared · 1 a source that was requested could not be read · 2 usage, an invalid bundle or baseline.
    """
    from dataclasses import replace

    from latdoctor.cli.comparison import print_comparison
    from latdoctor.cli.request import must_have_read, must_stand_alone, print_gaps
    from latdoctor.cli.session import rule_set, seen, stamp
    from latdoctor.diagnosis.diagnose import diagnose
    from latdoctor.evidence import baseline as baselines
    from latdoctor.evidence.diff import differences, values
    from latdoctor.pipeline import case
    from latdoctor.report.comparison_screen import ComparedPair

    must_stand_alone(bundle, sources)
    remembered = baselines.load(file)
    with _looked(bundle, sources) as looked:
        evidence, coverage = seen(looked.bundle)
    must_have_read(looked, evidence, every=True, otherwise="and nothing was compared")
    if output is OutputFormat.TEXT:
        print_gaps(looked.bundle.gaps)
    numbers = {key: value for key, value in values(evidence).items() if not isinstance(value, str)}
    against_baseline = replace(looked.bundle, baseline=remembered)
    pair = ComparedPair(
        before=str(file),
        after=str(bundle) if bundle else "now",
        values=differences(remembered.lookup, numbers),
        diagnosis=diagnose(case(against_baseline, evidence, coverage), rule_set(()), stamp()),
        targets=(remembered.target, looked.bundle.context.target),
    )
    command = f"latdoctor diagnose {bundle or '…'} --baseline {file}"
    print_comparison(pair, command, output, verbose=verbose, columns=("then", "now"))
