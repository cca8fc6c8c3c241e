"""What a timeline takes grows with its entries and not with their square: calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from latdoctor.incident.state import incidents_in
from latdoctor.incident.timeline import timeline
from latdoctor.journal.entry import JournalEntry
from tests.incident.scenarios import long
from tests.report.test_timeline_forms import FORMS

SMALL, TIMES = 300, 4
ENTRIES = long(SMALL * TIMES).entries


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python and of C were called."""
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize("form", FORMS)
def test_four_times_the_entries_take_four_times_the_work(form: str) -> None:
    def work(entries: list[JournalEntry]) -> None:
        (incident,) = incidents_in(entries)
        FORMS[form](timeline(incident))

    work(ENTRIES)  # what is loaded and remembered once
    small, large = calls(lambda: work(ENTRIES[:SMALL])), calls(lambda: work(ENTRIES))
    assert large < small * TIMES * 1.1
    assert small < 2000 * SMALL  # and each entry takes little
