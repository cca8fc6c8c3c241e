"""What a run is given: the journal, a way to look, a way in, clocks. The command line puts it together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from latdoctor.beside import Beside
from latdoctor.errors import OperationError
from latdoctor.evidence.bundle import Bundle
from latdoctor.journal.entry import Entry
from latdoctor.journal.store import Journal
from latdoctor.remedy.guards import Refusal
from latdoctor.remedy.observation import Observe
from latdoctor.remedy.plan import Plan
from latdoctor.remedy.target import Access

T = TypeVar("T")
BEAT = 0.1  # seconds between two looks at whether to stop


@dataclass(frozen=True, slots=True)
class World:
    """`tell` hears every entry as it is journaled, and the run waits for it: what may stand still (a terminal) is told
    through `aside.aside`. `stop` says why the run shall end now, else nothing.

    `begun` is told the run's name before anything of it is journaled; `procedure` says what an SOP does not permit yet.
    """

    journal: Journal
    state: Path
    access: Access
    observe: Observe
    keep: Callable[[Bundle, Path], None]
    tell: Callable[[Entry], None] = lambda _: None
    stop: Callable[[], str] = lambda: ""
    approved: bool = False
    begun: Callable[[str], None] = lambda _: None
    procedure: Callable[[Plan], Refusal | None] = lambda _: None
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = field(default=time.sleep)


class Stopped(Exception):  # noqa: N818 - what happened; it never leaves this package
    """Somebody wants the run to end."""


def beside(call: Callable[[], T], seconds: float, stop: Callable[[], str]) -> T:
    """What `call` gives, within `seconds`; it is left behind where it takes longer or the run shall stop.

    Raises what `call` raises, OperationError after `seconds`, and Stopped.
    """
    work = Beside(call, "latdoctor-look")
    until = time.monotonic() + seconds
    while not work.wait(BEAT):
        if why := stop():
            raise Stopped(why)
        if time.monotonic() > until:
            raise OperationError(f"the look did not end within {seconds:.0f} s")
    return work.outcome()
