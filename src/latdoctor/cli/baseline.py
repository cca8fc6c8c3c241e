"""`latdoctor baseline record|show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli import options

app = typer.Typer(help="What a target is like when healthy.", no_args_is_help=True)


@app.command()
def record(
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The file to write.")],
    bundle: Annotated[
        Path | None, typer.Argument(metavar="BUNDLE", help="A bundle of a healthy time; else a look now.")
    ] = None,
    server: options.Server = None,
    metrics: options.Metrics = None,
    trace: options.Trace = None,
    log: options.Log = None,
    pid: options.Pid = None,
    nvml: options.Nvml = None,
    target: options.Target = "",
    window: options.WindowOption = "",
) -> None:
    """Remember what the target is like now.

    Record it at a healthy time under usual load: rules that say `1.5 x baseline` compare with it.

    Exit codes: 0 recorded · 1 nothing could be read · 2 usage or an invalid file.
    """
    from latdoctor.cli.answering import look_now, now, seen
    from latdoctor.errors import OperationError, UsageError
    from latdoctor.evidence import baseline as baselines
    from latdoctor.evidence.bundle_files import opened

    asked = options.given(server, metrics, trace, log, pid=pid, nvml=nvml, target=target, window=window)
    if bundle is not None and asked.any_source:
        raise UsageError("a bundle and live sources were both given", next_step="give one of them")
    if bundle is None:
        looked = look_now(asked)
        evidence, _ = seen(looked)
    else:
        with opened(bundle) as looked:
            evidence, _ = seen(looked)
    recorded = baselines.record(evidence, looked.context.target, now())
    if not recorded.values:
        reasons = "; ".join(gap.reason for gap in evidence.gaps[:2])
        raise OperationError(f"nothing could be read to remember ({reasons})", next_step="latdoctor preflight")
    baselines.save(recorded, to)
    typer.echo(f"{len(recorded.values)} values remembered. Next: latdoctor diagnose --baseline {to} …")


@app.command()
def show(file: Annotated[Path, typer.Argument(metavar="FILE", help="A baseline file.")]) -> None:
    """Show what a baseline remembers.

    Exit codes: 0 shown · 2 not a baseline.
    """
    from rich.table import Table

    from latdoctor.cli.screen import result_console
    from latdoctor.evidence import baseline as baselines
    from latdoctor.evidence.judging import show as shown
    from latdoctor.evidence.signals import catalogue
    from latdoctor.text import clean

    found = baselines.load(file)
    console = result_console()
    console.print(f"{clean(found.target)}, recorded {clean(found.recorded_at)}", style="bold")
    table = Table("subject", "signal", "value", box=None, pad_edge=False)
    for row in found.values:
        value = shown(row.signal, row.value) if row.signal in catalogue() else "unknown signal"
        table.add_row(clean(row.subject), clean(row.signal), value)
    console.print(table)
    console.print(f"{len(found.values)} values. Next: latdoctor diagnose --baseline {file} …")
