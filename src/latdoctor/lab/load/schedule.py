"""The schedule: every request with its instant and content, fixed by the seed before anything is sent."""

from __future__ import annotations

import hashlib
from random import Random

import msgspec
from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.lab.load.mix import Ask, Conversations, draw
from latdoctor.lab.load.plan import LoadPlan

MAX_REQUESTS = 500_000  # a record of each is kept until the run is summed up


class Planned(Struct, frozen=True, gc=False):
    """One request as planned: `at` is seconds from the start of the run, `phase` an index."""

    index: int
    at: float
    phase: int
    ask: Ask


def schedule(plan: LoadPlan) -> tuple[Planned, ...]:
    """Every request of `plan` in the order of time. Raises UsageError for a plan of too many or of none.

    Instants and contents come from generators of their own: another mix leaves every instant where it was.
    """
    expected = sum(phase.arrivals.expected(phase.seconds) for phase in plan.phases)
    if expected > MAX_REQUESTS:
        raise UsageError(f"the plan has {expected:.0f} requests", next_step=f"at most {MAX_REQUESTS} in one run")
    planned: list[Planned] = []
    conversations = Conversations()  # they go on from phase to phase
    for number, (phase, start) in enumerate(zip(plan.phases, plan.starts(), strict=True)):
        instants = phase.arrivals.times(phase.seconds, generator(plan.seed, f"{number}/arrivals"))
        contents = generator(plan.seed, f"{number}/mix")
        for at in instants:
            planned.append(Planned(len(planned), start + at, number, conversations.joined(draw(phase.mix, contents))))
    if not planned:
        raise UsageError("the plan has no request in it", next_step="a higher rate, or more seconds")
    return tuple(planned)


def generator(seed: int, purpose: str) -> Random:
    """A generator for one purpose; text seeds are hashed the same by every Python."""
    return Random(f"{seed}/{purpose}")  # noqa: S311  # a repeatable schedule, no secret


def digest(planned: tuple[Planned, ...]) -> str:
    """Equal schedules have equal digests: two runs can be shown to have offered the same."""
    return hashlib.sha256(msgspec.json.encode(planned)).hexdigest()[:16]
