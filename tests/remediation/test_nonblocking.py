"""Progress output: in order, and never blocking the run."""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec import Raw

from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation import run_context as module
from latdoctor.remediation.run_context import nonblocking


def entry(number: int) -> JournalEntry:
    return JournalEntry(number, "r1", "2026-11-22T09:16:12+00:00", 1.0, "boot", "kind", Raw(b"{}"), "0" * 64, "1" * 64)


def test_entries_are_delivered_in_order() -> None:
    delivered: list[int] = []
    with nonblocking(lambda one: delivered.append(one.seq)) as tell:
        for number in range(200):
            tell(entry(number))
    assert delivered == list(range(200))


def test_blocked_listener_does_not_block_the_run() -> None:
    """More entries than the queue holds: if the run waited for them, this would never end."""
    goes_on, delivered = threading.Event(), []

    def stuck(one: JournalEntry) -> None:
        goes_on.wait()
        delivered.append(one.seq)

    with nonblocking(stuck) as tell:
        for number in range(module.MAX_QUEUED + 10):
            tell(entry(number))
    assert delivered == []
    goes_on.set()


def test_failed_listener_does_not_end_the_run() -> None:
    asked: list[int] = []

    def gone(one: JournalEntry) -> None:
        asked.append(one.seq)
        raise BrokenPipeError

    say: Callable[[JournalEntry], None]
    with nonblocking(gone) as say:
        say(entry(1))
        say(entry(2))
    assert asked == [1]
