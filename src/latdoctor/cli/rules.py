"""`latdoctor rules list|lint|test|diff`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.padding import Padding
from rich.text import Text

from latdoctor.cli import options
from latdoctor.cli.collect_and_diagnose import case_of, rule_set, stamp
from latdoctor.cli.console import progress_line, result_console
from latdoctor.cli.options import OutputFormat, OutputOption
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.comparison import IncidentChange, RulesDifference, contrast, rule_changes
from latdoctor.diagnosis.diagnose import diagnose
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import BundleError, DefinitionError
from latdoctor.evidence.bundle_files import opened
from latdoctor.report.comparison import of_rules
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.diagnosis.rule_tests import CaseResult


SHIPPED = "the shipped rules"
_PACKED = ".tar.zst"
_WHOLE = (
    "a folder with a shipped cause replaces all shipped rules: copy the others into it too, or make your changes in an "
    "overlay (docs/contributing.md)"
)


def compared(folders: Sequence[Path], bundles: Sequence[Path]) -> RulesDifference:
    """Compare the rules of the last of `folders` with those of the first, or of a single one with the shipped rules.

    Raises DefinitionError, BundleError.
    """
    old_name, old = _rules(folders[0]) if len(folders) > 1 else (SHIPPED, rule_set(()))
    new_name, new = _rules(folders[-1])
    paths = [path for bundle in bundles for path in _bundles(bundle)]
    incidents = []
    with progress_line() as tell:
        for number, path in enumerate(paths, start=1):
            tell(f"incident {number} of {len(paths)}: {path}")
            incidents.append(_incident(path, old, new))
    return RulesDifference(
        _described(old_name, old), _described(new_name, new), rule_changes(old, new), tuple(incidents)
    )


def _rules(folder: Path) -> tuple[str, RuleSet]:
    """The description of `folder` and its rules: with the shipped ones, unless it replaces them.

    Raises DefinitionError.
    """
    if _stands_for_shipped(folder):
        try:
            return str(folder), rule_loader.read([folder])
        except DefinitionError as error:
            raise DefinitionError(error.problems, next_step=_WHOLE) from error
    return f"{SHIPPED} and {folder}", rule_set([folder])


def _stands_for_shipped(folder: Path) -> bool:
    return any(path.stem in rule_set(()).cause for path in (folder / "causes").glob("*.yaml"))


def _described(name: str, rules: RuleSet) -> str:
    return f"{clean(name)} ({len(rules.causes)} causes, {len(rules.findings)} findings)"


def _bundles(path: Path) -> Iterator[Path]:
    """`path` itself, or the bundles in that folder. Raises BundleError where there is none."""
    if not path.is_dir() or (path / "manifest.json").exists():
        yield path
        return
    try:
        inner = sorted(path.iterdir())
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path)) from error
    found = [path for path in inner if path.name.endswith(_PACKED) or (path / "manifest.json").exists()]
    if not found:
        raise BundleError(
            "contains no bundle",
            where=str(path),
            next_step="name a bundle, or a folder of what `latdoctor collect` wrote",
        )
    yield from found


def _incident(path: Path, old: RuleSet, new: RuleSet) -> IncidentChange:
    with opened(path) as bundle:
        case = case_of(bundle)
    return IncidentChange(clean(str(path)), contrast(*(diagnose(case, rules, stamp()) for rules in (old, new))))


def print_difference(difference: RulesDifference, new: Path, *, as_json: bool, every: bool) -> None:
    """Print the document, or lines of text and the next command for `new`, the folder of the new rules."""
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(difference), indent=2).decode())
        return
    console = result_console()
    for indent, line in of_rules(difference, every=every):
        console.print(Padding(Text(line), (0, 0, 0, indent), expand=False) if line else "")
    if not difference.incidents:
        console.print("\nNext: name recorded incidents, to see what becomes of their answers: --bundles PATH")
    else:
        console.print(Text(f"Next: {_next(new)}"), soft_wrap=True)


def _next(new: Path) -> str:
    if _stands_for_shipped(new):
        return "latdoctor rules test, once they are in place of the shipped ones"
    if clean(str(new)) != str(new):  # an unprintable name cannot be typed
        return "latdoctor rules test --rules, and that folder"
    return f"latdoctor rules test --rules {shlex.quote(str(new))}"


app = typer.Typer(help="The rules: what there is, and whether they are sound.", no_args_is_help=True)

FAILED = 3
_JUNIT = "the JUnit report"


@app.command("list")
def list_rules(rules: options.Rules = None) -> None:
    """List every cause, by tier.

    Exit codes: 0 listed · 2 an invalid rule.
    """
    from rich.table import Table

    from latdoctor.cli.collect_and_diagnose import rule_set
    from latdoctor.cli.console import result_console
    from latdoctor.evidence.catalogue import TIERS

    known = rule_set(rules or [])
    console = result_console()
    for tier in TIERS:
        table = Table(
            "cause", "severity", "what it is", title=tier, title_justify="left", box=None, pad_edge=False, expand=True
        )
        for cause in known.causes:
            if cause.tier == tier:
                table.add_row(cause.id, "disabled" if cause.disabled else cause.severity, cause.title)
        console.print(table)
    console.print(f"{len(known.causes)} causes, {len(known.findings)} findings. Next: latdoctor explain ID")


@app.command()
def lint(rules: options.Rules = None) -> None:
    """Check that every rule is sound.

    Its format, its references, its weights, and that each cause is recognisable by its own findings.

    Exit codes: 0 sound · 2 problems, each with its file and line.
    """
    from latdoctor.cli.collect_and_diagnose import rule_set
    from latdoctor.diagnosis.rule_lint import lint as lint_rules
    from latdoctor.errors import DefinitionError

    known = rule_set(rules or [])
    problems = lint_rules(known)
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for what makes a rule sound")
    typer.echo(f"{len(known.causes)} causes and {len(known.findings)} findings are sound")


@app.command("test")
def run_cases(
    rules: options.Rules = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", readable=False, help="Write the outcome for a CI server too."),
    ] = None,
    causes: Annotated[
        list[str] | None, typer.Option("--cause", metavar="CAUSE", help="Only its cases; repeatable (default: all).")
    ] = None,
) -> None:
    """Run the cases of the rules.

    They stand in cases/ beside findings/ and causes/. Shipped cases are judged by the shipped limits, yours by those
    of your overlays.

    Exit codes: 0 all passed · 2 an invalid rule or case, or a file that cannot be written · 3 a case failed.
    """
    from latdoctor.cli.collect_and_diagnose import rule_set
    from latdoctor.cli.console import progress_line
    from latdoctor.diagnosis.rule_loader import read
    from latdoctor.diagnosis.rule_tests import read_cases, run
    from latdoctor.errors import UsageError
    from latdoctor.output_file import must_be_writable
    from latdoctor.resources import folder

    if junit is not None:
        must_be_writable(junit, _JUNIT)
    shipped, extra = folder("rules"), rules or []
    known = rule_set(extra)
    plain = read([shipped, *extra], overlaid=False) if extra else known
    cases = read_cases([base / "cases" for base in (shipped, *extra)], known)
    if causes:
        cases = tuple(one for one in cases if one.cause in causes)
    if not cases:
        raise UsageError("there is no case of this cause", next_step="latdoctor rules list")
    outcomes = []
    with progress_line() as tell:
        for number, case in enumerate(cases, 1):
            tell(f"case {number} of {len(cases)}")
            outcomes.append(run(case, plain if Path(case.where).is_relative_to(shipped) else known))
    for outcome in outcomes:
        for failure in outcome.failures:
            typer.echo(f"{outcome.case.where}: {outcome.case.cause} {outcome.case.name}: {failure}")
    if junit is not None:
        _write_junit(outcomes, junit)
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    typer.echo(f"{len(outcomes) - failed} passed, {failed} failed")
    raise typer.Exit(FAILED if failed else 0)


def _write_junit(outcomes: Sequence[CaseResult], path: Path) -> None:
    """Raises BundleError where it cannot be written."""
    from latdoctor.output_file import cannot_write
    from latdoctor.report.machine_formats import render_junit

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_junit(outcomes), encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, _JUNIT, error) from error


@app.command()
def diff(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="[OLD] NEW", readable=False, help="Folders of rules; without OLD, the shipped ones are the old."
        ),
    ],
    bundles: Annotated[
        list[Path] | None,
        typer.Option(
            "--bundles",
            metavar="PATH",
            readable=False,
            help="A recorded incident, or a folder of them; may be repeated.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="Exit with 3 where a verdict, or what is named, is another.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every change of every incident.")] = False,
) -> None:
    """Show what a change of rules does.

    To the rules themselves, and to recorded incidents: whose causes get another probability or rank, and which verdicts
    become others. A folder that holds shipped causes stands in place of the shipped rules, any other beside them.

    Exit codes: 0 shown · 2 an invalid rule or bundle · 3 an answer became another, with --fail-on-change.
    """
    from latdoctor.errors import UsageError

    if len(folders) > 2:
        raise UsageError(
            f"{len(folders)} folders of rules are named",
            next_step="give [OLD] NEW, and each bundle with --bundles PATH",
        )
    if fail_on_change and not bundles:
        raise UsageError(
            "--fail-on-change compares the answers to recorded incidents, and none is named",
            next_step="name them: --bundles PATH",
        )
    found = compared(folders, bundles or [])
    print_difference(found, folders[-1], as_json=output is OutputFormat.JSON, every=verbose)
    raise typer.Exit(FAILED if fail_on_change and found.answers_changed else 0)
