"""`latdoctor bundle inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Saved evidence.", no_args_is_help=True)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", readable=False, help="A bundle: a folder or a .tar.zst.")],
) -> None:
    """Show what a bundle holds, and what could not be collected.

    Exit codes: 0 shown · 2 not a bundle, or one that was changed.
    """
    from rich.table import Table

    from latdoctor.cli.screen import result_console
    from latdoctor.evidence.bundle_files import opened
    from latdoctor.text import clean
    from latdoctor.units import format_value

    console = result_console()
    with opened(path) as bundle:
        console.print(f"target {clean(bundle.context.target)}", style="bold")
        table = Table("artifact", "size", "from", box=None, pad_edge=False)
        for artifact in bundle.artifacts:
            size = artifact.content.stat().st_size if isinstance(artifact.content, Path) else len(artifact.content)
            table.add_row(artifact.name, format_value(size, "bytes"), clean(artifact.source))
        console.print(table)
        for gap in bundle.gaps:
            console.print(f"not collected: {clean(gap.source)}: {clean(gap.reason)}")
    console.print(f"Next: latdoctor diagnose {path}")
