"""`latdoctor collect`: one look, or one that was saved before, and how a look is saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options

if TYPE_CHECKING:
    from latdoctor.cli.options import Given
    from latdoctor.cli.request import Looked, Need


def collect(
    to: Annotated[
        Path, typer.Option("--to", metavar="PATH", readable=False, help="Where to write: a new folder or a .tar.zst.")
    ],
    server: options.Server = None,
    metrics: options.Metrics = None,
    trace: options.Trace = None,
    nsys: options.Nsys = None,
    tensorrt: options.TensorRT = None,
    torch_memory: options.TorchMemory = None,
    log: options.Log = None,
    prometheus: options.Prometheus = None,
    select: options.Select = None,
    since: options.Since = None,
    until: options.Until = None,
    log_pattern: options.LogPattern = None,
    changes: options.Changes = None,
    pid: options.Pid = None,
    nvml: options.Nvml = None,
    target: options.Target = None,
    window: options.WindowOption = None,
    slo: options.Slo = None,
    slo_errors: options.SloErrors = None,
    baseline: options.BaselineOption = None,
    no_redact: options.NoRedact = False,
) -> None:
    """Save the raw evidence of one look as a bundle.

    It can be diagnosed later or elsewhere, with the same answer: latdoctor diagnose BUNDLE.
    Prompts, secrets, addresses and user ids are replaced by pseudonyms on their way in.

    Exit codes: 0 saved · 1 nothing that was asked for could be read · 2 usage, or an invalid baseline.
    """
    asked = options.given(
        server, metrics, trace, log, nsys=nsys, tensorrt=tensorrt, torch_memory=torch_memory, prometheus=prometheus,
        select=select, since=since, until=until, log_pattern=log_pattern, changes=changes, pid=pid, nvml=nvml,
        target=target, window=window, slo=slo, slo_errors=slo_errors, baseline=baseline,
    )  # fmt: skip
    from latdoctor.cli.console import say
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.request import Need, tell
    from latdoctor.evidence.bundle_files import must_be_new
    from latdoctor.sanitize import clean, counted

    must_be_new(to)
    with interruptible(to), look_or_open(None, asked, Need.IF_THERE) as looked:
        bundle = saved(looked, to, redact=not no_redact).bundle
    tell(bundle.gaps)
    for name in bundle.redaction.unread if bundle.redaction else ():
        say(f"not redacted, as it is no text, and it may hold secrets: {clean(name)}")
    brought = counted(len(bundle.artifacts), "artifact"), counted(len(bundle.gaps), "gap")
    typer.echo(f"{', '.join(brought)}. Next: latdoctor diagnose {to}")


@contextmanager
def look_or_open(path: Path | None, asked: Given, need: Need) -> Iterator[Looked]:
    """The saved bundle at `path`, or a fresh look."""
    from dataclasses import replace

    from latdoctor.cli.request import Looked, must_not_say_how, must_stand_alone, with_given_slo
    from latdoctor.cli.session import look_for
    from latdoctor.evidence.baseline import load
    from latdoctor.evidence.bundle_files import opened

    if path is None:
        yield look_for(asked, need)
        return
    must_stand_alone(path, asked)
    must_not_say_how(asked)
    with opened(path) as bundle:
        remembered = load(asked.baseline) if asked.baseline else bundle.baseline
        yield Looked(replace(bundle, context=with_given_slo(bundle.context, asked), baseline=remembered))


def saved(looked: Looked, path: Path, *, redact: bool) -> Looked:
    """Saves the look, and gives it as it was saved: what is diagnosed now is what a replay diagnoses.

    Raises OperationError where there is nothing to keep: an empty bundle would be taken for the evidence.
    """
    from dataclasses import replace

    from latdoctor import __version__
    from latdoctor.cli.request import Looked, must_have_read, redacted
    from latdoctor.evidence.bundle_files import save
    from latdoctor.evidence.model import Evidence
    from latdoctor.evidence.redaction.redactor import Redactor

    raw = Evidence(gaps=looked.bundle.gaps)
    must_have_read(looked, raw, otherwise="and nothing was kept")
    redactor = Redactor() if redact else None
    kept = redacted(looked, redactor) if redactor else looked
    told = save(kept.bundle, path, __version__, redactor)
    return Looked(replace(kept.bundle, redaction=told), kept.asked)
