"""Changes of the load while it runs: the rate, the size of populations, and the shares of the mix.

A change replaces what is left of the schedule. It takes effect LEAD_S after it was requested, so that the first of the
new requests is not late. The new times derive from the seed and the number of the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain
from typing import Annotated

from msgspec import Meta, Struct, structs

from latdoctor.errors import UsageError
from latdoctor.load.arrivals import Arrivals, OnOff, Population, Ramp, Replay
from latdoctor.load.mix import Conversations, Mix, Share, draw
from latdoctor.load.plan import MAX_REQUESTS, LoadPlan, PlannedRequest, expected_requests, generator
from latdoctor.load.user_sessions import UserArrival, arrivals_of, named_arrivals

LEAD_S = 0.5
MOST_CHANGES = 1000  # of one run
Entry = PlannedRequest | UserArrival


class MixShares(Struct, frozen=True, forbid_unknown_fields=True):
    """Shares in place of those of the plan; None: as planned."""

    long_share: Share | None = None
    audio_share: Share | None = None
    malformed_share: Share | None = None


class Adjustment(Struct, frozen=True, forbid_unknown_fields=True):
    """What deviates from the plan from now on; the default is the plan itself.

    `rate` multiplies all rates, those of arriving users included. `users` is the size of populations.
    """

    rate: Annotated[float, Meta(gt=0, le=100)] = 1.0
    users: Annotated[int, Meta(ge=1, le=20_000)] | None = None
    mix: MixShares = MixShares()


class LoadChange(Struct, frozen=True):
    """An adjustment and when it took effect, in seconds from the start of the run."""

    at: float
    adjustment: Adjustment


def check_adjustment(plan: LoadPlan, adjustment: Adjustment) -> None:
    """Raises UsageError for an adjustment that the plan cannot follow."""
    populations = [phase for phase in plan.phases if isinstance(phase.arrivals, Population)]
    if adjustment.users is not None and not populations:
        raise UsageError("`users`: no phase of the plan has a population", next_step="change `rate` instead")
    if adjustment.rate == 1:
        return
    if len(populations) == len(plan.phases):
        raise UsageError("`rate`: the plan has populations only", next_step="change `users` instead")
    if any(isinstance(phase.arrivals, Replay) for phase in plan.phases):
        raise UsageError("`rate`: a replay has the times of its recording", next_step="replay it at another speed")
    if sum(map(expected_requests, plan.phases)) * adjustment.rate > MAX_REQUESTS:
        raise UsageError(f"`rate`: more than {MAX_REQUESTS} requests in one run", next_step="use a lower rate")


def adjusted_mix(mix: Mix, shares: MixShares) -> Mix:
    return structs.replace(mix, **{name: value for name, value in structs.asdict(shares).items() if value is not None})


def adjusted_arrivals(arrivals: Arrivals, adjustment: Adjustment) -> Arrivals:
    """The same process at another rate or of another size. A replay stays as it is."""
    factor = adjustment.rate
    match arrivals:
        case Replay():
            return arrivals
        case Population():
            return structs.replace(arrivals, size=adjustment.users or arrivals.size)
        case OnOff():
            return structs.replace(arrivals, on_rate=arrivals.on_rate * factor, off_rate=arrivals.off_rate * factor)
        case Ramp():
            return structs.replace(arrivals, from_rate=arrivals.from_rate * factor, to_rate=arrivals.to_rate * factor)
        case _:
            return structs.replace(arrivals, rate=arrivals.rate * factor)


class Timetable:
    """What is left of the schedule: requests and arrivals of users, by time."""

    def __init__(self, plan: LoadPlan, planned: Iterable[PlannedRequest]) -> None:
        users = [arrivals_of(plan, number) for number, phase in enumerate(plan.phases) if phase.users]
        sources: list[Iterable[Entry]] = [planned, *users]
        self._left: Iterator[Entry] = merge(*sources, key=_at)
        self._first = next(self._left, None)

    @property
    def first(self) -> Entry | None:
        """The next entry; None at the end."""
        return self._first

    def take(self) -> None:
        """Go on to the next entry."""
        self._first = next(self._left, None)

    def replace(self, after: float, entries: Iterator[Entry]) -> None:
        """Have `entries` in place of what begins at `after` or later."""
        before: list[Entry] = [] if self._first is None else [self._first]
        self._left = chain(_until(chain(before, self._left), after), entries)
        self.take()


def redrawn(
    plan: LoadPlan, adjustment: Adjustment, after: float, number: int, indexes: Iterator[int]
) -> Iterator[Entry]:
    """The entries at `after` or later, drawn one by one while they are sent; `number` is that of the change.

    Conversations of a mix begin anew.
    """
    conversations = Conversations()
    for place, (phase, start) in enumerate(zip(plan.phases, plan.starts(), strict=True)):
        if start + phase.seconds <= after:
            continue
        arrivals = adjusted_arrivals(phase.arrivals, adjustment)
        times = arrivals.times(phase.seconds, generator(plan.seed, f"{place}/arrivals/change/{number}"))
        late = (start + at for at in times if start + at >= after)
        if phase.users is not None:
            yield from named_arrivals(phase, place, late, f"{place}/change/{number}")
            continue
        mix = adjusted_mix(phase.mix, adjustment.mix)
        contents = generator(plan.seed, f"{place}/mix/change/{number}")
        for at in late:
            yield PlannedRequest(next(indexes), at, place, conversations.joined(draw(mix, contents)))


def _at(entry: Entry) -> float:
    return entry.at


def _until(entries: Iterator[Entry], after: float) -> Iterator[Entry]:
    """The entries before `after`, drawn only as far as that."""
    for entry in entries:
        if entry.at >= after:
            return
        yield entry
