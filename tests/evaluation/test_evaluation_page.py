"""The published results: docs/evaluation.md and its CSV tables."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TABLES = sorted((DOCS / "evaluation").glob("*.csv"))


def test_page_links_every_table() -> None:
    linked = set(re.findall(r"\(evaluation/([\w-]+\.csv)\)", (DOCS / "evaluation.md").read_text()))
    assert linked == {path.name for path in TABLES}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_rows_have_the_columns_of_the_header(path: Path) -> None:
    header, *rows = csv.reader(path.read_text().splitlines())
    assert rows
    assert {len(row) for row in rows} == {len(header)}


def test_headline_values_are_those_of_the_summary_table() -> None:
    page = (DOCS / "evaluation.md").read_text()
    with (DOCS / "evaluation" / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    for data_set in ("machine-1-full", "machine-2-all", "machine-2-seed-108", "machine-3-seed-109"):
        values = {row["metric"]: row["value"] for row in rows if row["data set"] == data_set}
        for metric in ("AC@1", "AC@1, live runs", "AC@3", "precision of named causes", "calibration error (ECE)"):
            assert values[metric] in page, (data_set, metric)
