"""Whether a change has helped: window after window, until it has for long enough, or the time is over.

Three outcomes of one window. It speaks for the change only where all of it holds; a window in which something is
unknown, or in which the load moved, tells nothing and is no success.

Before the change several windows are seen, as long as each of those that verify, and the change has to beat every one
of them: what swings by itself was seen low as well as high, and its falling back from a peak proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from msgspec import Struct

from latdoctor.evidence.conditions import AllOf, AnyOf, Comparison, Condition, Constant, Reference, SignalTerm
from latdoctor.evidence.judging import FAILS, HOLDS, UNKNOWN
from latdoctor.remedy.observation import Judged, Observation, Remembered, any_holds, cleared, judged, signals_judged
from latdoctor.remedy.playbook import Verify

# A service that completes so many times as much as comes is working off what waits: it gets well without anybody's
# help, and P99 falls whatever is changed. Both count the same requests, so that chance moves the two alike.
_DRAINING = Comparison(
    SignalTerm("completion.rate"), ">", Reference("arrival.rate", 1.2), "completion.rate > 1.2 x arrival.rate"
)
Before = Sequence[Observation]  # the windows seen before the change, oldest first; at least one
Judge = Callable[[Condition, Observation, Remembered], Judged]
ONE_LOOK = 2.5  # seconds: half of a window, so that one is enough
NOT_WORSE = 1.2  # a stage may leave P99 at most this many times as high: what 5 s windows of one load differ by
STANDING, DRAINS = 10.0, 1.05  # so many that wait are a queue; completing that many times as much works it off
AS_MUCH = 0.8  # of what was completed before: the same, as far as 5 s windows of one load tell
SUCCESS, FAILURE, INCONCLUSIVE, ABORT = "success", "failure", "inconclusive", "abort"


class WindowSeen(Struct, frozen=True):
    """One window and what it says of the change. `started` and `ended` are unix seconds."""

    started: float
    ended: float
    status: str
    conditions: tuple[Judged, ...]

    @property
    def why(self) -> str:
        """What kept it from being a success."""
        return "; ".join(c.told for c in self.conditions if _against(c, self.status))


class Streak(Struct, frozen=True):
    """Successes without a break: since when they were watched, unix seconds; and the last window."""

    since: float | None = None  # None: the last window was no success
    last: WindowSeen | None = None

    def with_window(self, window: WindowSeen) -> Streak:
        if window.status != SUCCESS:
            return Streak(last=window)
        return Streak(window.started if self.since is None else self.since, window)

    @property
    def seconds(self) -> float:
        """How long it has been well."""
        return 0.0 if self.since is None or self.last is None else self.last.ended - self.since


def window_of(verify: Verify, observation: Observation, before: Before) -> WindowSeen:
    """What this look says of the change, next to the windows before it."""
    aborts = [against_each(condition, observation, before, any_holds) for condition in verify.abort]
    hit = tuple(one for one in aborts if one.status == HOLDS)
    if hit:
        return WindowSeen(observation.started, observation.ended, ABORT, hit)
    load = _load(verify, observation, before)
    wanted = [*_wanted(verify, observation, before)]
    if any(one.status != HOLDS for one in load) or any(one.status == UNKNOWN for one in wanted):
        status = INCONCLUSIVE
    else:
        status = SUCCESS if all(one.status == HOLDS for one in wanted) else FAILURE
    return WindowSeen(observation.started, observation.ended, status, (*load, *wanted))


def untold(verify: Verify, before: Before) -> tuple[str, ...]:
    """What could not be verified, as seen before anything is changed: what is unknown now would be afterwards. And why,
    where the evidence says so.
    """
    last = before[-1]
    judgements = (*_load(verify, last, before), *_wanted(verify, last, before))
    unknown = [one.told for one in judgements if one.status == UNKNOWN]
    wanted = {*signals_judged(verify.succeed if verify.load is None else (*verify.succeed, verify.load))}
    lasted = f"in a look of {last.ended - last.started:.0f} s"
    why = [f"{gap.reason} ({lasted})" for gap in last.evidence.gaps if unknown and wanted.intersection(gap.signals)]
    return tuple(dict.fromkeys((*unknown, *why)))


def holds_already(verify: Verify, before: Before) -> str:
    """Why nothing could be proved: all that shall prove the change holds before it. Else empty."""
    wanted = list(_wanted(verify, before[-1], before))
    return "; ".join(one.told for one in wanted) if all(one.status == HOLDS for one in wanted) else ""


def well_by_itself(before: Before) -> str:
    """Why a change made now could not prove itself: what waited is being worked off already. Else empty.

    Where the page does not show it nothing is said: the load and the findings still judge.
    """
    found = any_holds(_DRAINING, before[-1], {})
    return found.shown if found.status == HOLDS else ""


def mended(verify: Verify, seen: Sequence[Observation]) -> bool:
    """Whether what a stage mends is not there: each finding that it would clear was looked for and always clear."""
    found = [cleared(finding, one) for finding in verify.mechanism for one in seen]
    return bool(found) and all(one.status == HOLDS for one in found)


def queued(seen: Observation) -> bool:
    """Whether a queue stands. Then a look of a few seconds just after a change is of what the change took out first."""
    return any_holds(_above("queue.depth", STANDING), seen, {}).status == HOLDS


def not_worse(verify: Verify) -> Verify:
    """How a stage of several proves itself: one look in which it has not made things worse.

    The whole must then succeed, and hold for as long as it says; what a stage waited longer for would be time in which
    the incident goes on.

    While a queue stands P99 is that of whoever has waited in it: it follows late, and rises with the queue's age
    whatever is changed. Then a stage is judged by what is completed, which is all that the service can: more than
    before, or as much where the queue has not grown.
    """
    as_much = AllOf(
        (
            _against_before("completion.rate", ">", AS_MUCH),
            _against_before("queue.depth", "<", NOT_WORSE),
        )
    )
    behind = AnyOf((_against_before("completion.rate", ">", DRAINS), as_much))
    standing = AllOf((_above("queue.depth", STANDING), behind))
    condition = AnyOf((_against_before("latency.p99", "<", NOT_WORSE), standing))
    return replace(verify, succeed=(condition,), mechanism=(), hold=min(verify.hold, ONE_LOOK))


def _against_before(signal: str, operator: str, times: float) -> Comparison:
    return Comparison(
        SignalTerm(signal), operator, Reference("before", times), f"{signal} {operator} {times:g} x before"
    )


def _above(signal: str, limit: float) -> Comparison:
    return Comparison(SignalTerm(signal), ">", Constant((limit,), f"{limit:g}"), f"{signal} > {limit:g}")


def against_each(condition: Condition, observation: Observation, before: Before, judge: Judge = judged) -> Judged:
    """It holds only where it does next to every window before: a change has to beat the best of them."""
    return _first((FAILS, UNKNOWN, HOLDS), (judge(condition, observation, one.remembered) for one in before))


def _load(verify: Verify, observation: Observation, before: Before) -> list[Judged]:
    """The load is like before where it is like one of the windows before: it swings by chance as well."""
    if verify.load is None:
        return []
    found = (judged(verify.load, observation, one.remembered) for one in before)
    return [_first((HOLDS, UNKNOWN, FAILS), found)]


def _wanted(verify: Verify, observation: Observation, before: Before) -> Iterator[Judged]:
    yield from (against_each(condition, observation, before) for condition in verify.succeed)
    yield from (cleared(finding, observation) for finding in verify.mechanism)


def _first(statuses: Sequence[str], found: Iterable[Judged]) -> Judged:
    """The judgement whose status comes first in `statuses`."""
    return min(found, key=lambda one: statuses.index(one.status))


def _against(judgement: Judged, status: str) -> bool:
    return (judgement.status == HOLDS) is (status == ABORT)
