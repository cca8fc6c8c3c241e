"""A playbook as types: what it mends, what must hold before, what it changes, and how it proves itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from latdoctor.conditions.ast import Condition

RISKS = ("low", "medium", "high")
DISRUPTIONS = ("none", "degrades", "drops-requests", "restarts")
BEFORE = 15.0  # seconds: three of the looks that verify, for one of them may be a peak
PARAMETER_TYPES = ("integer", "number", "duration", "share", "text", "flag")
# restore: the values from before · none-needed: the step leaves nothing behind · irreversible: only with high risk.
UNDOS = ("restore", "none-needed", "irreversible")

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A typed value that the caller may set within its range. Durations in seconds, shares 0..1.

    Without a default the caller must set it.
    """

    name: str
    type: str
    default: Scalar | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class Guards:
    """What refuses a run. Times in seconds."""

    max_targets: int = 1
    cooldown: float = 600.0  # since the last run of this playbook on this target ended
    attempts: int = 2  # at most this many runs on one target
    per: float = 86_400.0  # within this time


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `given` are the action's arguments as written; `$name` stands for a parameter."""

    id: str
    action: str
    given: Mapping[str, str]
    undo: str
    where: str


@dataclass(frozen=True, slots=True)
class Settle:
    """What is waited for after the change, before anything is judged. `at_most` in seconds."""

    until: Condition | None = None
    at_most: float = 0.0


@dataclass(frozen=True, slots=True)
class Verify:
    """How a change proves itself. Times in seconds.

    Each window of evidence counts as a success only where `load` holds (else the load moved, and nothing is told),
    every one of `succeed` holds, and each finding of `mechanism` is clear. Successes without a break for `hold` within
    `within` verify; anything else is taken back. One of `abort` takes back at once.
    """

    succeed: tuple[Condition, ...]
    load: Condition | None = None
    mechanism: tuple[str, ...] = ()
    abort: tuple[Condition, ...] = ()
    hold: float = 10.0
    within: float = 60.0


@dataclass(frozen=True, slots=True)
class Playbook:
    """One remedy. It has `steps`, or it is a playbook of playbooks and has `stages`."""

    id: str
    title: str
    addresses: tuple[str, ...]
    targets: tuple[str, ...]
    risk: str
    disruption: str
    preconditions: tuple[Condition, ...]
    guards: Guards
    verify: Verify
    where: str
    digest: str  # of the file as it was read
    parameters: tuple[Parameter, ...] = ()
    effect: str = ""  # what is expected, in words with figures
    measured_by: str = ""  # the command by which that was measured
    steps: tuple[Step, ...] = ()
    stages: tuple[StageOf, ...] = ()
    before: float = BEFORE  # seconds watched, window by window, between taking the lock and the first change
    settle: Settle = Settle()
    on_failure: Literal["undo-stage", "undo-all"] = "undo-stage"
    explanation: str = ""
    treats: Literal["cause", "symptom"] = "cause"  # "symptom": it buys time, and the answer says so
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageOf:
    """A stage of a playbook of playbooks: another one with some of its parameters set."""

    playbook: str
    given: Mapping[str, str]
    where: str
