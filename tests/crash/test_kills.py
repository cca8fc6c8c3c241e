"""Processes that are killed while they change a target, and those who bring it to an end: never between.

Here some of the points at which that can happen; `python -m bench.crash` takes every one.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.killing import Left, Sweep, chosen
from tests.crash.sweep import must_trace

EVERY = 41  # of the calls that write


@pytest.fixture(autouse=True)
def _traced() -> None:
    must_trace()


def swept(folder: Path, *, mutant: bool = False) -> Iterator[Left]:
    with Sweep(folder, mutant=mutant) as sweep:
        for begin in sweep.phases():
            yield from (sweep.killed(begin, point) for point in chosen(begin, EVERY))


def test_killed_and_recovered_the_target_is_never_between(tmp_path: Path) -> None:
    left = list(swept(tmp_path))
    assert [one for one in left if one.flaws] == []
    assert len({one.phase for one in left}) == 7
    for phase in ("apply", "prove", "rollback"):
        assert {one.stands for one in left if one.phase == phase} == {"before", "after"}  # both are met


def test_journaling_after_the_change_is_detected(tmp_path: Path) -> None:
    caught = (one for one in swept(tmp_path, mutant=True) if any("it stands" in flaw for flaw in one.flaws))
    assert next(caught, None)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="tracer.py knows the registers of x86-64 alone")
@pytest.mark.parametrize("onwards", [False, True], ids=["once", "from then on"])
def test_a_disk_or_a_target_that_fails_at_a_call(tmp_path: Path, onwards: bool) -> None:
    with Sweep(tmp_path) as sweep:
        begin = next(sweep.phases())
        points = chosen(begin, EVERY)[:: 9 if onwards else 3]  # a target that stays away is asked again for long
        left = [sweep.failed(begin, point, onwards=onwards) for point in points]
    assert [one for one in left if one.flaws] == []
    assert {one.code for one in left} >= (set() if onwards else {0, 3})
