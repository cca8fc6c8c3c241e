"""What one mended incident was like, as the clients and the servers' pages tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from latdoctor.lab.load.result import LoadResult, Summary, merge
from latdoctor.lab.outcome import BEFORE, MOVES, PhaseReport, unsteady
from latdoctor.remedy.observation import Judged
from latdoctor.trials.machine import OTHERS
from latdoctor.trials.truth import Machine, Span

VERIFIED, ROLLED_BACK, REFUSED, FAILED, INCOMPLETE = "verified", "rolled-back", "refused", "failed", "incomplete"
NOTHING_NAMED, NO_PLAYBOOK = "nothing-named", "no-playbook"


class Moments(Struct, frozen=True):
    """When what happened, seconds after the incident began; None: it did not.

    `over`: the beginning of the first window of five seconds in which the clients' P99 was over the SLO.
    """

    over: float | None = None
    noticed: float = 0.0
    diagnosed: float | None = None
    changed: float | None = None
    settled: float | None = None
    verified: float | None = None
    closed: float | None = None

    @property
    def to_verified(self) -> float | None:
        """The time to mitigate; from the beginning of the incident where the SLO was never broken."""
        return None if self.verified is None else self.verified - (self.over or 0.0)


class Saturated(Struct, frozen=True):
    """The server while it is never idle: requests per second, and what one answer and one call take."""

    rate: float
    calls_per_answer: float | None
    page_faults_per_call: float | None
    allocations_per_call: float | None


class MendingReport(Struct, frozen=True):
    """One run. `spoiled` says why its figures cannot be trusted, and knows nothing of how it ended."""

    run: str
    kind: str
    scenario: str
    seed: int
    rate: float
    slo: float  # seconds
    causes: tuple[str, ...]  # what was put in
    named: tuple[str, ...]  # what the diagnosis named
    cause: str  # the one that was acted on
    playbook: str
    outcome: str
    reason: str
    before: PhaseReport
    incident: PhaseReport  # until the playbook was at work
    after: PhaseReport | None  # once it was verified
    moments: Moments
    restored: bool | None = None  # whether the configuration was the one from before; None: not to be told
    saturated: tuple[Saturated, Saturated] | None = None  # in the incident, and mended
    last: tuple[Judged, ...] = ()  # how the conditions stood in the last look
    spoiled: tuple[str, ...] = ()
    machine: Machine = Machine(0)
    tries: int = 1
    tool_version: str = ""

    @property
    def right(self) -> bool:
        """Whether the cause that was acted on is one that was put in."""
        return self.cause in self.causes


def within(result: LoadResult, span: Span) -> Summary | None:
    """What clients saw of the whole phases within `span`, in seconds from the start of the load; None for no phase."""
    lengths = {phase.name: phase.seconds for phase in result.plan.phases}
    inside = [
        phase.whole
        for phase in result.phases
        if span.start <= phase.start + 0.01 and phase.start + lengths[phase.name] <= span.end + 0.01
    ]
    return merge(inside) if inside else None


def spoiled(
    result: LoadResult, spans: Sequence[Span], before: PhaseReport, incident: PhaseReport, others: float | None
) -> Iterator[str]:
    """Why a run does not count, as for a recording of the incident bench; how it ended does not matter.

    What the generator did in a phase that none of `spans` (seconds from the start of the load) touches is of no
    account. What comes after the mending is none of them: a generator that is late then adds to the latencies, and so
    speaks against the playbook only.
    """
    looked = tuple(f"{name}: " for name in _touched(result, spans))
    named = tuple(f"{phase.name}: " for phase in result.plan.phases)
    for reason in result.spoiled:
        if reason.startswith("stopped after") or (reason.startswith(named) and not reason.startswith(looked)):
            continue
        yield reason
    yield from unsteady(before)
    if others is not None and others > OTHERS:
        yield f"others took {others:.0%} of the processors"
    if not moved(before, incident):
        yield f"what was put in moved nothing: the tail is the same as in the phase {BEFORE}"


def moved(before: PhaseReport, incident: PhaseReport) -> bool:
    """Whether the incident is one: the tail is higher than two runs of one scenario differ by, or requests fail."""
    if before.p99 is None or incident.p99 is None:
        return False
    lost = 1 - incident.answered / incident.requests if incident.requests else 0.0
    return before.p99 <= MOVES * incident.p99 or lost > 0.05


def _touched(result: LoadResult, spans: Sequence[Span]) -> Iterator[str]:
    lengths = {phase.name: phase.seconds for phase in result.plan.phases}
    for phase in result.phases:
        end = phase.start + lengths[phase.name]
        if any(phase.start < span.end and span.start < end for span in spans):
            yield phase.name
