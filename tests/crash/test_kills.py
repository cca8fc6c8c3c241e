"""Processes that are killed while they change a target, and those who bring it to an end: never between.

Here each transaction, each thing that is sent, and some of the writes between; `python -m bench.crash` takes every call.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.killing import Sweep, chosen
from tests.crash.sweep import must_trace

EVERY = 23  # of the calls that write


@pytest.fixture(autouse=True)
def _traced() -> None:
    must_trace()


def test_killed_and_recovered_the_target_is_never_between(tmp_path: Path) -> None:
    with Sweep(tmp_path) as sweep:
        left = [sweep.killed(begin, point) for begin in sweep.phases() for point in chosen(begin, EVERY)]
    assert [one for one in left if one.flaws] == []
    phases = {one.phase for one in left}
    assert len(phases) == 6
    for phase in phases - {one for one in phases if one.startswith(("fail", "recover"))}:
        assert {one.stands for one in left if one.phase == phase} == {"before", "after"}  # both are met


def test_who_journals_after_the_change_is_caught(tmp_path: Path) -> None:
    with Sweep(tmp_path, mutant=True) as sweep:
        apply = next(sweep.phases())
        left = [sweep.killed(apply, point) for point in chosen(apply, EVERY)]
    assert [one for one in left if any("it stands between" in flaw for flaw in one.flaws)]
