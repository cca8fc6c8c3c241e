"""Reason codes of gaps: what older and newer versions wrote is read, and a bundle keeps them."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest

from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Gap, Window, to_json
from latdoctor.gap_code import GapCode, code_of_os_error


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b'{"source": "logs", "reason": "is empty"}', GapCode.UNSPECIFIED),  # before there were codes
        (b'{"source": "logs", "reason": "is empty", "code": "empty"}', GapCode.EMPTY),
        (b'{"source": "logs", "reason": "is odd", "code": "of-a-newer-version"}', GapCode.UNSPECIFIED),
    ],
)
def test_a_code_is_optional_and_may_be_unknown(document: bytes, code: GapCode) -> None:
    assert msgspec.json.decode(document, type=Gap).code is code


def test_every_code_survives_json() -> None:
    for code in GapCode:
        gap = Gap("logs", "reason", code=code)
        assert msgspec.json.decode(to_json(gap), type=Gap) == gap


def test_a_bundle_keeps_the_codes(tmp_path: Path) -> None:
    gap = Gap("logs", "app.log: is empty", ("cuda.error",), code=GapCode.EMPTY)
    save(Bundle(Context("t"), Window(), (), (gap,)), tmp_path / "bundle", "0")
    with opened(tmp_path / "bundle") as read:
        assert read.gaps == (gap,)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, GapCode.PERMISSION),
        (errno.EPERM, GapCode.PERMISSION),
        (errno.ENOENT, GapCode.ABSENT),
        (errno.EIO, GapCode.UNREADABLE),
    ],
)
def test_code_of_a_system_error(number: int, code: GapCode) -> None:
    assert code_of_os_error(OSError(number, "text that is never read")) is code
