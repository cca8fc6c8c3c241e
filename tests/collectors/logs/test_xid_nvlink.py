"""The table of NVLink 5 against the sheet that it was made from, and lines taken apart by it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs import error_code_tables
from latdoctor.collectors.logs.error_code_tables import RegisterMask, decode_nvlink
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event

# Buckets whose names in NVIDIA's sheet are sentences, or spelt in two ways.
RENAMED = {"REPORT_ISSUE (if seen >1 per day)": "REPORT_IF_DAILY", "INVESTIGATE_SW/USER": "INVESTIGATE_SW_USER"}


def line(info: int, status: int, name: str = "RLW_REMAP Nonfatal XC0 i0 Link 14") -> str:
    return f"{name} (0x{info:08x} 0x{status:08x} 0x00000000 0x00000000)"


def registers(mask: str) -> list[int]:
    """A register that fits, with the bits that do not matter clear and set."""
    return [int(mask.replace("-", bit), 2) for bit in "01"]


def test_every_row_of_the_sheet_is_decoded_as_it_says(samples: Path) -> None:
    with (samples / "xid" / "xid-catalog-2-Xid_144_150_Decode.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [[" ".join(cell.split()) for cell in row] for row in csv.reader(file)][1:]
    assert len(rows) == 95
    for code, _, before, after, errors, action, before_2, after_2, action_2, follow_up, severity, *_ in rows:
        cases = [(mask, action) for mask in (before, after)] + [
            (mask, action_2) for mask in (before_2, after_2) if mask
        ]
        for mask, wanted in cases:
            for info in registers(mask):
                for error in errors.split("/"):
                    found = decode_nvlink(int(code), line(info, int(error, 16) if error else 0x123))
                    assert found is not None, (code, mask, error)
                    assert found.action.name == RENAMED.get(wanted, wanted)
                    assert found.follow_up.name == RENAMED.get(follow_up, follow_up)
                    if wanted == action:
                        assert found.severity == severity.rstrip("*?").lower().replace(" ", "-")


def test_the_table_has_nothing_that_the_sheet_has_not() -> None:
    rows = error_code_tables.nvlink_table()
    assert {code: len(found) for code, found in rows.items()} == {
        144: 6,
        145: 36,
        146: 20,
        147: 2,
        148: 1,
        149: 31,
        150: 3,
    }
    assert (
        sum(len(found) for found in rows.values()) == 95 + 3 + 1
    )  # three errors have a fatal form too, one row two statuses
    assert all(row.action.does and row.follow_up.does and row.units for found in rows.values() for row in found)


@pytest.mark.parametrize(
    ("code", "info", "status", "action"),
    [
        (145, 0x00000004, 0x00000040, "RESET_GPU"),  # from R575 on
        (145, 0x00000082, 0x00000040, "RESET_GPU"),  # before
        (145, 0x00000082, 0x00000100, "IGNORE"),
        (145, 0x00000082, 0x00000140, "RESET_GPU"),  # two at once: the worst decides
        (145, 0x00000004, 0x00000400, None),  # no such error
        (145, 0x0000007F, 0x00000001, None),  # no such unit
        (144, 0x00000004, 0x00000001, None),  # a unit of another Xid
        (149, 0x00000011, 0xDEADBEEF, "RESET_GPU"),  # a link is down: whatever the second register says
        (149, 0x02600011, 0x00000000, "IGNORE"),
        (149, 0x00000014, 0x00000002, None),  # numbers of events are no bits
        (79, 0x00000004, 0x00000040, None),
    ],
)
def test_registers(code: int, info: int, status: int, action: str | None) -> None:
    found = decode_nvlink(code, line(info, status))
    assert (found.action.name if found else None) == action


def event(text: str) -> Event:
    content = f"[ 1.000000] NVRM: Xid (PCI:0018:01:00): {text}\n".encode()
    (found,) = logs.READER.parse([Artifact("logs/a", "logs", "a", "a", 1.77e9, content)]).events
    return found


def test_a_line_carries_what_its_registers_advise() -> None:
    fields = event(f"145, {line(0x00000004, 0x00000040)}").fields
    wanted = {"unit": "RLW_REMAP", "severity": "fatal", "bucket": "RESET_GPU", "action": "reset the GPU", "fatal": 1.0}
    assert wanted.items() <= fields.items()
    harmless = event(f"145, {line(0x00000004, 0x00000100)}").fields
    assert (harmless["action"], harmless["needs"], harmless["fatal"]) == ("nothing to do", "none", 0.0)
    unknown = event("145, RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000000 0x1)").fields
    assert "unit" not in unknown
    assert "decode the unit" in str(unknown["action"])


@given(
    st.integers(140, 155), st.text(max_size=80) | st.builds(line, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
)
def test_any_line_gives_a_row_or_none(code: int, detail: str) -> None:
    found = decode_nvlink(code, detail)
    assert found is None or found in error_code_tables.nvlink_table()[code]


@pytest.mark.parametrize("text", ["", "01", "-" * 31, "2" + "-" * 31, "-" * 33])
def test_what_is_no_mask(text: str) -> None:
    with pytest.raises(ValueError, match="is not a 32-bit mask"):
        RegisterMask.of(text)
