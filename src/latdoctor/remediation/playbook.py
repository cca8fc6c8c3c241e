"""The types of a playbook: what it addresses, its preconditions, its changes, and how a change is verified.

They are read from `playbooks/*.yaml` by `playbook_loader.py`; a field's name is the key in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Literal, NewType

from msgspec import Meta, Struct, field

from latdoctor.conditions.ast import Condition, signals_of
from latdoctor.remediation.change import Undo
from latdoctor.remediation.target import TargetKind

Identifier = NewType("Identifier", str)  # lower-case words joined by - or .
Seconds = NewType("Seconds", float)
Wait = NewType("Wait", float)  # seconds, bounded: the service is locked meanwhile
Argument = NewType("Argument", str)  # a text, or `$name` for the value of a parameter
ClearedFinding = NewType("ClearedFinding", str)  # id of a finding, written `ID clear`
Count = Annotated[int, Meta(ge=1)]
NonEmpty = Meta(min_length=1)
Scalar = bool | int | float | str


class Risk(StrEnum):
    """From the lowest to the highest; high requires approval."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Disruption(StrEnum):
    """The effect on clients during the change, from the least to the most."""

    NONE = "none"
    DEGRADES = "degrades"
    DROPS_REQUESTS = "drops-requests"
    RESTARTS = "restarts"


class Treatment(StrEnum):
    """Whether a playbook removes a cause or only a symptom of it."""

    CAUSE = "cause"
    SYMPTOM = "symptom"


class Trigger(StrEnum):
    """What justifies a run."""

    INCIDENT = "incident"  # something is slow, and the change has to help
    FORECAST = "forecast"  # nothing is slow yet: replicas have to be ready in time, and nothing may get worse
    PEAK_PASSED = "peak-passed"  # the replicas of a forecast are no longer needed, and nothing may get worse


class OnFailure(StrEnum):
    """What a failed stage undoes."""

    UNDO_STAGE = "undo-stage"
    UNDO_ALL = "undo-all"


class ParameterType(StrEnum):
    """The type of a parameter. Durations in seconds, shares from 0 to 1."""

    INTEGER = "integer"
    NUMBER = "number"
    DURATION = "duration"
    SHARE = "share"
    TEXT = "text"
    FLAG = "flag"


class Parameter(Struct, frozen=True):
    """A value that the caller may set within its range, and must set without a default."""

    name: str
    type: ParameterType
    default: Scalar | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    description: str = ""

    def check(self) -> Iterator[str]:
        """Yield the problems of the definition."""
        numeric = self.type in (ParameterType.INTEGER, ParameterType.NUMBER, ParameterType.DURATION)
        if numeric and (self.minimum is None or self.maximum is None):
            yield f"parameter {self.name} needs minimum and maximum"
        elif self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            yield f"parameter {self.name}: minimum must not exceed maximum"
        if self.choices and self.type != ParameterType.TEXT:
            yield f"parameter {self.name}: only a text has choices"
        if not self.description:
            yield f"parameter {self.name} lacks 'description'"


class Attempts(Struct, frozen=True):
    """At most `count` runs on one target within `per`."""

    count: Count
    per: Seconds


class Guards(Struct, frozen=True):
    """Limits on the runs of a playbook."""

    max_targets: Count = 1
    cooldown: Seconds = Seconds(600.0)  # since the end of the last run of this playbook on the target
    attempts: Attempts = Attempts(2, Seconds(86_400.0))


class Step(Struct, frozen=True):
    """One change: an action with its arguments."""

    id: Identifier
    action: Identifier
    undo: Undo
    arguments: Mapping[str, Argument] = field(default={}, name="with")
    where: str = ""


class Stage(Struct, frozen=True):
    """A stage of a playbook of playbooks: another playbook with some of its parameters set."""

    playbook: Identifier
    arguments: Mapping[str, Argument] = field(default={}, name="with")
    where: str = ""


class BeforeChange(Struct, frozen=True):
    """The observation before the change. The default are three windows, because one may contain a peak."""

    window: Wait = Wait(15.0)


class Settle(Struct, frozen=True):
    """The condition awaited after the change before it is verified, and before that its completion (a rollout)."""

    at_most: Wait = Wait(0.0)
    until: Condition | None = None


