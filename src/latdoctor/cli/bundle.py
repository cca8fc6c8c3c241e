"""`latdoctor bundle inspect|diff|export|redact`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption
from latdoctor.report.tables import TableFormat

app = typer.Typer(help="Saved evidence.", no_args_is_help=True)

_Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", readable=False, help="A bundle: a folder or a .tar.zst.")]


@app.command()
def inspect(
    path: _Bundle,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every artifact, and every gap.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show what a bundle holds, and what could not be collected.

    Also how much was redacted when it was saved, and which artifacts could not be searched for that.

    Exit codes: 0 shown · 2 not a bundle, or one that was changed.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.evidence.bundle_files import opened
    from latdoctor.report import bundle as report

    with opened(path) as bundle:
        report.print_contents(bundle, str(path), result_console(), as_json=output is OutputFormat.JSON, verbose=verbose)


@app.command()
def redact(
    path: _Bundle,
    to: Annotated[
        Path, typer.Option("--to", metavar="PATH", readable=False, help="Where to write: a new folder or a .tar.zst.")
    ],
) -> None:
    """Write a copy without prompts, secrets and addresses.

    User ids are removed too. The same text gets the same pseudonym throughout a copy, and another in every copy.

    Exit codes: 0 written · 2 not a bundle, or one that was changed.
    """
    from latdoctor import __version__
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.evidence.bundle_files import must_be_new, opened, save
    from latdoctor.evidence.redaction.bundle import redacted
    from latdoctor.evidence.redaction.redactor import Redactor
    from latdoctor.report.bundle import redaction_lines

    must_be_new(to)
    redactor = Redactor()
    with interruptible(to), opened(path) as bundle:
        save(redacted(bundle, redactor), to, __version__, redactor)
    with opened(to) as made:
        for line in redaction_lines(made):
            typer.echo(line)
    typer.echo(f"Next: latdoctor bundle inspect {to}")


@app.command()
def export(
    path: _Bundle,
    to: Annotated[Path, typer.Argument(metavar="DIR", readable=False, help="The folder to create.")],
    form: Annotated[TableFormat, typer.Option("--format", help="Of the files.")] = TableFormat.PARQUET,
) -> None:
    """Write what a bundle shows as tables.

    For pandas, DuckDB or a spreadsheet: one file each of readings, series, distributions, events, gaps and subjects, in
    base units and UTC. What could not be seen is in gaps: an absent row is no zero.

    Exit codes: 0 written · 2 not a bundle, one that was changed, or the folder cannot be created.
    """
    from latdoctor.case_from_bundle import seen
    from latdoctor.cli.lab import need_extra
    from latdoctor.evidence.bundle_files import must_be_new, opened
    from latdoctor.report.tables import tables, write_tables

    need_extra(("pandas", "pyarrow") if form is TableFormat.PARQUET else ("pandas",), "tables")
    must_be_new(to)
    with opened(path) as bundle:
        evidence, _ = seen(bundle)
    found = tables(evidence)
    for written in write_tables(found, to, form):
        typer.echo(f"{written}: {len(found[written.stem])} rows")


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", readable=False, help="A bundle.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", readable=False, help="A later bundle of the same target.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every value that both have.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Compare two bundles.

    Faster or slower, by how much, and why.

    With -v every value, the largest change first, and what only one of them has.

    Exit codes: 0 shown · 2 not a bundle, or one that was changed.
    """
    from latdoctor.cli.collect_and_diagnose import case_of, rule_set, stamp
    from latdoctor.cli.print_comparison import print_comparison
    from latdoctor.diagnosis.comparison import contrast
    from latdoctor.diagnosis.diagnose import diagnose
    from latdoctor.evidence.bundle_files import opened
    from latdoctor.evidence.diff import differences, values
    from latdoctor.report.comparison_screen import ComparedPair

    found, diagnoses, targets = [], [], []
    for path in (before, after):
        with opened(path) as bundle:
            case = case_of(bundle)
            found.append(values(case.evidence))
            targets.append(bundle.context.target)
            diagnoses.append(diagnose(case, rule_set(()), stamp()))
    pair = ComparedPair(
        before=str(before),
        after=str(after),
        values=differences(*found),
        diagnosis=diagnoses[1],
        targets=(targets[0], targets[1]),
        contrast=contrast(*diagnoses),
        titles={cause.id: cause.title for cause in diagnoses[0].causes},
    )
    print_comparison(pair, f"latdoctor diagnose {after}", output, verbose=verbose, columns=("before", "after"))
