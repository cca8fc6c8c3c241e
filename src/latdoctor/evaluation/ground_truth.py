"""Ground truth of a recorded run, and the context that an operator would have without knowing it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

from msgspec import Struct, convert, structs

from latdoctor.diagnosis.confusable_causes import confusable_pairs
from latdoctor.evidence.model import Gap
from latdoctor.strict_yaml import load


class RunKind(StrEnum):
    """How the evidence of a run was produced. The values are part of run names and files on disk."""

    LIVE = "played"  # a real server under load, with an injected fault
    SYNTHETIC = "made"  # generated telemetry of a GPU machine


class TimeRange(Struct, frozen=True):
    """A time range in unix seconds, UTC."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def shifted(self, seconds: float) -> TimeRange:
        return TimeRange(self.start + seconds, self.end + seconds)

    def contains(self, moment: float) -> bool:
        return self.start <= moment <= self.end


class TimedGap(Struct, frozen=True):
    """A failed read at one moment (unix seconds) of the recording."""

    at: float
    gap: Gap


class IncidentContext(Struct, frozen=True, forbid_unknown_fields=True):
    """The facts that an operator has: the healthy range (None: not observed), the incident's range, and the URL of the
    clients' metrics page. Without an incident the whole bundle is the observation.
    """

    before: TimeRange | None = None
    incident: TimeRange | None = None
    clients: str = ""
    gaps: tuple[TimedGap, ...] = ()


class MachineLoad(Struct, frozen=True):
    """The recording machine. `others`: share of its processors used by other processes before and during the incident;
    None: not measured.
    """

    processors: int
    load_before: float | None = None  # one-minute load average before anything was started
    others: float | None = None


class GroundTruth(Struct, frozen=True):
    """The injected faults of a run.

    `causes` count as correct: the injected causes, except those whose removal alone changed nothing (`harmless`).
    `confirmed` are the causes whose removal alone lowered P99.
    """

    run: str
    kind: RunKind
    scenario: str
    seed: int
    severity: str
    causes: tuple[str, ...]
    confirmed: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    begins: float | None = None  # unix seconds
    ends: float | None = None
    p99_before: float | None = None  # seconds, measured by the load generator
    p99_incident: float | None = None
    tries: int = 1  # attempts, spoiled ones included
    machine: MachineLoad = MachineLoad(0)
    tool_version: str = ""

    @property
    def injected(self) -> tuple[str, ...]:
        """Every injected cause, harmless ones included."""
        return self.causes + self.harmless


_FILE = Path(__file__).with_name("split.yaml")


class FamilySplit(Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Cause families by whether their rules were tuned on recordings (split.yaml), and pairs of confusable causes."""

    tuned: tuple[str, ...]
    held_out: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()

    def neighbours(self, causes: Sequence[str]) -> frozenset[str]:
        """The causes that are confusable with one of `causes`."""
        return frozenset(name for pair in self.pairs for name in pair if set(pair) & set(causes)) - set(causes)

    def is_held_out(self, causes: Sequence[str]) -> bool:
        """Whether every one of `causes` belongs to a held-out family."""
        return bool(causes) and all(family(cause) in self.held_out for cause in causes)


def family(cause: str) -> str:
    """The family of a cause: `app.load` for `app.load.burst`."""
    return ".".join(cause.split(".")[:2])


@cache
def split() -> FamilySplit:
    """The published split. Raises DefinitionError."""
    return structs.replace(convert(load(_FILE).plain(), FamilySplit), pairs=confusable_pairs())
