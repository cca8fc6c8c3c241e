"""`latdoctor alerts list|show|write`: rules by which a Prometheus server alerts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli import options
from latdoctor.errors import OperationError, UsageError
from latdoctor.incident import prometheus_rules


def write_rules(folder: Path, names: Sequence[str], p99: float | None, errors: float | None) -> tuple[Path, ...]:
    """Write the rules of `names` (default: all; those without an SLO unchanged); return the files.

    Raises UsageError, before anything is written, for an unknown name or a file that differs; OperationError.
    """
    contents = {
        folder / f"{name}{prometheus_rules.SUFFIX}": _text(name, p99, errors, names) for name in names or _all()
    }
    for path, content in contents.items():
        if path.exists() and _read(path) != content:
            raise UsageError(
                "is there already, and differs", where=str(path), next_step="remove it, or write elsewhere"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise OperationError(
            f"the rules cannot be written: {error.strerror}", where=str(folder), next_step="write to another folder"
        ) from error
    return tuple(contents)


def _all() -> tuple[str, ...]:
    return tuple(prometheus_rules.files())


def _text(name: str, p99: float | None, errors: float | None, names: Sequence[str]) -> str:
    plain = prometheus_rules.text(name)
    return prometheus_rules.text(name, p99, errors) if names or prometheus_rules.has_slo(plain) else plain


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OperationError(
            f"it cannot be read: {error.strerror}", where=str(path), next_step="check its rights"
        ) from error


app = typer.Typer(help="Alert rules for Prometheus, by the server that they watch.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="SERVER", help="A server or exporter: latdoctor alerts list.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[SERVER]...", help="Which of them (default: all).")]
To = Annotated[Path, typer.Option("--to", metavar="FOLDER", readable=False, help="Where to write them.")]


@app.command("list")
def list_() -> None:
    """List the servers that there are alert rules for.

    Exit codes: 0 listed.
    """
    from rich.table import Table

    from latdoctor.cli.console import result_console
    from latdoctor.incident import prometheus_rules

    console = result_console()
    table = Table("server", "what it is", "alerts", box=None, pad_edge=False, expand=True)
    for name in prometheus_rules.files():
        table.add_row(
            name, prometheus_rules.title(name), ", ".join(prometheus_rules.alerts(prometheus_rules.text(name)))
        )
    console.print(table)
    console.print("Next: latdoctor alerts write SERVER --to FOLDER --slo LIMIT, and name the files in prometheus.yml")


@app.command()
def show(name: Name, slo: options.Slo = None, slo_errors: options.SloErrors = None) -> None:
    """Print the alert rules for one server.

    Exit codes: 0 printed · 2 there are none for it, or an invalid SLO.
    """
    from latdoctor.incident import prometheus_rules

    typer.echo(prometheus_rules.text(name, *_slo(slo, slo_errors)), nl=False)


@app.command()
def write(to: To, names: Names = None, slo: options.Slo = None, slo_errors: options.SloErrors = None) -> None:
    """Write alert rules as files for Prometheus.

    With an SLO, for the servers that have one. A file that is there already and differs is left as it is.

    Exit codes: 0 written · 1 it cannot be written · 2 usage, or a file that is there and differs.
    """

    for path in write_rules(to, tuple(names or ()), *_slo(slo, slo_errors)):
        typer.echo(f"wrote {path}")
    typer.echo("Next: promtool check rules FILE; name it under rule_files in prometheus.yml")


def _slo(slo: str | None, errors: str | None) -> tuple[float | None, float | None]:
    from latdoctor.cli.resolve_request import value
    from latdoctor.units import parse_share, parse_span

    return (
        value(slo, parse_span, "--slo", "500ms") if slo is not None else None,
        value(errors, parse_share, "--slo-errors", "1%") if errors is not None else None,
    )
