"""`latdoctor collect`: one look, or one that was saved before, and how a look is saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.options import SourceOptions

if TYPE_CHECKING:
    from latdoctor.cli.request import Looked, Need


@options.source_options()
def collect(
    *,
    to: Annotated[
        Path, typer.Option("--to", metavar="PATH", readable=False, help="Where to write: a new folder or a .tar.zst.")
    ],
    sources: SourceOptions,
    no_redact: options.NoRedact = False,
) -> None:
    """Save the raw evidence of one observation as a bundle.

    It can be diagnosed later or elsewhere, with the same answer: latdoctor diagnose BUNDLE.
    Prompts, secrets, addresses and user ids are replaced by pseudonyms on their way in.

    Exit codes: 0 saved · 1 nothing that was requested could be read · 2 usage, or an invalid baseline.
    """
    from latdoctor.cli.console import notice
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.request import Need, print_gaps
    from latdoctor.evidence.bundle_files import must_be_new
    from latdoctor.sanitize import clean, counted

    must_be_new(to)
    with interruptible(to), look_or_open(None, sources, Need.IF_THERE) as looked:
        bundle = saved(looked, to, redact=not no_redact).bundle
    print_gaps(bundle.gaps)
    for name in bundle.redaction.unread if bundle.redaction else ():
        notice(f"not redacted, as it is no text, and it may hold secrets: {clean(name)}")
    brought = counted(len(bundle.artifacts), "artifact"), counted(len(bundle.gaps), "gap")
    typer.echo(f"{', '.join(brought)}. Next: latdoctor diagnose {to}")


@contextmanager
def look_or_open(path: Path | None, sources: SourceOptions, need: Need) -> Iterator[Looked]:
    """The saved bundle at `path`, or a fresh look."""
    from dataclasses import replace

    from latdoctor.cli.request import Looked, must_not_say_how, must_stand_alone, with_given_slo
    from latdoctor.cli.session import look_for
    from latdoctor.evidence.baseline import load
    from latdoctor.evidence.bundle_files import opened

    if path is None:
        yield look_for(sources, need)
        return
    must_stand_alone(path, sources)
    must_not_say_how(sources)
    with opened(path) as bundle:
        remembered = load(sources.baseline) if sources.baseline else bundle.baseline
        yield Looked(replace(bundle, context=with_given_slo(bundle.context, sources), baseline=remembered))


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
    known = save(kept.bundle, path, __version__, redactor)
    return Looked(replace(kept.bundle, redaction=known), kept.asked)
