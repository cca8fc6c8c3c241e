"""A proof that goes on after its run: what is journaled of it, so that any process can complete it."""

from __future__ import annotations

import datetime
import os
import signal

from msgspec import Struct

from latdoctor.evidence.model import Evidence, Origin, Reading
from latdoctor.evidence.page_state import PageState
from latdoctor.remediation.actions.process import Process, start_ticks
from latdoctor.remediation.levels import SignalLevel
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.playbook import Verify
from latdoctor.remediation.proof import Proof, Schedule
from latdoctor.remediation.run_result import Measure

_GRACE = 30.0  # seconds from a deadline's looks to the deadline: a window takes a little longer than it lasts
_MOST_VALUES = 500  # of the last window before the change


class Sources(Struct, frozen=True):
    """What a run observes, and the files that say how. Paths as text; they hold for the folder of the run."""

    servers: tuple[str, ...] = ()
    nvml: bool = False
    host: bool = False
    pid: int | None = None
    kube: tuple[str, ...] = ()
    kube_context: str = ""
    kubeconfig: str = ""
    target: str = ""
    slo_p99: float | None = None
    slo_error_ratio: float | None = None
    gpu: str = ""
    rules: tuple[str, ...] = ()
    playbooks: tuple[str, ...] = ()
    baseline: str = ""


class Prover(Struct, frozen=True):
    """Entry `proof.prover`: the process that goes on with a proof. `started` in clock ticks after boot.

    Removing the file of a lock does not end its holder, so that the lock alone does not exclude a second process.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Prover:
        """Raises UsageError where it has ended."""
        return cls(pid, start_ticks(pid))

    @property
    def lives(self) -> bool:
        """Whether another process than this one still has its identity."""
        return self.pid != os.getpid() and Process(self.pid, self.started).state() is not None


class ProofStopped(Struct, frozen=True):
    """Entry `proof.stopped`: the proof cannot go on, and neither can this process undo the changes."""

    reason: str


class SeenValue(Struct, frozen=True):
    """A value of the last window before the change."""

    signal: str
    subject: str
    value: float


class ProofStarted(Struct, frozen=True):
    """Entry `proof.pending`. `deadline` in unix seconds: without a proof until then, the changes are undone."""

    deadline: float
    schedule: Schedule
    window: float
    before: tuple[SignalLevel, ...]
    pages: tuple[PageState, ...] | None
    seen: tuple[SeenValue, ...]
    sources: Sources = Sources()
    measures: tuple[Measure, ...] = ()  # before the change and after it, when the run ended
    broken: tuple[str, ...] = ()  # findings of a broken workload before the change

    @classmethod
    def of(cls, proof: Proof, before: Observation, window: float, sources: Sources, now: float) -> ProofStarted:
        values = tuple(SeenValue(*key, value) for key, value in before.values.items())
        return cls(
            deadline=now + proof.schedule.until + _GRACE,
            schedule=proof.schedule,
            window=window,
            before=tuple(proof.before.values()),
            pages=proof.pages,
            seen=values[:_MOST_VALUES],
            sources=sources,
            broken=proof.broken,
        )

    @property
    def text(self) -> str:
        end = datetime.datetime.fromtimestamp(self.deadline, datetime.UTC)
        return f"improved; proven or rolled back by {end:%H:%M:%S} UTC, if neither has happened then: latdoctor recover"

    def proof(self, verify: Verify) -> Proof:
        levels = {(one.signal, one.subject): one for one in self.before}
        return Proof(verify, levels, self.schedule, self.pages, self.broken)

    @property
    def observation(self) -> Observation:
        """The last window before the change, as far as it is journaled."""
        origin = Origin("journal", "proof.pending")
        readings = tuple(Reading(one.signal, one.subject, one.value, origin) for one in self.seen)
        return Observation(Evidence(readings=readings), {}, {}, 0.0, 0.0)


def stop_prover(pid: int) -> bool:
    """Ask the process that goes on with a proof to roll back; one that is suspended is continued. Whether it may be."""
    try:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return True  # it has just ended
    except PermissionError:
        return False
    return True
