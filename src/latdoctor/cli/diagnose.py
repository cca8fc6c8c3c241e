"""`latdoctor diagnose` and `latdoctor collect`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options

if TYPE_CHECKING:
    from latdoctor.cli.options import Given
    from latdoctor.diagnosis.result import Diagnosis
    from latdoctor.evidence.bundle import Bundle


class Output(StrEnum):
    """How the answer is printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class FailOn(StrEnum):
    """From which level on `diagnose` leaves with exit code 3."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


def diagnose(
    bundle: Annotated[
        Path | None, typer.Argument(metavar="BUNDLE", help="A bundle that `latdoctor collect` wrote.")
    ] = None,
    server: options.Server = None,
    metrics: options.Metrics = None,
    trace: options.Trace = None,
    log: options.Log = None,
    pid: options.Pid = None,
    nvml: options.Nvml = None,
    target: options.Target = "",
    window: options.WindowOption = "",
    slo: options.Slo = "",
    slo_errors: options.SloErrors = "",
    baseline: options.BaselineOption = None,
    rules: options.Rules = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="PATH", help="Keep the bundle: a folder or a .tar.zst.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How the answer is printed.")] = Output.TEXT,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit with 3 from this level on.")] = FailOn.CRITICAL,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every check, account and gap.")] = False,
) -> None:
    """Say why the service is slow, with the evidence.

    From live sources, files, or a saved bundle. With no source given: the configured target, else this machine.

    Exit codes: 0 nothing at or above --fail-on · 1 operational error · 2 usage or an invalid file ·
    3 verdict or cause at or above --fail-on · 4 inconclusive.
    """
    asked = options.given(
        server, metrics, trace, log, pid=pid, nvml=nvml, target=target, window=window, slo=slo,
        slo_errors=slo_errors, baseline=baseline,
    )  # fmt: skip
    from latdoctor.cli.answering import exit_code, rule_set, the_diagnosis
    from latdoctor.evidence.bundle_files import must_be_new

    if keep is not None:
        must_be_new(keep)
    chosen = rule_set(rules or [])
    with _looked(bundle, asked) as looked:
        if keep is not None:
            _save(looked, keep)
        diagnosis = the_diagnosis(looked, chosen)
    _print(diagnosis, output, verbose=verbose)
    raise typer.Exit(exit_code(diagnosis, fail_on.value))


def collect(
    to: Annotated[Path, typer.Option("--to", metavar="PATH", help="Where to write: a new folder or a .tar.zst.")],
    server: options.Server = None,
    metrics: options.Metrics = None,
    trace: options.Trace = None,
    log: options.Log = None,
    pid: options.Pid = None,
    nvml: options.Nvml = None,
    target: options.Target = "",
    window: options.WindowOption = "",
    slo: options.Slo = "",
    slo_errors: options.SloErrors = "",
    baseline: options.BaselineOption = None,
) -> None:
    """Save the raw evidence of one look as a bundle.

    It can be diagnosed later or elsewhere, with the same answer: latdoctor diagnose BUNDLE.

    Exit codes: 0 saved · 1 operational error · 2 usage or an invalid file.
    """
    asked = options.given(
        server, metrics, trace, log, pid=pid, nvml=nvml, target=target, window=window, slo=slo,
        slo_errors=slo_errors, baseline=baseline,
    )  # fmt: skip
    from latdoctor.evidence.bundle_files import must_be_new

    must_be_new(to)
    with _looked(None, asked) as looked:
        _save(looked, to)
    typer.echo(f"{len(looked.artifacts)} artifacts, {len(looked.gaps)} gaps. Next: latdoctor diagnose {to}")


@contextmanager
def _looked(path: Path | None, asked: Given) -> Iterator[Bundle]:
    """The saved bundle at `path`, or a fresh look."""
    from dataclasses import replace

    from latdoctor.cli.answering import look_now
    from latdoctor.cli.asking import with_given_slo
    from latdoctor.errors import UsageError
    from latdoctor.evidence.baseline import load
    from latdoctor.evidence.bundle_files import opened

    if path is None:
        yield look_now(asked)
        return
    if asked.any_source:
        raise UsageError("a bundle and live sources were both given", next_step="give one of them")
    if asked.target or asked.window:
        raise UsageError(
            f"{'--target' if asked.target else '--window'} says how to look, and a bundle was looked at already",
            next_step="leave it out",
        )
    with opened(path) as saved:
        remembered = load(asked.baseline) if asked.baseline else saved.baseline
        yield replace(saved, context=with_given_slo(saved.context, asked), baseline=remembered)


def _save(looked: Bundle, path: Path) -> None:
    from latdoctor import __version__
    from latdoctor.evidence.bundle_files import save

    save(looked, path, __version__)


def _print(diagnosis: Diagnosis, output: Output, *, verbose: bool) -> None:
    from latdoctor.cli.screen import result_console
    from latdoctor.report import console, document, markdown

    if output is Output.JSON:
        typer.echo(document.render(diagnosis))
    elif output is Output.MARKDOWN:
        typer.echo(markdown.render(diagnosis), nl=False)
    else:
        console.render(diagnosis, result_console(), verbose=verbose)
