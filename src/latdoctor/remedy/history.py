"""What the journal says of the runs so far."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import Struct

from latdoctor.journal.entry import Entry
from latdoctor.remedy.change import Change
from latdoctor.remedy.plan import Plan
from latdoctor.remedy.result import Outcome

Body = TypeVar("Body")


class Opened(Struct, frozen=True):
    plan: Plan
    digest: str
    pid: int


class Touched(Struct, frozen=True):
    """A change of the plan: the stage, and which of its changes."""

    stage: int
    index: int


class Closed(Struct, frozen=True):
    outcome: Outcome
    reason: str = ""


@dataclass(slots=True)
class RunState:
    """One run, as its entries add up."""

    id: str
    plan: Plan
    opened_at: float  # unix seconds
    ended_at: float | None = None
    intended: list[Touched] = field(default_factory=list)
    undone: set[Touched] = field(default_factory=set)
    verified: bool = False
    rolling_back: bool = False
    outcome: Outcome | None = None
    reason: str = ""

    @property
    def open(self) -> bool:
        """Whether it has to be brought to an end: it was killed, or could not take everything back."""
        return self.outcome in (None, Outcome.INCOMPLETE)

    @property
    def standing(self) -> tuple[Touched, ...]:
        """The changes that may stand, the latest first: what has to be taken back."""
        return tuple(touched for touched in reversed(self.intended) if touched not in self.undone)

    def change(self, touched: Touched) -> Change:
        return self.plan.stages[touched.stage].changes[touched.index]


def runs(entries: Iterable[Entry]) -> tuple[RunState, ...]:
    """Every run that was opened, oldest first."""
    found: dict[str, RunState] = {}
    for entry in entries:
        if entry.kind == "run.opened":
            found[entry.run] = RunState(entry.run, _body(entry, Opened).plan, moment(entry.at))
        elif entry.run in found:
            _add(found[entry.run], entry)
    return tuple(found.values())


def _add(run: RunState, entry: Entry) -> None:
    match entry.kind:
        case "change.intended":
            touched = _body(entry, Touched)
            if touched not in run.intended:
                run.intended.append(touched)
            run.undone.discard(touched)
        case "undo.made":
            run.undone.add(_body(entry, Touched))
        case "verify.passed":
            run.verified = True
        case "rollback.begun":
            run.rolling_back, run.verified, run.outcome = True, False, None
        case "run.closed":
            closed = _body(entry, Closed)
            run.outcome, run.reason, run.ended_at = closed.outcome, closed.reason, moment(entry.at)


def last_reset(entries: Iterable[Entry]) -> float:
    """When a human last closed the circuit breaker, unix seconds; 0 where nobody did."""
    return max((moment(entry.at) for entry in entries if entry.kind == "breaker.reset"), default=0.0)


def moment(at: str) -> float:
    """Unix seconds of an entry's time."""
    return datetime.datetime.fromisoformat(at).timestamp()


def _body(entry: Entry, kind: type[Body]) -> Body:
    return msgspec.json.decode(entry.body, type=kind)
