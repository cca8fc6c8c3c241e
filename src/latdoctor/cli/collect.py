"""`latdoctor collect`: collect evidence now or open a saved bundle, and save a bundle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli import options
from latdoctor.cli.options import SourceOptions

if TYPE_CHECKING:
    from latdoctor.cli.resolve_request import BaselineNeed, CollectedEvidence


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
    Prompts, secrets, addresses and user ids are replaced by pseudonyms before they are written.

    Exit codes: 0 saved · 1 nothing that was requested could be read · 2 usage, or an invalid baseline.
    """
    from latdoctor.cli.console import notice
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.cli.resolve_request import BaselineNeed, print_gaps
    from latdoctor.evidence.bundle_files import must_be_new
    from latdoctor.sanitize import clean, counted

    must_be_new(to)
    with interruptible(to), collect_or_open(None, sources, BaselineNeed.IF_PRESENT) as collected:
        bundle = save_collected(collected, to, redact=not no_redact).bundle
    print_gaps(bundle.gaps)
    for name in bundle.redaction.unread if bundle.redaction else ():
        notice(f"not redacted, because it is not text; it may contain secrets: {clean(name)}")
    counts = counted(len(bundle.artifacts), "artifact"), counted(len(bundle.gaps), "gap")
    typer.echo(f"{', '.join(counts)}. Next: latdoctor diagnose {to}")


@contextmanager
def collect_or_open(path: Path | None, sources: SourceOptions, need: BaselineNeed) -> Iterator[CollectedEvidence]:
    """The saved bundle at `path`, or evidence collected now."""
    from dataclasses import replace

    from latdoctor.cli.collect_and_diagnose import collect_evidence
    from latdoctor.cli.resolve_request import (
        CollectedEvidence,
        check_no_collect_options,
        check_no_sources_beside,
        with_slo_options,
    )
    from latdoctor.evidence.baseline import load
    from latdoctor.evidence.bundle_files import opened

    if path is None:
        yield collect_evidence(sources, need)
        return
    check_no_sources_beside(path, sources)
    check_no_collect_options(sources)
    with opened(path) as bundle:
        baseline = load(sources.baseline) if sources.baseline else bundle.baseline
        yield CollectedEvidence(replace(bundle, context=with_slo_options(bundle.context, sources), baseline=baseline))


def save_collected(collected: CollectedEvidence, path: Path, *, redact: bool) -> CollectedEvidence:
    """Save the bundle and return it as saved, so that this diagnosis and a replay have the same input.

    Raises OperationError where no source could be read: an empty bundle would pass for evidence. That a server does not
    answer is evidence.
    """
    from dataclasses import replace

    from latdoctor import __version__
    from latdoctor.cli.resolve_request import CollectedEvidence, check_sources_read, redact_collected
    from latdoctor.evidence.bundle_files import save
    from latdoctor.evidence.model import Evidence
    from latdoctor.evidence.redaction.redactor import Redactor

    raw = Evidence(gaps=collected.bundle.gaps)
    check_sources_read(collected, raw, outage=True, consequence="and nothing was saved")
    redactor = Redactor() if redact else None
    kept = redact_collected(collected, redactor) if redactor else collected
    known = save(kept.bundle, path, __version__, redactor)
    return CollectedEvidence(replace(kept.bundle, redaction=known), kept.requested)
