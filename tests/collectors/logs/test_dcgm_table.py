"""The table of DCGM errors against the mapping that it was made from."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs import error_code_tables
from latdoctor.evidence.bundle import Artifact

# A mark for the end of the list, and a row that is not one of DCGM's names.
NO_ERRORS = {"DCGM_FR_ERROR_SENTINEL", "GPU_TEMP_HW_SLOWDOWN_VIOLATION"}


def test_every_error_has_the_action_of_the_mapping(samples: Path) -> None:
    with (samples / "xid" / "nvsentinel-dcgmerrorsmapping.csv").open(newline="") as file:
        theirs = {name: action for name, action in csv.reader(file) if name not in NO_ERRORS}
    assert len(theirs) >= 130
    assert {f"DCGM_FR_{name}": row.action.name for name, row in error_code_tables.dcgm_errors().items()} == theirs


@pytest.mark.parametrize(
    ("name", "needs", "secondary"),
    [
        ("DCGM_FR_VOLATILE_DBE_DETECTED", "gpu", False),
        ("FALLEN_OFF_BUS", "node", False),
        ("DCGM_FR_XID_ERROR", "none", True),
        ("DCGM_FR_SOMETHING_NEW", "none", False),
    ],
)
def test_what_an_error_asks_for(name: str, needs: str, secondary: bool) -> None:
    row = error_code_tables.lookup_dcgm_error(name)
    assert (row.action.needs, row.secondary) == (needs, secondary)
    assert row.means


def test_every_row_says_what_to_do_then_and_after() -> None:
    for row in error_code_tables.dcgm_errors().values():
        assert row.means[0].islower() or row.means.startswith(("CUDA", "DCGM", "NVLink", "PCIe"))
        assert row.action.does
        assert row.action.follow_up


def test_a_line_that_names_one_is_an_event() -> None:
    line = b"2026-01-31T02:49:00Z ERROR gpu 3: DCGM_FR_VOLATILE_DBE_DETECTED: 1 errors\n"
    (event,) = logs.READER.parse([Artifact("logs/a", "logs", "a", "a", 1.77e9, line)]).events
    assert (event.signal, event.fields["name"], event.fields["needs"]) == (
        "log.dcgm_error",
        "VOLATILE_DBE_DETECTED",
        "gpu",
    )