class Repair(Struct, frozen=True):
    """What shows that a change has repaired a workload whose fault made no request slow: other Pods carried the load.

    At least one finding of `broken` fired in each window before the change, and all of `incomplete` hold in one of
    them: what happened once and is over is no fault. After it all of `whole` must be so in each window, and `not_worse`
    hold of the levels. A rollout in progress is incomplete only for a while, and has no such finding.
    """

    broken: Annotated[tuple[Identifier, ...], NonEmpty]
    whole: Annotated[tuple[ClearedFinding | Condition, ...], NonEmpty]
    not_worse: Annotated[tuple[Condition, ...], NonEmpty]
    incomplete: tuple[Condition, ...] = ()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All of them; findings apart."""
        return (*self.incomplete, *(item for item in self.whole if not isinstance(item, str)), *self.not_worse)

    @property
    def signals(self) -> frozenset[str]:
        """Those that its conditions are about."""
        return frozenset(signal for condition in self.conditions for signal in signals_of(condition))

    @property
    def findings(self) -> tuple[str, ...]:
        """Those that were there before, and those that must be clear."""
        return (*self.broken, *(item for item in self.whole if isinstance(item, str)))


class Verify(Struct, frozen=True):
    """How a change is verified.

    A window is a success only if `load` holds (the load is unchanged), all of `succeed` hold or `repair` shows that a
    broken workload is whole again, and `mechanism` shows what the change does: its findings are clear and its
    conditions hold. Successes without interruption for `hold` within `within` verify the change; otherwise it is rolled
    back. One holding condition of `abort` rolls it back at once. Without an incident (`trigger`) `succeed` says what
    must not get worse, and the load may move.
    """

    succeed: Annotated[tuple[Condition, ...], NonEmpty]
    load: Condition | None = None
    mechanism: Annotated[tuple[ClearedFinding | Condition, ...], NonEmpty] = ()  # only with stages it may be absent
    abort: tuple[Condition, ...] = ()
    repair: Repair | None = None
    alters: tuple[Identifier, ...] = ()  # signals of the load's kind that the change alters by itself
    hold: Wait = Wait(10.0)
    within: Wait = Wait(60.0)
    otherwise: Literal["rollback"] = "rollback"

    @property
    def cleared_findings(self) -> tuple[ClearedFinding, ...]:
        """The findings of `mechanism`."""
        return tuple(item for item in self.mechanism if isinstance(item, str))

    @property
    def mechanism_conditions(self) -> tuple[Condition, ...]:
        """The conditions of `mechanism`."""
        return tuple(item for item in self.mechanism if not isinstance(item, str))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Those of success, mechanism and load."""
        return (*self.succeed, *self.mechanism_conditions, *(() if self.load is None else (self.load,)))

    @property
    def signals(self) -> frozenset[str]:
        """Those that its conditions are about."""
        return frozenset(signal for condition in self.conditions for signal in signals_of(condition))

    def check(self) -> Iterator[str]:
        """Yield the problems of the definition."""
        if self.hold > self.within:
            yield f"verify: hold ({self.hold:g} s) must not exceed within ({self.within:g} s)"


class Effect(Struct, frozen=True):
    """The expected effect, and the command that measured it. `figures`: by signal, `0.2..0.5 x before`."""

    measured_by: str
    description: str = ""
    figures: Mapping[str, str] = {}

    def __str__(self) -> str:
        figures = ", ".join(f"{signal} {text.replace('..', ' to ')}" for signal, text in self.figures.items())
        return "; ".join(filter(None, (figures, self.description)))


class Playbook(Struct, frozen=True):
    """One remediation: its steps, or for a playbook of playbooks its stages."""

    id: Identifier
    title: str
    targets: Annotated[tuple[TargetKind, ...], NonEmpty]
    risk: Risk
    disruption: Disruption
    preconditions: Annotated[tuple[Condition, ...], NonEmpty]
    verify: Verify
    effect: Effect
    explanation: str
    parts: Annotated[tuple[Step | Stage, ...], NonEmpty] = field(name="steps")
    addresses: Annotated[tuple[Identifier, ...], NonEmpty] = ()  # only without an incident there is no cause
    trigger: Trigger = Trigger.INCIDENT
    guards: Guards = Guards()
    parameters: tuple[Parameter, ...] = ()
    before: BeforeChange = BeforeChange()
    settle: Settle = Settle()
    on_failure: OnFailure | None = None  # only with stages; the default is undo-stage
    treats: Treatment = Treatment.CAUSE
    references: tuple[str, ...] = ()
    where: str = ""
    digest: str = ""  # SHA-256 of the file, and of its stages' files

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(part for part in self.parts if isinstance(part, Step))

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(part for part in self.parts if isinstance(part, Stage))
