"""Telling what happens: in its order, and never waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec import Raw

from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation import run_context as module
from latdoctor.remediation.run_context import nonblocking


def entry(number: int) -> JournalEntry:
    return JournalEntry(number, "r1", "2026-11-22T09:16:12+00:00", 1.0, "boot", "kind", Raw(b"{}"), "0" * 64, "1" * 64)


def test_all_is_told_in_its_order() -> None:
    told: list[int] = []
    with nonblocking(lambda one: told.append(one.seq)) as tell:
        for number in range(200):
            tell(entry(number))
    assert told == list(range(200))


def test_a_screen_that_stands_still_is_not_waited_for() -> None:
    """More than can wait is told: were it waited for, this would never end."""
    goes_on, told = threading.Event(), []

    def stuck(one: JournalEntry) -> None:
        goes_on.wait()
        told.append(one.seq)

    with nonblocking(stuck) as tell:
        for number in range(module.MAX_QUEUED + 10):
            tell(entry(number))
    assert told == []
    goes_on.set()


def test_a_screen_that_has_gone_ends_the_telling_alone() -> None:
    asked: list[int] = []

    def gone(one: JournalEntry) -> None:
        asked.append(one.seq)
        raise BrokenPipeError

    say: Callable[[JournalEntry], None]
    with nonblocking(gone) as say:
        say(entry(1))
        say(entry(2))
    assert asked == [1]
