"""`latdoctor bundle inspect|diff|redact`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from latdoctor.cli.console import result_console
from latdoctor.conditions.evaluator import show
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.diff import Difference
from latdoctor.evidence.model import Value
from latdoctor.sanitize import clean, counted

if TYPE_CHECKING:
    from latdoctor.evidence.bundle import Bundle


SHOWN = 30
_NAMES = 8


def print_differences(found: Sequence[Difference], titles: tuple[str, str], *, every: bool) -> None:
    """What differs, the largest change first; all values where `every`."""
    console = result_console()
    both = [one for one in found if one.before is not None and one.after is not None]
    changed = both if every else [one for one in both if one.is_one]
    table = Table("subject", "signal", *titles, "times", box=None, pad_edge=False)
    for one in changed if every else changed[:SHOWN]:
        times = "" if one.factor is None else f"{one.factor:.3g}"
        row = (one.subject, one.signal, _shown(one.signal, one.before), _shown(one.signal, one.after), times)
        table.add_row(*(clean(text) for text in row))
    if changed:
        console.print(table)
    if len(changed) > SHOWN and not every:
        console.print(f"({counted(len(changed) - SHOWN, 'more difference')}: -v)")
    alike = sum(not one.is_one for one in both)
    console.print(f"{counted(alike, 'value')} within 20 % of each other, {len(both) - alike} beyond")
    unseen = ([one.signal for one in found if one.before is None], [one.signal for one in found if one.after is None])
    for title, missing in zip(titles, unseen, strict=True):
        names = list(dict.fromkeys(missing))
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES and not every else ""
        if names:
            console.print(clean(f"not seen {title}: {', '.join(names if every else names[:_NAMES])}{more}", 20_000))


def _shown(signal: str, value: Value | None) -> str:
    if value is None:
        return ""
    if signal in catalogue():
        return show(signal, value)
    return value if isinstance(value, str) else f"{value:g}"


app = typer.Typer(help="Saved evidence.", no_args_is_help=True)

_Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", readable=False, help="A bundle: a folder or a .tar.zst.")]


@app.command()
def inspect(path: _Bundle) -> None:
    """Show what a bundle holds, and what could not be collected.

    It also tells how much was redacted on the way in, and what could not be looked into for that.

    Exit codes: 0 shown · 2 not a bundle, or one that was changed.
    """
    from rich.table import Table

    from latdoctor.cli.console import result_console
    from latdoctor.evidence.bundle_files import opened
    from latdoctor.sanitize import clean
    from latdoctor.units import format_value

    console = result_console()
    with opened(path) as bundle:
        console.print(f"target {clean(bundle.context.target)}", style="bold")
        table = Table("artifact", "size", "from", box=None, pad_edge=False)
        for artifact in bundle.artifacts:
            size = artifact.content.stat().st_size if isinstance(artifact.content, Path) else len(artifact.content)
            table.add_row(artifact.name, format_value(size, "bytes"), clean(artifact.source))
        console.print(table)
        for line in _of_redaction(bundle):
            console.print(line)
        for gap in bundle.gaps:
            console.print(f"not collected: {clean(gap.source)}: {clean(gap.reason)}")
    console.print(f"Next: latdoctor diagnose {path}")


def _of_redaction(bundle: Bundle) -> list[str]:
    from latdoctor.sanitize import clean

    if bundle.redaction is None:
        return ["not redacted: it may hold prompts, addresses and user ids (latdoctor bundle redact)"]
    counted = ", ".join(f"{count} {clean(kind)}" for kind, count in sorted(bundle.redaction.replaced.items()))
    lines = [f"redacted: {counted or 'nothing was found'}"]
    return lines + [
        f"not looked into, as it is no text, and it may hold secrets: {clean(name)}" for name in bundle.redaction.unread
    ]


@app.command()
def redact(
    path: _Bundle,
    to: Annotated[
        Path, typer.Option("--to", metavar="PATH", readable=False, help="Where to write: a new folder or a .tar.zst.")
    ],
) -> None:
    """Write a copy without prompts, secrets and addresses.

    User ids are taken out too. The same text gets the same pseudonym throughout a copy, and another in every copy.

    Exit codes: 0 written · 2 not a bundle, or one that was changed.
    """
    from latdoctor import __version__
    from latdoctor.cli.interrupt import interruptible
    from latdoctor.evidence.bundle_files import must_be_new, opened, save
    from latdoctor.evidence.redaction.bundle import redacted
    from latdoctor.evidence.redaction.redactor import Redactor

    must_be_new(to)
    redactor = Redactor()
    with interruptible(to), opened(path) as bundle:
        save(redacted(bundle, redactor), to, __version__, redactor)
    with opened(to) as made:
        for line in _of_redaction(made):
            typer.echo(line)
    typer.echo(f"Next: latdoctor bundle inspect {to}")


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", readable=False, help="A bundle.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", readable=False, help="A later bundle of the same target.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every value that both show.")] = False,
) -> None:
    """Show what differs between two bundles.

    Values first, the largest change at the top, then what only one of them shows.

    Exit codes: 0 shown · 2 not a bundle, or one that was changed.
    """
    from latdoctor.cli.session import seen
    from latdoctor.evidence.bundle_files import opened
    from latdoctor.evidence.diff import differences, values

    found = []
    for path in (before, after):
        with opened(path) as bundle:
            found.append(values(seen(bundle)[0]))
    print_differences(differences(*found), ("before", "after"), every=verbose)
    typer.echo(f"Next: latdoctor diagnose {after}")
