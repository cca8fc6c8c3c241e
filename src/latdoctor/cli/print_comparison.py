"""Prints two observations beside each other: on one screen, with every value, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.cli.console import result_console
from latdoctor.cli.options import OutputFormat
from latdoctor.evidence.diff import Difference
from latdoctor.report import comparison_screen
from latdoctor.report.comparison_screen import ComparedPair, shown
from latdoctor.report.fit_to_screen import print_lines
from latdoctor.report.text_utils import print_json
from latdoctor.sanitize import clean, counted


def print_comparison(
    pair: ComparedPair, next_command: str, output: OutputFormat, *, verbose: bool, columns: tuple[str, str]
) -> None:
    """`columns` head the values of the first and the second in the table of -v."""
    console = result_console()
    if output is OutputFormat.JSON:
        print_json(comparison_screen.document(pair), console)
        return
    lines = comparison_screen.screen(pair, next_command)
    if not verbose:
        print_lines(lines, console)
        return
    print_lines(lines[:1], console)
    _print_values(pair.values, columns)
    console.print(f"Next: {next_command}")


def _print_values(found: Sequence[Difference], columns: tuple[str, str]) -> None:
    """Every value that both have, the largest change first, then what only one has."""
    from rich.table import Table

    console = result_console()
    both = [one for one in found if one.before is not None and one.after is not None]
    table = Table("subject", "signal", *columns, "change", box=None, pad_edge=False)
    for one in both:
        changed = comparison_screen.change(one.before, one.after)
        row = (one.subject, one.signal, shown(one.signal, one.before), shown(one.signal, one.after), changed)
        table.add_row(*(clean(text) for text in row))
    if both:
        console.print(table)
    alike = sum(not one.is_one for one in both)
    console.print(f"{counted(alike, 'value')} within 20 % of each other, {len(both) - alike} beyond")
    missing = ([one.signal for one in found if one.before is None], [one.signal for one in found if one.after is None])
    for title, signals in zip(columns, missing, strict=True):
        if names := list(dict.fromkeys(signals)):
            console.print(clean(f"not measured {title}: {', '.join(names)}", 20_000))
