"""What another generator cannot keep of a plan: printed by the export, and written into the exported file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from latdoctor.load.arrivals import Constant, Gamma, Population, Renewal, Replay
from latdoctor.load.plan import LoadPlan
from latdoctor.load.request_template import RequestTemplate


class Driver(StrEnum):
    """A load generator that a plan can be exported to."""

    LOCUST = "locust"
    K6 = "k6"


class Difference(StrEnum):
    """One way in which an exported load is not that of `latdoctor lab load`."""

    OTHER_TIMES = "other-times"
    EVEN_COUNTS = "even-counts"
    BURSTINESS = "burstiness"
    GAPS = "gaps"
    REPLAY_BY_SECOND = "replay-by-second"
    NO_TRANSCRIPTS = "no-transcripts"
    OTHER_WORDS = "other-words"
    NO_LATENESS = "no-lateness"
    MIX_OF_ARRIVAL = "mix-of-arrival"
    SUM_OF_GAMMAS = "sum-of-gammas"


TEXT = {
    Difference.OTHER_TIMES: "the times are not those of latdoctor's schedule: only rates and processes are the same",
    Difference.EVEN_COUNTS: (
        "k6 starts iterations evenly; each waits a random time before it sends, so gaps are nearly exponential, but "
        "counts over times longer than spread_s vary less than Poisson's"
    ),
    Difference.BURSTINESS: "k6 has no gamma process: gaps are as of a Poisson process, whatever cv is",
    Difference.GAPS: "k6 has no renewal process: gaps are as of a Poisson process of the same rate, not as in the log",
    Difference.REPLAY_BY_SECOND: (
        "recorded times are kept by second, and evenly spaced within it; recorded sessions and lengths are not kept"
    ),
    Difference.NO_TRANSCRIPTS: "a request has the id of its session, but not the texts of the turns before",
    Difference.OTHER_WORDS: "texts have as many words as latdoctor's, but other words",
    Difference.NO_LATENESS: (
        "k6 does not say how late it started an iteration: watch dropped_iterations and the processors of its machine"
    ),
    Difference.MIX_OF_ARRIVAL: "a user goes on with the mix of the phase in which it arrived, and counts there",
    Difference.SUM_OF_GAMMAS: "each generator has gamma gaps of its own: their sum is less bursty than cv says",
}


def differences(
    plan: LoadPlan, driver: Driver, times: float, request: RequestTemplate | None
) -> tuple[Difference, ...]:
    """What `driver` does not keep of `plan` at `times` its rates, in the order of the enum."""
    found = set(_of_k6(plan, request) if driver is Driver.K6 else _of_locust(plan, times))
    return tuple(one for one in Difference if one in found)


def _of_locust(plan: LoadPlan, times: float) -> Iterator[Difference]:
    if times != 1:
        yield Difference.OTHER_TIMES
        if any(isinstance(phase.arrivals, Gamma) for phase in plan.phases):
            yield Difference.SUM_OF_GAMMAS


def _of_k6(plan: LoadPlan, request: RequestTemplate | None) -> Iterator[Difference]:
    yield Difference.OTHER_TIMES
    yield Difference.OTHER_WORDS
    yield Difference.NO_LATENESS
    for phase in plan.phases:
        if isinstance(phase.arrivals, Replay):
            yield Difference.REPLAY_BY_SECOND
        elif not isinstance(phase.arrivals, Constant | Population):
            yield Difference.EVEN_COUNTS
        if isinstance(phase.arrivals, Gamma) and phase.arrivals.cv != 1:
            yield Difference.BURSTINESS
        if isinstance(phase.arrivals, Renewal):
            yield Difference.GAPS
        if phase.mix.sessions and request is None:
            yield Difference.NO_TRANSCRIPTS
        if phase.users is not None and len(plan.phases) > 1:
            yield Difference.MIX_OF_ARRIVAL
