"""The writes of all runs to each resource, in their order, as the journal has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from latdoctor.journal.entry import JournalEntry
from latdoctor.remediation.change import Change
from latdoctor.remediation.ownership import NotOurs, Snapshot, Write, not_ours
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.run_history import ChangeRef, RunOpened, resource_key


@dataclass(slots=True, eq=False)
class _OwnWrite:
    """A write that was intended. `write` is None until its result is known."""

    run: str
    ref: ChangeRef
    undoes: bool
    write: Write | None = None


@dataclass(slots=True)
class OwnWrites:
    """By resource: the writes of ours that were made, or may have been."""

    _by_resource: dict[str, list[_OwnWrite]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[JournalEntry]) -> OwnWrites:
        """Raises msgspec.ValidationError for an entry that this version cannot read."""
        found, plans = cls(), dict[str, Plan]()
        for entry in entries:
            if entry.kind == "run.opened":
                plans[entry.run] = msgspec.json.decode(entry.body, type=RunOpened).plan
            elif entry.run in plans and entry.kind in _KINDS:
                body = msgspec.json.decode(entry.body, type=_Body)
                ref = ChangeRef(body.stage, body.index)
                writes = found.by(entry.run, ref, plans[entry.run].stages[ref.stage].changes[ref.index])
                writes.record(entry.kind, body)
        return found

    def by(self, run: str, ref: ChangeRef, change: Change) -> WritesOfChange:
        return WritesOfChange(self._by_resource.setdefault(resource_key(change.resource), []), run, ref)


class _Body(Struct, frozen=True):
    """What the entries in `_KINDS` have in common. Version 0.1 has neither a write nor a code."""

    stage: int
    index: int
    write: Write | None = None
    code: NotOurs | None = None


_KINDS = frozenset({"change.intended", "change.made", "undo.intended", "undo.made", "undo.left"})


@dataclass(frozen=True, slots=True)
class WritesOfChange:
    """The writes of one change of a run, among all writes to its resource."""

    _all: list[_OwnWrite]
    _run: str
    _ref: ChangeRef

    def record(self, kind: str, body: _Body) -> None:
        match kind:
            case "change.intended":
                self.start(undoes=False)
            case "undo.intended":
                self.start(undoes=True)
            case "undo.left" if body.code is not None:
                self.withdraw()
            case "undo.made" if body.write is None and not self._last_undoes:  # the change was not made at all
                self.withdraw()
            case _ if body.write is not None:
                self.end(body.write)

    def start(self, *, undoes: bool) -> None:
        """A write is about to be sent. What it does is unknown until `end`."""
        self._all.append(_OwnWrite(self._run, self._ref, undoes))

    def end(self, write: Write) -> None:
        """The last write that was started has been answered. An earlier one without an answer stays unknown."""
        for one in self._open():
            one.write = write
            return

    def withdraw(self) -> None:
        """The last write that was started was not sent."""
        for one in self._open():
            self._all.remove(one)
            return

    def not_ours(self, now: Snapshot) -> NotOurs | None:
        """Why the values of the change, which the resource still has, are not ours any more; None if they may be.

        To be called before the write that was started last is sent.
        """
        started = next(self._open(), None)
        others = [one for one in self._all if one is not started]
        made = [place for place, one in enumerate(others) if self._is_own(one) and not one.undoes]
        if not made:
            return None
        return not_ours(others[made[-1]].write, [one.write for one in others[made[-1] + 1 :]], now)

    @property
    def _last_undoes(self) -> bool:
        return next((one.undoes for one in self._open()), False)

    def _open(self) -> Iterator[_OwnWrite]:
        return (one for one in reversed(self._all) if self._is_own(one) and one.write is None)

    def _is_own(self, one: _OwnWrite) -> bool:
        return (one.run, one.ref) == (self._run, self._ref)
