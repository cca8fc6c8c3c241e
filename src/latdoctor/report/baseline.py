"""The values of a baseline: the important ones on one screen, or all of them."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from latdoctor.conditions.evaluator import show
from latdoctor.evidence.baseline import Baseline, Remembered
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import kind_of
from latdoctor.report.fit_to_screen import Line, print_lines
from latdoctor.report.fit_to_screen import fitted as fit
from latdoctor.report.text_utils import WIDTH, print_json
from latdoctor.report.vital_signs import PHRASES, quantity
from latdoctor.sanitize import clean, counted, fitted

_ROWS = 12


def print_baseline(found: Baseline, path: str, console: Console, *, as_json: bool, verbose: bool) -> None:
    """The baseline on one screen; with `verbose` every value."""
    if as_json:
        plain: dict[str, Any] = msgspec.to_builtins(found)
        print_json({name: value for name, value in plain.items() if name != "schema_version"}, console)
    elif verbose:
        _print_all(found, path, console)
    else:
        print_lines(screen(found, path), console)


def screen(found: Baseline, path: str) -> tuple[Line, ...]:
    """At most 24 lines: the target, when it was recorded, its key values, and how to use it."""
    head = [
        Line(fitted(f"{clean(found.target)}, recorded {clean(found.recorded_at)}", WIDTH), "bold"),
        Line(fitted(f"{counted(len(found.values), 'value')} in {clean(path)}", WIDTH), "dim"),
    ]
    rows: dict[str, Remembered] = {}
    for row in found.values:
        if row.signal in PHRASES:
            rows.setdefault(row.signal, row)
    kinds = {kind_of(row.subject) for row in found.values}
    key = [Line(fitted(f" {quantity(name, _shown(rows[name]))}", WIDTH)) for name in PHRASES if name in rows][:_ROWS]
    key = key or [Line(f" values of: {fitted(', '.join(sorted(kinds)), WIDTH - 12)}")]
    end = [
        Line(fitted(f" Next  latdoctor diagnose --baseline {clean(path)} --server URL", WIDTH), "bold"),
        Line(" -v every value · -o json", "dim"),
    ]
    return fit([head, key, end])


def _shown(row: Remembered) -> str:
    return show(row.signal, row.value) if row.signal in catalogue() else "unknown signal"


def _print_all(found: Baseline, path: str, console: Console) -> None:
    console.print(f"{clean(found.target)}, recorded {clean(found.recorded_at)}", style="bold")
    table = Table("subject", "signal", "value", box=None, pad_edge=False)
    for row in found.values:
        table.add_row(clean(row.subject), clean(row.signal), _shown(row))
    console.print(table)
    console.print(f"{counted(len(found.values), 'value')}. Next: latdoctor diagnose --baseline {path} …")
