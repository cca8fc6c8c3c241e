"""Takes changes back, the latest first, within half a minute, or says loudly what a person has to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from latdoctor.errors import LatdoctorError
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import (
    RETRY_PAUSE,
    Change,
    ChangeState,
    Conflict,
    Contended,
    Deadline,
    Unreachable,
    ensure,
    has_values,
    read_with_retry,
)
from latdoctor.remediation.run_context import Recorder, World
from latdoctor.remediation.run_history import Begun, Left, Touched
from latdoctor.remediation.run_result import Outcome
from latdoctor.remediation.target import Access

WITHIN = 30.0  # seconds for all of it: what is promised
Made = tuple[Touched, Change]


@dataclass(frozen=True, slots=True)
class Back:
    """How it went. `manual` are the commands for what could not be taken back, `theirs` those by which what somebody
    else has set meanwhile would be overwritten."""

    outcome: Outcome
    reason: str
    manual: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()

    def next_step(self, run: str) -> str:
        """Where all that is left is somebody else's there is nothing to recover."""
        return f"latdoctor runs show {run}" if self.theirs and not self.manual else ""


def take_back(changes: Sequence[Made], reason: str, world: World, recorder: Recorder, *, asked: bool = False) -> Back:
    """Brings each change to where it was. It goes on where the journal cannot be written, and where one step fails.

    Nothing stops it but its end: neither Ctrl-C nor the kill switch. `asked`: a person wanted it, and no look.
    """
    standing = [(touched, change) for touched, change in changes if change.undo != "none-needed"]
    if not standing:
        return Back(Outcome.ROLLED_BACK, f"{reason}; there was nothing to put back" if changes else reason)
    way = _Way(world, recorder)
    way.note("rollback.begun", Begun(reason, asked))
    way.go(standing)
    return way.back(reason)


def by_hand(change: Change, access: Access) -> str:
    """What a person types to put back what `change` has set."""
    if change.undo == "irreversible":
        return f"# {change.step} of {change.resource} has no way back: look at it"
    return require_action(change.action).resource(access, change.resource).manual_command(change.before)


@dataclass(slots=True)
class _Way:
    """The way back of one run."""

    world: World
    recorder: Recorder
    deadline: Deadline = field(init=False)
    unsaid: str = ""  # why something could not be journaled
    settled: set[Touched] = field(default_factory=set)
    failed: list[tuple[Change, LatdoctorError]] = field(default_factory=list)
    theirs: list[tuple[Change, Conflict]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = Deadline.after(WITHIN, self.world.clock, self.world.sleep)

    def note(self, kind: str, body: Struct | Mapping[str, object]) -> None:
        self.unsaid = self.recorder.note_if_possible(kind, body) or self.unsaid

    def go(self, changes: Sequence[Made]) -> None:
        """Round after round: what has not answered is tried again once all others have been."""
        pending, silent = tuple(changes), self._round(changes)
        while True:
            pending = tuple((touched, change) for touched, change in pending if touched not in self.settled)
            if not pending or self.deadline.left <= RETRY_PAUSE:
                break
            silent = self._round(pending)
        for _, change in pending:
            self._give_up(change, silent[change.resource])

    def back(self, reason: str) -> Back:
        """How it went, for the reason why it was done."""
        if not self.failed and not self.theirs:
            return Back(Outcome.ROLLED_BACK, f"{reason}; {self.unsaid}" if self.unsaid else reason)
        failed = "; ".join(f"{change.step}: {error}" for change, error in self.failed)
        theirs = "; ".join(f"{change.step}: {conflict}" for change, conflict in self.theirs)
        parts = [reason, f"NOT taken back: {failed}" if failed else "", f"left as it is: {theirs}" if theirs else ""]
        access = self.world.access
        return Back(
            Outcome.INCOMPLETE,
            "; ".join(filter(None, parts)),
            tuple(by_hand(change, access) for change, _ in self.failed),
            tuple(by_hand(change, access) for change, _ in self.theirs),
        )

    def _round(self, changes: Sequence[Made]) -> dict[str, LatdoctorError]:
        """The resources that did not answer. Each has its share of the time, so that one does not use up all of it."""
        silent: dict[str, LatdoctorError] = {}
        for number, (touched, change) in enumerate(changes):
            if change.resource in silent:
                continue
            rest = {one.resource for _, one in changes[number:]} - silent.keys()
            share = Deadline.after(self.deadline.left / len(rest), self.world.clock, self.world.sleep)
            try:
                self._one(touched, change, share)
            except (Unreachable, Contended) as error:
                silent[change.resource] = error
            else:
                self.settled.add(touched)
        return silent

    def _one(self, touched: Touched, change: Change, deadline: Deadline) -> None:
        """Raises Unreachable and Contended, after which it may be tried again."""
        self.note("undo.intended", touched)
        try:
            _put_back(change, self.world.access, deadline)
        except (Unreachable, Contended):
            raise
        except Conflict as conflict:
            self.theirs.append((change, conflict))
            self.note("undo.left", Left(touched.stage, touched.index, change.step, str(conflict)))
        except LatdoctorError as error:
            self._give_up(change, error)
            if change.undo == "irreversible":  # no recovery will do it either
                self.note("undo.left", Left(touched.stage, touched.index, change.step, str(error)))
        else:
            self.note("undo.made", touched)

    def _give_up(self, change: Change, error: LatdoctorError) -> None:
        self.failed.append((change, error))
        self.note("undo.failed", {"step": change.step, "why": str(error)})


def _put_back(change: Change, access: Access, deadline: Deadline) -> None:
    """Each field that still has our value. Raises Conflict where one has neither that nor the one from before."""
    if change.undo == "irreversible":
        raise LatdoctorError("it cannot be taken back", where=change.resource)
    resource = require_action(change.action).resource(access, change.resource)
    try:
        ensure(change, ChangeState.BEFORE, resource, deadline, fenced=True)
    except Conflict:
        now = read_with_retry(resource, deadline).values
        ours = tuple(field for field in change.fields if has_values(now, {field.name: field.after}))
        if not ours:
            raise
        ensure(replace(change, fields=ours), ChangeState.BEFORE, resource, deadline, fenced=True)
        if any(not has_values(now, {field.name: field.before}) for field in change.fields if field not in ours):
            raise
