"""The Xid table and the CUDA table against what they were made from."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from latdoctor.collectors.logs import error_code_tables

# Buckets whose names in NVIDIA's catalogue are sentences.
RENAMED = {
    "IGNORE (sympathetic)": "IGNORE_SYMPATHETIC",
    "N/A Informational only regarding another Xid": "INFORMATIONAL",
    "Solo: RESTART_FM Not Solo: IGNORE (follow other Xid)": "WORKFLOW_XID_45",
}


def bucket(cell: str) -> str:
    name = " ".join(cell.split())
    return RENAMED.get(name, name)


def test_every_code_has_the_buckets_of_nvidias_catalogue(samples: Path) -> None:
    with (samples / "xid" / "xid-catalog-1-Xids.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))[1:]
    theirs = {int(row[1]): (bucket(row[8]), bucket(row[9])) for row in rows}
    assert len(theirs) == 172
    assert {
        row.code: (row.action.name, row.follow_up.name) for row in error_code_tables.xid_catalogue().values()
    } == theirs


@pytest.mark.parametrize(
    ("code", "name", "needs"),
    [(119, "RESET_GPU", "gpu"), (79, "RESTART_BM", "node"), (31, "RESTART_APP", "application"), (63, "IGNORE", "none")],
)
def test_what_a_code_asks_for(code: int, name: str, needs: str) -> None:
    row = error_code_tables.lookup_xid(code)
    assert (row.action.name, row.action.needs) == (name, needs)


def test_secondary_and_fatal_codes() -> None:
    rows = error_code_tables.xid_catalogue().values()
    assert {row.code for row in rows if row.secondary} == {43, 45}
    assert {48, 64, 79, 95, 119, 140} <= {row.code for row in rows if row.fatal}
    assert {13, 31, 43, 45, 63, 92, 94}.isdisjoint({row.code for row in rows if row.fatal})


def test_a_code_outside_the_catalogue_says_so() -> None:
    row = error_code_tables.lookup_xid(999)
    assert "not in NVIDIA" in row.means
    assert row.action.does == error_code_tables.NO_ACTION


def test_every_row_and_bucket_speaks() -> None:
    for row in error_code_tables.xid_catalogue().values():
        assert row.means
        assert row.action.does


def test_sticky_cuda_errors() -> None:
    sticky = {row.code for row in error_code_tables.cuda_codes().values() if row.sticky}
    assert sticky == {214, 700, 702, 710, 714, 715, 716, 717, 718, 719}


def test_cuda_codes_are_found_by_either_name_and_by_text() -> None:
    for row in error_code_tables.cuda_codes().values():
        assert error_code_tables.by_name(row.name) is row
        assert not row.driver_name or error_code_tables.by_name(row.driver_name) is row
        assert error_code_tables.by_text(f"x: {row.text.upper()} (y)") is row
    assert error_code_tables.by_name("cudaSuccess") is None
    assert error_code_tables.by_text("all well") is None
