"""The contents of a bundle: one line for each source, what is missing, and what was redacted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.report.diagnosis_text import SOURCE_NOUNS
from latdoctor.report.fit_to_screen import Line, Rank, print_lines
from latdoctor.report.fit_to_screen import fitted as fit
from latdoctor.report.subject_names import shortened
from latdoctor.report.text_utils import WIDTH, print_json, wrapped
from latdoctor.report.time_scope import utc_moment
from latdoctor.sanitize import clean, counted, fitted
from latdoctor.units import format_value

_SOURCES, _GAPS, _UNREAD = 10, 3, 2  # lines on the default screen


def print_contents(bundle: Bundle, path: str, console: Console, *, as_json: bool, verbose: bool) -> None:
    """The contents on one screen; with `verbose` every artifact and gap."""
    if as_json:
        print_json(_document(bundle, path), console)
    elif verbose:
        _print_all(bundle, path, console)
    else:
        print_lines(screen(bundle, path), console)


def screen(bundle: Bundle, path: str) -> tuple[Line, ...]:
    """At most 24 lines of 80 columns."""
    size = sum(map(_size, bundle.artifacts))
    count = counted(len(bundle.artifacts), "artifact")
    head = [Line(fitted(f"{clean(bundle.context.target)}  {count}, {format_value(size, 'bytes')}", WIDTH), "bold")]
    head.append(Line(fitted(f"{shortened(path, 44)}{_when(bundle)}", WIDTH), "dim"))
    sources = list(_sources(bundle))
    listed = [Line(line) for line in sources[:_SOURCES]]
    if len(sources) > _SOURCES:
        listed.append(Line(f" and {len(sources) - _SOURCES} more sources"))
    gaps = [
        Line(fitted(f" Not collected  {SOURCE_NOUNS.get(gap.source, clean(gap.source, 40))}: {gap.reason}", WIDTH))
        for gap in bundle.gaps[:_GAPS]
    ]
    if len(bundle.gaps) > _GAPS:
        gaps.append(Line(f" and {counted(len(bundle.gaps) - _GAPS, 'more gap')}"))
    redaction = list(redaction_lines(bundle))
    kept = [Line(line, rank=Rank.CHANGE) for text in redaction[: _UNREAD + 1] for line in wrapped(text, " ", "   ")]
    if len(redaction) > _UNREAD + 1:
        kept.append(Line(f" and {len(redaction) - _UNREAD - 1} more artifacts that were not redacted"))
    end = [Line(f" Next  latdoctor diagnose {path}", "bold"), Line(" -v every artifact · -o json", "dim")]
    return fit([head, listed, gaps, kept, end])


def _when(bundle: Bundle) -> str:
    end = bundle.window.end
    return "" if end is None else f" · collected until {utc_moment(end)}"


def _sources(bundle: Bundle) -> Iterator[str]:
    """One line for each source: what it is, how much there is of it, and where it was read."""
    groups: dict[tuple[str, str], list[Artifact]] = {}
    for artifact in bundle.artifacts:
        groups.setdefault((artifact.collector, artifact.source), []).append(artifact)
    for (collector, source), artifacts in groups.items():
        noun = SOURCE_NOUNS.get(collector, clean(collector, 40))
        size = format_value(sum(map(_size, artifacts)) / len(artifacts), "bytes")
        yield fitted(f" {len(artifacts):>3} × {size:<9}  {noun}: {clean(source)}", WIDTH)


def _size(artifact: Artifact) -> int:
    return artifact.content.stat().st_size if isinstance(artifact.content, Path) else len(artifact.content)


def redaction_lines(bundle: Bundle) -> Iterator[str]:
    """What was redacted, and which artifacts could not be searched."""
    if bundle.redaction is None:
        yield "not redacted: it may contain prompts, addresses and user ids (latdoctor bundle redact)"
        return
    replaced = ", ".join(f"{count} {clean(kind)}" for kind, count in sorted(bundle.redaction.replaced.items()))
    yield f"redacted: {replaced or 'nothing was found'}"
    for name in bundle.redaction.unread:
        yield f"not redacted, as it is not text, and it may contain secrets: {clean(name)}"


def _print_all(bundle: Bundle, path: str, console: Console) -> None:
    console.print(f"target {clean(bundle.context.target)}", style="bold")
    table = Table("artifact", "size", "from", box=None, pad_edge=False)
    for artifact in bundle.artifacts:
        table.add_row(artifact.name, format_value(_size(artifact), "bytes"), clean(artifact.source))
    console.print(table)
    for line in redaction_lines(bundle):
        console.print(line)
    for gap in bundle.gaps:
        console.print(f"not collected: {clean(gap.source)}: {clean(gap.reason)}")
    console.print(f"Next: latdoctor diagnose {path}")


def _document(bundle: Bundle, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "target": bundle.context.target,
        "slo_p99": bundle.context.slo_p99,
        "slo_error_ratio": bundle.context.slo_error_ratio,
        "window": bundle.window,
        "artifacts": [
            {
                "name": one.name,
                "collector": one.collector,
                "source": one.source,
                "taken_at": one.taken_at,
                "bytes": _size(one),
            }
            for one in bundle.artifacts
        ],
        "gaps": bundle.gaps,
        "baseline": None if bundle.baseline is None else bundle.baseline.recorded_at,
        "redaction": bundle.redaction,
    }
