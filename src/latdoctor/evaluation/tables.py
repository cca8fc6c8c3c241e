"""Result tables: rows of formatted cells, written as CSV files. docs/evaluation.md explains them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from latdoctor.evaluation.statistics import BootstrapEstimate, Proportion
from latdoctor.output_file import cannot_write, write_text

NONE = "-"  # a value that was not measured


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table; `name` is its file name without the suffix."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((self.columns, *self.rows))
        return text.getvalue()


def write_tables(tables: Iterable[ResultTable], folder: Path) -> None:
    """Writes `folder/NAME.csv` for every table with rows. Raises BundleError where a file cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, "the tables", error) from error
    for table in tables:
        if table.rows:
            write_text(folder / f"{table.name}.csv", table.csv(), "the table")


def interval(share: Proportion | BootstrapEstimate, *, percent: bool = True) -> str:
    """The value with its 95 % interval: `83.3% [43.6%–97.0%]`, or `0.123 [0.100–0.150]`."""
    if share.value is None or share.low is None or share.high is None:
        return NONE
    low, value, high = (f"{x:.1%}" if percent else f"{x:.3f}" for x in (share.low, share.value, share.high))
    return f"{value} [{low}–{high}]"


def counted(share: Proportion) -> str:
    """`5 of 6: 83.3% [43.6%–97.0%]`."""
    return NONE if share.value is None else f"{share.right:g} of {share.of}: {interval(share)}"


def seconds(value: float | None) -> str:
    """`250 ms` or `2.50 s`."""
    if value is None:
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
