"""Recorded cases of real servers outside the repository: every one of their files is read.

`LATDOCTOR_CASES` names their folder. Its `cases.csv` has a line for each case, `|` between the columns, with the
folder of the case and the arguments of `diagnose`. What each answer must name is judged elsewhere.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from tests.cli.running import diagnosed

ROOT = Path(os.environ.get("LATDOCTOR_CASES") or os.devnull)
TABLE = ROOT / "cases.csv"
ROWS = list(csv.DictReader(TABLE.read_text().splitlines(), delimiter="|")) if TABLE.is_file() else []
READ, REFUSED = {"read", "partly"}, "failed"

pytestmark = pytest.mark.skipif(not ROWS, reason="LATDOCTOR_CASES does not name a folder with cases.csv")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_every_file_of_a_case_is_read(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / row["folder"])
    coverage = diagnosed(*row["arguments of diagnose"].split())["coverage"]
    requested = {one["collector"]: (one["status"], one["detail"]) for one in coverage if one["status"] != "not-asked"}
    assert [detail for status, detail in requested.values() if status == REFUSED] == []
    assert any(status in READ for status, _ in requested.values())
