"""Step changes of the arrival rate within the judged window.

A series may go back further than that: then only its part within the window of the rate's own reading counts. An hour
of history has bursts that are over, and more runs in which chance looks like one.

For every run of steps, G = n₁·ln(r₁/r) + n₂·ln(r₂/r) is the log likelihood ratio of two Poisson rates, inside and
outside the run, against one rate, with n arrivals at rate r (the scan statistic of Kulldorff 1997, in one dimension).
Only runs that begin within the window count, so that the change itself was observed. Of a rise and a fall the sharper
one is reported, because the rate falls after a burst. The largest G must exceed 12: by the χ² distribution with one
degree of freedom that is p = 10⁻⁶ for one run, which leaves room for testing every run and for clustered arrivals.
Otherwise jump and drop are 1.

A rise that is over, or has just begun, is a spike. One that is not over and has lasted for a while is the load now:
`arrival.jump_stays`. Logs of requests end before those that still wait, so that a rate that another source measured
later, at about the risen one, counts as its continuation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from latdoctor.evidence.model import Evidence, Origin, Reading, Series, Window
from latdoctor.units import clock_time

SIGNAL = "arrival.rate"
JUMP, DROP, STAYS = "arrival.jump", "arrival.drop", "arrival.jump_stays"
DERIVED = (JUMP, DROP, STAYS)
MIN_G = 12.0
MIN_STEPS = 2  # on either side
MIN_ARRIVALS = 30
MIN_WITHIN = 20  # arrivals of a rise: a few that come together after a pause are no load
LONG = 600.0  # seconds; over hours the load of every service rises and falls gradually
AT_ONCE = 60.0  # seconds before and after a jump that must show it too
FOR_A_WHILE, OF_ALL = 10.0, 0.05  # seconds, and of the length of the series, after which a rise is no spike
SAME_RATE, NO_OTHER = 0.5, 4.0  # times the risen rate: what a later source may have measured of it
_SLACK = 0.5  # of a step that may begin before the window
MAX_STEPS = 240  # neighbouring steps of a longer series are merged, because every run is tested


def arrival_changes(evidence: Evidence) -> Evidence:
    """Derive `arrival.jump`, `arrival.jump_stays` and `arrival.drop` of the series with enough steps and arrivals."""
    reported = {one.subject for one in evidence.readings_by_signal.get(JUMP, ())}
    judged = {one.subject: one.window.start for one in evidence.readings_by_signal.get(SIGNAL, ()) if not one.labels}
    series = [one for one in evidence.series if one.signal == SIGNAL and one.subject not in reported]
    rates = [one for one in evidence.readings_by_signal.get(SIGNAL, ()) if not one.labels]
    found = [_of_one(one, judged.get(one.subject), rates) for one in series]
    return Evidence(readings=tuple(reading for readings in found for reading in readings))


def _of_one(series: Series, start: float | None, rates: Sequence[Reading]) -> tuple[Reading, ...]:
    """`start` of the judged window; None where it is not known. `rates` are those of all sources."""
    all_steps = _lengths(series.times)
    kept = [
        (time, rate, step)
        for time, rate, step in zip(series.times, series.values, all_steps, strict=False)
        if start is None or time - step >= start - _SLACK * step
    ]
    times, steps = [time for time, _, _ in kept], [step for _, _, step in kept]
    arrived = [rate * step for _, rate, step in kept]
    if len(arrived) < 2 * MIN_STEPS or not all(math.isfinite(n) and n >= 0 for n in arrived):
        return ()
    if sum(arrived) < MIN_ARRIVALS:
        return ()
    each = math.ceil(len(steps) / MAX_STEPS)
    counts, lengths = _together(arrived, each), _together(steps, each)
    rise, fall = sharpest(counts, lengths, fewest=MIN_WITHIN), sharpest(counts, lengths, falling=True)
    falls = fall[2] > rise[2]
    ratio, at, strength, end = fall if falls else rise
    if sum(lengths) > LONG:
        minutes = _at_once(arrived, steps, at * each, each)
        ratio = max(ratio, min(1.0, minutes)) if falls else min(ratio, max(1.0, minutes))
    begin = times[0] - steps[0] + sum(lengths[:at])
    note = f"from {clock_time(begin)} on"
    if strength < MIN_G:
        ratio, note = 1.0, f"no significant change within {sum(lengths):.0f} s"
    origin = Origin(series.origin.artifact, f"{series.origin.place}, page by page")
    window = Window(times[0] - steps[0], times[-1])
    values = [(JUMP, 1.0 if falls else ratio), (DROP, ratio if falls else 1.0)]
    if not falls and ratio > 1:
        inside = sum(counts[at:end]) / sum(lengths[at:end])
        over = _over(counts[end:], lengths[end:], inside)
        until = sum(lengths[at:end]) + begin if over else _until(times[-1], begin, inside, rates)
        stays = not over and until - begin >= max(FOR_A_WHILE, OF_ALL * (until - times[0]))
        values.append((STAYS, float(stays)))
        note += f", for {until - begin:.0f} s" if over else f", and not over after {until - begin:.0f} s"
    return tuple(Reading(name, series.subject, value, origin, window, note=note) for name, value in values)


def _over(counts: Sequence[float], lengths: Sequence[float], risen: float) -> bool:
    """Whether the rate fell back after it had risen: for two steps at least, so that a single low one is none."""
    return len(counts) >= MIN_STEPS and sum(counts) / sum(lengths) < SAME_RATE * risen


def _until(last: float, begin: float, risen: float, rates: Sequence[Reading]) -> float:
    """When a risen rate was seen last: at the end of its series, or by a later measurement that began after it rose."""
    later = [
        one.window.end
        for one in rates
        if one.window.start is not None
        and one.window.end is not None
        and one.window.start >= begin
        and not isinstance(one.value, str)
        and SAME_RATE * risen <= one.value <= NO_OTHER * risen
    ]
    return max([last, *later])


def _at_once(arrived: Sequence[float], steps: Sequence[float], at: int, slack: int) -> float:
    """Ratio of the rate in the minute after step `at` to that in the minute before; `slack` steps on either side are
    skipped.
    """
    width = max(1, round(AT_ONCE / (sum(steps) / len(steps))))
    early, late = slice(max(0, at - slack - width), max(0, at - slack)), slice(at + slack, at + slack + width)
    before, after = sum(steps[early]), sum(steps[late])
    if not before or not after:
        return 1.0
    return max(sum(arrived[late]), 0.5) / after / (max(sum(arrived[early]), 0.5) / before)


def _lengths(times: Sequence[float]) -> list[float]:
    """Length of each step in seconds. A series has step ends only; the first step is assumed as long as the second."""
    later = [after - before for before, after in pairwise(times)]
    return [later[0], *later] if later else []


def _together(values: Sequence[float], each: int) -> list[float]:
    return [math.fsum(values[start : start + each]) for start in range(0, len(values), each)]


def sharpest(
    counts: Sequence[float], lengths: Sequence[float], *, falling: bool = False, fewest: int = 0
) -> tuple[float, int, float, int]:
    """Return the rate ratio inside/outside of the likeliest high (or low) run, its first step, its G, and its end.

    `fewest`: arrivals that a run has at least.
    """
    arrivals, seconds = sum(counts), sum(lengths)
    before, passed = (0.0, *accumulate(counts)), (0.0, *accumulate(lengths))
    best = (1.0, MIN_STEPS, 0.0, len(counts))
    for start in range(MIN_STEPS, len(counts) - MIN_STEPS + 1):
        for end in range(start + MIN_STEPS, len(counts) + 1):
            inside, time = before[end] - before[start], passed[end] - passed[start]
            outside, rest = arrivals - inside, seconds - time
            within, without, whole = inside / time, outside / rest, arrivals / seconds
            strength = _gain(inside, within, whole) + _gain(outside, without, whole)
            changed = within < without if falling else within > without
            if changed and inside >= fewest and strength > best[2]:
                # Zero arrivals count as half an arrival, so that the ratio stays finite.
                best = (max(inside, 0.5) / time / (max(outside, 0.5) / rest), start, strength, end)
    return best


def _gain(count: float, rate: float, whole: float) -> float:
    return count * math.log(rate / whole) if count > 0 and rate > 0 else 0.0
