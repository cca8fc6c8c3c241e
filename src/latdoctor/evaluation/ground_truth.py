"""What was really wrong in a recorded run, and what somebody who looks at it would know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct, convert, structs

from latdoctor.diagnosis.confusable_causes import confusable_pairs
from latdoctor.evidence.model import Gap
from latdoctor.strict_yaml import load

PLAYED, MADE = "played", "made"


class TimeRange(Struct, frozen=True):
    """From when to when, unix seconds UTC."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def moved(self, seconds: float) -> TimeRange:
        """The same length of time, so much later."""
        return TimeRange(self.start + seconds, self.end + seconds)

    def holds(self, moment: float) -> bool:
        return self.start <= moment <= self.end


class TimedGap(Struct, frozen=True):
    """Something that could not be read at one moment (unix seconds) of the recording."""

    at: float
    gap: Gap


class IncidentContext(Struct, frozen=True, forbid_unknown_fields=True):
    """What whoever looks knows: when it was well (None: nobody looked then), since when it is not, and which of the
    pages is the clients' own. Without an incident the bundle is the whole look.
    """

    before: TimeRange | None = None
    incident: TimeRange | None = None
    clients: str = ""
    gaps: tuple[TimedGap, ...] = ()


class MachineLoad(Struct, frozen=True):
    """The machine while it was recorded. `others` is the share of its processors that neither the run nor the recorder
    took before the incident; None where that was not measured.
    """

    processors: int
    load_before: float | None = None  # runnable tasks over a minute, before anything was started
    others: float | None = None


class GroundTruth(Struct, frozen=True):
    """What was really wrong. `causes` counts as right: of what was put in, all that was not shown to be harmless by
    taking it away alone. `confirmed` are those of them that were shown to move the tail; `harmless` is the rest of what
    was put in.
    """

    run: str
    kind: str  # PLAYED | MADE
    scenario: str
    seed: int
    severity: str
    causes: tuple[str, ...]
    confirmed: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    begins: float | None = None  # unix seconds
    ends: float | None = None
    p99_before: float | None = None  # seconds, as the load generator measured it
    p99_incident: float | None = None
    tries: int = 1  # spoiled ones before it included
    machine: MachineLoad = MachineLoad(0)
    tool_version: str = ""

    @property
    def injected(self) -> tuple[str, ...]:
        """All of it, harmless or not."""
        return self.causes + self.harmless


_FILE = Path(__file__).with_name("split.yaml")


class FamilySplit(Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """As published in split.yaml."""

    tuned: tuple[str, ...]
    held_out: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()  # confusable causes, from `diagnosis/confusable_causes.yaml`

    def neighbours(self, causes: Sequence[str]) -> frozenset[str]:
        """The causes that are confusable with one of `causes`."""
        return frozenset(name for pair in self.pairs for name in pair if set(pair) & set(causes)) - set(causes)

    def is_held_out(self, causes: Sequence[str]) -> bool:
        """Whether all of `causes` are of families that were never looked at."""
        return bool(causes) and all(family(cause) in self.held_out for cause in causes)


def family(cause: str) -> str:
    """`app.load` of `app.load.burst`."""
    return ".".join(cause.split(".")[:2])


@cache
def split() -> FamilySplit:
    """The published split. Raises DefinitionError."""
    return structs.replace(convert(load(_FILE).plain(), FamilySplit), pairs=confusable_pairs())
