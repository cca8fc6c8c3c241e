"""`latdoctor preflight` (what can be seen here?) and `latdoctor targets` (what is there to diagnose?)."""

from __future__ import annotations

import typer

_MARK = {"yes": "+", "partly": "~", "no": "-", "if given": " "}


def preflight() -> None:
    """Report which sources can be read here, and why not.

    Exit codes: 0 everything can be seen · 4 something cannot.
    """
    from rich.table import Table

    from latdoctor.cli.console import progress, result_console
    from latdoctor.collectors import COLLECTORS
    from latdoctor.collectors.base import SourceAvailability

    console = result_console()
    with progress("looking") as waiting:
        rows: list[SourceAvailability] = []
        for collector in COLLECTORS:
            waiting([collector.title])
            rows.extend(collector.preflight())
    table = Table("", "what", "seen", "detail", box=None, pad_edge=False, expand=True)
    for row in rows:
        detail = f"{row.detail} — {row.next_step}" if row.next_step else row.detail
        table.add_row(_MARK.get(row.status, "?"), row.what, row.status, detail)
    console.print(table)
    hidden = [row.what for row in rows if row.status in ("no", "partly")]
    console.print(f"not fully seen: {', '.join(hidden)}" if hidden else "everything can be seen")
    console.print("Next: latdoctor diagnose")
    raise typer.Exit(4 if hidden else 0)


def targets() -> None:
    """List what there is to diagnose.

    The configured targets, and the metrics pages found on this machine's ports.

    Exit codes: 0 listed · 2 an invalid configuration.
    """
    from rich.table import Table

    from latdoctor.cli import config
    from latdoctor.cli.console import progress, result_console
    from latdoctor.collectors.prometheus.discovery import discover
    from latdoctor.http.address import mask_credentials

    console = result_console()
    configured = config.targets()
    with progress("trying local ports"):
        found = discover()
    table = Table("target", "where", "speaks", box=None, pad_edge=False, expand=True)
    for target in configured.values():
        places = [
            *(mask_credentials(url) for url in (*target.server, *([target.prometheus] if target.prometheus else []))),
            *(
                str(path)
                for path in (
                    *target.metrics,
                    *target.trace,
                    *target.nsys,
                    *target.tensorrt,
                    *target.torch_memory,
                    *target.log,
                )
            ),
        ]
        table.add_row(target.name, ", ".join(places), "configured")
    for page in found:
        table.add_row("(found)", page.url, ", ".join(page.dialects) or "unknown exporter")
    if configured or found:
        console.print(table)
    else:
        console.print("no target is configured and no metrics page answers on a local port")
    if configured:
        console.print(f"Next: latdoctor diagnose --target {next(iter(configured))}")
    else:
        console.print(f"Next: latdoctor diagnose --server {found[0].url if found else 'URL'} --slo 500ms")
