"""`latdoctor diagnose`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.collect import collect_or_open, save_collected
from latdoctor.cli.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from latdoctor.cli.incident_journaling import IncidentSelector
    from latdoctor.diagnosis.result import Diagnosis
    from latdoctor.evidence.bundle import Artifact
    from latdoctor.evidence.model import Evidence


class DiagnosisFormat(StrEnum):
    """How the answer is printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class FailOn(StrEnum):
    """The level from which `diagnose` exits with 3."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="PATH", readable=False, help="Keep the bundle: a folder or a .tar.zst."),
]
Watch = Annotated[bool, typer.Option("--watch", help="Diagnose repeatedly, until Ctrl-C.")]
Every = Annotated[str | None, typer.Option("--every", metavar="TIME", help="The interval of --watch (default 10s).")]
AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", metavar="BUNDLE", readable=False, help="Compare with this bundle of another time."),
]
Between = Annotated[
    tuple[str, str] | None,
    typer.Option("--between", metavar="A B", help="Compare replica B with replica A (any two subjects)."),
]


@options.source_options()
def diagnose_command(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…",
            readable=False,
            help="A bundle of `latdoctor collect`, or files of any kind, each recognised by content; - is stdin.",
        ),
    ] = None,
    sources: SourceOptions,
    rules: options.Rules = None,
    keep: Keep = None,
    no_redact: options.NoRedact = False,
    output: Annotated[
        DiagnosisFormat, typer.Option("--output", "-o", help="How the answer is printed.")
    ] = DiagnosisFormat.TEXT,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit with 3 from this level on.")] = FailOn.CRITICAL,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="The evidence in full; -vv every check, score and gap.")
    ] = 0,
    watch: Watch = False,
    every: Every = None,
    against: AgainstOption = None,
    between: Between = None,
    incident: options.Incident = None,
    no_incident: options.NoIncident = False,
    html: options.Html = None,
) -> None:
    """Diagnose why the service is slow, with the evidence.

    From live sources, files, or a saved bundle. Without a source: the configured target, else this machine.
    With --watch until Ctrl-C: redrawn on a terminal, a line for each change in a pipe, as JSON a line for each one.

    Exit codes: 0 nothing at or above --fail-on · 1 no requested source could be read, or another operational
    error · 2 usage, or an invalid bundle, baseline or rule · 3 verdict or cause at or above --fail-on · 4 inconclusive.
    With --watch that of the last diagnosis. One unreadable source among others is a gap in the answer.
    """
    from latdoctor.cli.incident_journaling import IncidentSelector, check_selector

    belongs = IncidentSelector(incident or "", no_incident)
    check_selector(belongs)
    how = _DiagnoseOptions(output, fail_on, verbose, keep, not no_redact, every or "", against, between, belongs, html)
    run = _watch if watch else _once_or_each
    if not files:
        raise typer.Exit(run(None, sources, rules or [], how))
    from latdoctor.cli.named_files import sorted_files

    with sorted_files(files, sources, verbose=verbose > 0) as named:
        code = run(named.bundle, named.sources, rules or [], how)
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _DiagnoseOptions:
    """The options of `latdoctor diagnose` beside its sources."""

    output: DiagnosisFormat
    fail_on: FailOn
    verbose: int
    keep: Path | None
    redact: bool
    every: str
    against: Path | None
    between: tuple[str, str] | None
    belongs: IncidentSelector
    html: Path | None = None


def _two_alike(evidence: Evidence, artifacts: Sequence[Artifact]) -> tuple[str, str] | None:
    """Two engines or two results of load tests that were given together, to be compared."""
    return two_engines(evidence, artifacts) or two_results(evidence, artifacts)


def two_engines(evidence: Evidence, artifacts: Sequence[Artifact]) -> tuple[str, str] | None:
    """The two timed engines of the evidence, in the order of their files; None for any other number of them."""
    order = {artifact.name: number for number, artifact in enumerate(artifacts)}
    timed = [one for one in evidence.readings if one.signal == "engine.compute.median"]
    timed.sort(key=lambda one: order.get(one.origin.artifact if one.origin else "", len(order)))
    engines = list(dict.fromkeys(one.subject for one in timed))
    return (engines[0], engines[1]) if len(engines) == 2 else None


def two_results(evidence: Evidence, artifacts: Sequence[Artifact]) -> tuple[str, str] | None:
    """The clients of two load tests, in the order of their artifacts; None for any other number of results.

    Of a result with several rows (the requests of each name, the levels of a sweep) the first stands for it; two levels
    of one file are compared too.
    """
    files: dict[str, list[str]] = {}
    for one in evidence.readings:
        if one.subject.startswith("client/") and one.origin.artifact.startswith("documents/"):
            clients = files.setdefault(one.origin.artifact, [])
            clients.extend([one.subject] if one.subject not in clients else [])
    if len(files) == 1:
        only = next(iter(files.values()))
        return (only[0], only[1]) if len(only) == 2 else None
    first = [files[one.name][0] for one in artifacts if one.name in files]
    return (first[0], first[1]) if len(first) == 2 else None


def _once_or_each(bundle: Path | None, sources: SourceOptions, rules: list[Path], how: _DiagnoseOptions) -> int:
    """Diagnose once; several services on this machine each by itself, where the answer has room for several."""
    from latdoctor.cli.several_services import SeveralServicesError, each_service

    try:
        return _once(bundle, sources, rules, how)
    except SeveralServicesError as error:
        if how.output is DiagnosisFormat.JSON or how.keep or how.html or how.against or how.between:
            raise
        return each_service(error, sources, lambda named: _once(None, named, rules, how))


def _once(bundle: Path | None, sources: SourceOptions, rules: list[Path], how: _DiagnoseOptions) -> int:
    """Diagnose once and print the answer. Returns the exit code."""
    from msgspec import structs

    from latdoctor import output_file
    from latdoctor.cli.collect_and_diagnose import case_of, exit_code, rule_set, stamp
    from latdoctor.cli.incident_journaling import record_diagnosis, record_unreadable
    from latdoctor.cli.incidents import print_similar_incident
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.resolve_request import BaselineNeed
    from latdoctor.diagnosis.diagnose import diagnose as diagnose_case
    from latdoctor.errors import UsageError
    from latdoctor.evidence.bundle_files import must_be_new

    if how.every:
        raise UsageError("--every is for --watch", next_step="add --watch, or leave it out")
    if how.against and how.between:
        raise UsageError("--against and --between are exclusive", next_step="give one of them")
    if how.keep is not None:
        must_be_new(how.keep)
    if how.html is not None:
        output_file.must_be_new(how.html)
    chosen = rule_set(rules)
    with interruptible(how.keep), collect_or_open(bundle, sources, BaselineNeed.REQUIRED) as collected:
        kept = collected if how.keep is None else save_collected(collected, how.keep, redact=how.redact)
        with record_unreadable(how.belongs, kept):
            case = case_of(kept.bundle, kept.requested)
        diagnosis = diagnose_case(case, chosen, stamp())
        if how.against:
            from latdoctor.cli.diagnose_compare import compare_with_bundle

            compared = compare_with_bundle(case, diagnosis, how.against, chosen, sources)
            diagnosis = structs.replace(diagnosis, against=compared)
        elif pair := how.between or _two_alike(case.evidence, kept.bundle.artifacts):
            from latdoctor.cli.diagnose_compare import compare_subjects

            diagnosis = structs.replace(diagnosis, against=compare_subjects(case, pair, chosen))
        _print(diagnosis, how.output, verbose=how.verbose)
        if how.output is not DiagnosisFormat.JSON:  # the document keeps its schema
            print_similar_incident(diagnosis, as_markdown=how.output is DiagnosisFormat.MARKDOWN)
        record_diagnosis(how.belongs, kept, diagnosis)  # while the bundle's files exist, and after the answer
        if how.html is not None:  # last: an unwritable page does not suppress the answer
            from latdoctor.cli import html_report

            html_report.written(html_report.of_diagnosis(case, diagnosis, how.against), how.html)
    return exit_code(diagnosis, how.fail_on.value)


def _watch(bundle: Path | None, sources: SourceOptions, rules: list[Path], how: _DiagnoseOptions) -> int:
    """Diagnose repeatedly. Returns the exit code of the last one. Raises UsageError for options of a single one."""
    from latdoctor.cli.collect_and_diagnose import rule_set
    from latdoctor.cli.diagnose_watch import watch
    from latdoctor.cli.incident_journaling import ChangeRecorder
    from latdoctor.errors import UsageError
    from latdoctor.report.console import summary

    single_only = {
        "a bundle": bundle is not None,
        "--keep": how.keep is not None,
        "--against": how.against is not None,
        "--between": how.between is not None,
        "-v": how.verbose > 0,
        "--html": how.html is not None,
        "-o markdown": how.output is DiagnosisFormat.MARKDOWN,
    }
    for name in (name for name, used in single_only.items() if used):
        raise UsageError(
            f"--watch diagnoses repeatedly, and {name} is for a single diagnosis", next_step="leave one of them out"
        )
    as_json = how.output is DiagnosisFormat.JSON
    recorder = ChangeRecorder(how.belongs, summary)
    return watch(sources, rule_set(rules), recorder, every=how.every, as_json=as_json, fail_on=how.fail_on.value)


def _print(diagnosis: Diagnosis, output: DiagnosisFormat, *, verbose: int) -> None:
    if output is DiagnosisFormat.JSON:
        from latdoctor.report import machine_formats

        typer.echo(machine_formats.render_diagnosis(diagnosis))
    elif output is DiagnosisFormat.MARKDOWN:
        from latdoctor.report import markdown

        typer.echo(markdown.render(diagnosis), nl=False)
    elif verbose:
        from latdoctor.cli.console import result_console
        from latdoctor.report import console

        console.render(diagnosis, result_console(), verbosity=verbose)
    else:
        from latdoctor.cli.console import result_console
        from latdoctor.report import answer

        answer.render(diagnosis, result_console())
