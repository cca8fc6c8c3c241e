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
    from latdoctor.cli.resolve_request import CollectedEvidence
    from latdoctor.diagnosis.diagnose import Case

app = typer.Typer(help="The normal values of a healthy target.", no_args_is_help=True)


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
    """Record the present values of the target as normal.

    Record it at a healthy time under usual load: rules with `1.5 x baseline` compare with it.

    Exit codes: 0 recorded · 1 a source that was requested could not be read · 2 usage, or an invalid bundle.
    """
    from latdoctor.case_from_bundle import case
    from latdoctor.cli.collect_and_diagnose import compared, now, seen
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.resolve_request import check_no_sources_beside, check_sources_read, print_gaps, print_left_out
    from latdoctor.errors import OperationError
    from latdoctor.evidence import baseline as baselines
    from latdoctor.sanitize import counted

    check_no_sources_beside(bundle, sources)
    baselines.may_be_written(to, force=force)
    with interruptible(None if force else to):
        with _collected(bundle, sources) as collected:
            evidence, coverage = seen(collected.bundle)
        check_sources_read(collected, evidence, every=True, consequence="and nothing was recorded")
        _warn_if_unhealthy(case(collected.bundle, evidence, coverage))
        recorded = baselines.record(evidence, collected.bundle.context.target, now())
        print_gaps(collected.bundle.gaps)
        print_left_out(baselines.left_out(evidence, recorded, compared()))
        if not recorded.values:
            raise OperationError("there is no value to record", next_step="latdoctor preflight")
        baselines.save(recorded, to, force=force)
    typer.echo(f"{counted(len(recorded.values), 'value')} recorded. Next: {_diagnose(bundle, sources, to)}")


def _diagnose(bundle: Path | None, sources: SourceOptions, baseline: Path) -> str:
    """The command that diagnoses the same bundle or sources by the baseline."""
    read = str(bundle) if bundle else options.as_arguments(sources, without=("baseline",))
    return " ".join(part for part in ("latdoctor diagnose", read, f"--baseline {baseline}") if part)


def _warn_if_unhealthy(case: Case) -> None:
    """Print why this is not a healthy time, if it is not."""
    from latdoctor.cli.collect_and_diagnose import rule_set, stamp
    from latdoctor.cli.console import notice_console
    from latdoctor.diagnosis.diagnose import diagnose
    from latdoctor.diagnosis.rule_schema import SEVERITIES
    from latdoctor.report.comparison import answered

    found = diagnose(case, rule_set(()), stamp())
    if found.verdict.level in SEVERITIES[1:]:
        known = answered(found.verdict, found.answer)
        message = f"this is not a healthy time ({known}): with this baseline, equally bad values pass for normal"
        notice_console().print(message)


@contextmanager
def _collected(bundle: Path | None, sources: options.SourceOptions) -> Iterator[CollectedEvidence]:
    from latdoctor.cli.collect_and_diagnose import collect_evidence
    from latdoctor.cli.resolve_request import BaselineNeed, CollectedEvidence, check_no_collect_options
    from latdoctor.evidence.bundle_files import opened

    if bundle is None:
        yield collect_evidence(sources, BaselineNeed.UNUSED)
        return
    check_no_collect_options(sources)
    with opened(bundle) as saved:
        yield CollectedEvidence(saved)


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

    from latdoctor.case_from_bundle import case
    from latdoctor.cli.collect_and_diagnose import rule_set, seen, stamp
    from latdoctor.cli.print_comparison import print_comparison
    from latdoctor.cli.resolve_request import check_no_sources_beside, check_sources_read, print_gaps
    from latdoctor.diagnosis.diagnose import diagnose
    from latdoctor.evidence import baseline as baselines
    from latdoctor.evidence.diff import differences, values
    from latdoctor.report.comparison_screen import ComparedPair

    check_no_sources_beside(bundle, sources)
    baseline = baselines.load(file)
    with _collected(bundle, sources) as collected:
        evidence, coverage = seen(collected.bundle)
    check_sources_read(collected, evidence, every=True, consequence="and nothing was compared")
    if output is OutputFormat.TEXT:
        print_gaps(collected.bundle.gaps)
    numbers = {key: value for key, value in values(evidence).items() if not isinstance(value, str)}
    against_baseline = replace(collected.bundle, baseline=baseline)
    unnamed = bool(sources.files) and not sources.target  # then the target is called by a file's name
    pair = ComparedPair(
        before=str(file),
        after=str(bundle) if bundle else ", ".join(path.name for path in sources.files) or "now",
        values=differences(baseline.lookup, numbers),
        diagnosis=diagnose(case(against_baseline, evidence, coverage), rule_set(()), stamp()),
        targets=(baseline.target, baseline.target if unnamed else collected.bundle.context.target),
    )
    print_comparison(pair, _diagnose(bundle, sources, file), output, verbose=verbose, columns=("then", "now"))
