"""The part of a plan that one of several generators sends.

All generators together send the plan (`times` 1): generator i of n sends its requests i, i + n, i + 2n, …, so that
times and contents are those of `latdoctor lab load`. With `times` k they send k times its rates: each has arrivals of
its own at k/n of the rate, from a seed of its own. The sum of independent Poisson processes is one of the summed rate
(Kingman, Poisson Processes, 2.2).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated

from msgspec import Meta, Struct, structs

from latdoctor.errors import UsageError
from latdoctor.load import plan as plans
from latdoctor.load.arrivals import Arrivals, Constant, OnOff, Population, Ramp, Replay
from latdoctor.load.plan import LoadPhase, LoadPlan, PlannedRequest, schedule
from latdoctor.load.user_sessions import UserArrival, arrivals_of

MAX_TIMES = 10_000.0
MAX_GENERATORS = 10_000


class Share(Struct, frozen=True, forbid_unknown_fields=True):
    """Generator `index` of `generators`; all of them send `times` the rates of the plan."""

    index: Annotated[int, Meta(ge=0, lt=MAX_GENERATORS)] = 0
    generators: Annotated[int, Meta(ge=1, le=MAX_GENERATORS)] = 1
    times: Annotated[float, Meta(gt=0, le=MAX_TIMES)] = 1.0

    def __post_init__(self) -> None:
        if self.index >= self.generators:
            raise ValueError(f"generator {self.index} of {self.generators}")


def shared_schedule(plan: LoadPlan, share: Share) -> tuple[PlannedRequest, ...]:
    """The requests of one generator, by time; their `index` is unique among all generators.

    Raises UsageError where the plan is invalid, or cannot be multiplied.
    """
    if share.times == 1:
        return schedule(plan)[share.index :: share.generators]
    shifts = [share.index / share.generators * _gap(phase, share) for phase in plan.phases]
    ends = [start + phase.seconds for start, phase in zip(plan.starts(), plan.phases, strict=True)]
    shifted = (
        structs.replace(
            request, index=request.index * share.generators + share.index, at=request.at + shifts[request.phase]
        )
        for request in schedule(scaled(plan, share))
    )
    return tuple(request for request in shifted if request.at < ends[request.phase])


def shared_users(plan: LoadPlan, share: Share) -> tuple[UserArrival, ...]:
    """The users of one generator, by time; those of a population are divided by their places.

    Raises UsageError where the plan is invalid, or cannot be multiplied.
    """
    own = plan if share.times == 1 else scaled(plan, share)
    numbers = (number for number, phase in enumerate(plan.phases) if phase.users is not None)
    users = sorted((one for number in numbers for one in arrivals_of(own, number)), key=lambda one: one.at)
    return tuple(users[share.index :: share.generators] if share.times == 1 else users)


def scaled(plan: LoadPlan, share: Share) -> LoadPlan:
    """The plan of one generator: its part of `times` the rates, with a seed of its own. Raises UsageError."""
    check_times(plan, share.times)
    factor = share.times / share.generators
    phases = tuple(
        structs.replace(
            phase,
            arrivals=_places(phase.arrivals, share)
            if isinstance(phase.arrivals, Population)
            else scaled_arrivals(phase.arrivals, factor),
        )
        for phase in plan.phases
    )
    return structs.replace(plan, phases=phases, seed=plan.seed * MAX_GENERATORS + share.index + 1)


def _places(population: Population, share: Share) -> Population:
    """A generator's part of `times` a population: whole users, which add up to the rounded number."""
    whole = round(population.size * share.times)
    first, last = (whole * index // share.generators for index in (share.index, share.index + 1))
    return structs.replace(population, size=last - first)


def check_times(plan: LoadPlan, times: float) -> None:
    """Raises UsageError where `plan` has recorded times, which have no rate that could be multiplied."""
    for phase in plan.phases:
        if times != 1 and isinstance(phase.arrivals, Replay):
            raise UsageError(
                f"phase {phase.name}: recorded arrivals cannot be multiplied",
                next_step="use a Poisson process, or no --times",
            )


def scaled_arrivals(arrivals: Arrivals, factor: float) -> Arrivals:
    """The same process at `factor` its rate; recorded times stay."""
    if isinstance(arrivals, Replay | Population):
        return arrivals
    if isinstance(arrivals, OnOff):
        return structs.replace(arrivals, on_rate=arrivals.on_rate * factor, off_rate=arrivals.off_rate * factor)
    if isinstance(arrivals, Ramp):
        return structs.replace(arrivals, from_rate=arrivals.from_rate * factor, to_rate=arrivals.to_rate * factor)
    return structs.replace(arrivals, rate=arrivals.rate * factor)


def _gap(phase: LoadPhase, share: Share) -> float:
    """Seconds between two evenly spaced requests of one generator; 0 for the other processes, which have no grid."""
    arrivals = phase.arrivals
    return share.generators / (arrivals.rate * share.times) if isinstance(arrivals, Constant) else 0.0


def expected_requests(plan: LoadPlan, times: float = 1.0) -> int:
    """About how many requests all generators send together; of a population, those of first sessions."""
    return math.ceil(sum(plans.expected_requests(phase) for phase in plan.phases) * times)


def highest_rate(phase: LoadPhase) -> float:
    """The highest rate of a phase, in requests per second; a replay's is that of its busiest second."""
    arrivals = phase.arrivals
    if isinstance(arrivals, OnOff):
        return max(arrivals.on_rate, arrivals.off_rate)
    if isinstance(arrivals, Ramp):
        return max(arrivals.from_rate, arrivals.to_rate)
    if isinstance(arrivals, Population):
        raise UsageError(f"phase {phase.name}: a population has no rate")
    if isinstance(arrivals, Replay):
        return float(max(replayed_per_second(arrivals, phase.seconds)))
    return arrivals.rate


def replayed_per_second(arrivals: Replay, seconds: float) -> list[int]:
    """How many requests of a replay are due in each second of a phase of `seconds`."""
    due = Counter(int(at / arrivals.speed) for at in arrivals.at if at / arrivals.speed < seconds)
    return [due[second] for second in range(math.ceil(seconds))]
