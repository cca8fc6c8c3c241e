"""A plan as a k6 script: one scenario for each phase, with k6's arrival-rate executors (an open loop).

https://grafana.com/docs/k6/latest/using-k6/scenarios/executors/constant-arrival-rate/
"""

from __future__ import annotations

import json
import math
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from latdoctor.errors import UsageError
from latdoctor.load.arrivals import Arrivals, Constant, OnOff, Population, Ramp, Replay
from latdoctor.load.drivers.differences import TEXT, Driver, differences
from latdoctor.load.drivers.exported import ATTAINMENT
from latdoctor.load.drivers.share import check_times, highest_rate, replayed_per_second, scaled_arrivals
from latdoctor.load.mix import FRAMES_PER_SECOND, MALFORMED_BODIES, MOST_TURNS, MOST_WORDS, VOCABULARY
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.request_template import PROMPT, RequestTemplate
from latdoctor.load.transport import PATH
from latdoctor.load.users import MOST_TURNS as MOST_TURNS_OF_SESSION
from latdoctor.load.users import Users

# A random wait of so many arrivals hides that k6 starts them evenly; each of them needs a virtual user while it waits.
_SPREAD_ARRIVALS, _MAX_SPREAD_S = 200, 2.0
_MAX_STAGES = 5000
_MOST_USERS = 100_000  # virtual users of k6
_LONG_SESSIONS = 2  # sessions vary: room for as many users again
_MAX_MALFORMED = 100  # bytes of one in the script
_PER_LONG_UNIT = 1000  # k6 takes whole numbers only: other rates are per 1000 s


def k6_script(plan: LoadPlan, *, times: float = 1.0, request: RequestTemplate | None = None) -> str:
    """The script. Raises UsageError for a plan that k6 cannot run."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    check_times(plan, times)
    phases = [msgspec.structs.replace(one, arrivals=_multiplied(one.arrivals, times)) for one in plan.phases]
    load = {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "timeout_s": plan.timeout_s,
        "slo_s": plan.slo_s,
        "warm_up_s": plan.warm_up_s,
        "retry": msgspec.to_builtins(plan.retry),
        "path": request.path if request else PATH,
        "prompt": PROMPT,
        "phases": {
            phase.name: {
                "number": number,
                "start_s": start,
                "spread_s": _spread(phase),
                "mix": msgspec.to_builtins(phase.mix),
                "body": request.bodies.get(phase.name, request.body) if request else None,
                "users": msgspec.to_builtins(phase.users),
                "closed": isinstance(phase.arrivals, Population),
            }
            for number, (phase, start) in enumerate(zip(phases, plan.starts(), strict=True))
        },
        "options": _options(plan, phases, times),
        "most_turns_of_session": MOST_TURNS_OF_SESSION,
        "most_turns": MOST_TURNS,
        "most_words": MOST_WORDS,
        "frames_per_second": FRAMES_PER_SECOND,
        "malformed": [body.decode() for body in MALFORMED_BODIES if body.isascii() and len(body) < _MAX_MALFORMED],
        "vocabulary": " ".join(VOCABULARY.split()),
    }
    environment = Environment(  # noqa: S701  # JavaScript, not HTML; its only value is JSON
        loader=PackageLoader("latdoctor.load.drivers"), undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("k6.js.jinja").render(
        load=json.dumps(load, indent=2), differences=_texts(plan, times, request), times=times
    )


def _texts(plan: LoadPlan, times: float, request: RequestTemplate | None) -> list[str]:
    return [TEXT[one] for one in differences(plan, Driver.K6, times, request)]


def _options(plan: LoadPlan, phases: list[LoadPhase], times: float) -> dict[str, Any]:
    limits = {f"good{{scenario:{phase.name}}}": [f"rate>={ATTAINMENT}"] for phase in phases}
    return {
        "scenarios": {
            phase.name: _scenario(plan, phase, start, times) for phase, start in zip(phases, plan.starts(), strict=True)
        },
        # An iteration that was dropped is load that was not offered: the run is spoiled.
        "thresholds": {**limits, "dropped_iterations": ["count==0"]},
        "summaryTrendStats": ["count", "min", "med", "p(95)", "p(99)", "max"],
        "maxRedirects": 0,
    }


def _scenario(plan: LoadPlan, phase: LoadPhase, start: float, times: float) -> dict[str, Any]:
    if phase.seconds < 1:
        raise UsageError(f"phase {phase.name}: {phase.seconds:g} s", next_step="k6 needs at least 1 s for each phase")
    if isinstance(phase.arrivals, Population):
        return {**_population(phase, phase.arrivals), "startTime": _duration(start)}
    rate, spread = highest_rate(phase), _spread(phase)
    most = max(1, math.ceil(plan.max_in_flight * times))
    attempts = plan.retry.attempts if plan.retry.kind != "none" else 1
    if phase.users is not None:
        return {
            **_executor(phase),
            "exec": "session",
            "startTime": _duration(start),
            # A user who has arrived goes on until the end of the plan.
            "gracefulStop": _duration(plan.seconds - start - phase.seconds + attempts * plan.timeout_s),
            **_users_at_once(phase.users, rate, spread, plan.slo_s, attempts * plan.timeout_s),
        }
    grace = spread + attempts * plan.timeout_s + (attempts - 1) * plan.retry.max_ms / 1000
    return {
        **_executor(phase),
        "startTime": _duration(start),
        "gracefulStop": _duration(min(grace, 3600.0)),
        "preAllocatedVUs": min(most, math.ceil(rate * (spread + plan.slo_s)) + 1),
        "maxVUs": min(most, math.ceil(rate * (spread + attempts * plan.timeout_s)) + 1),
    }


def _population(phase: LoadPhase, population: Population) -> dict[str, Any]:
    """Users who are there from the beginning of a phase to its end, where what they do is cut off."""
    ramp = min(population.ramp_s, phase.seconds)
    held = [
        {"target": population.size, "duration": _duration(ramp)},
        {"target": population.size, "duration": _duration(phase.seconds - ramp)},
    ]
    return {
        "executor": "ramping-vus",
        "exec": "session",
        "startVUs": 0 if ramp else population.size,
        "stages": held if ramp else held[1:],
        "gracefulRampDown": "0ms",
        "gracefulStop": "0ms",
    }


def _users_at_once(users: Users, rate: float, spread: float, answer_s: float, worst_s: float) -> dict[str, int]:
    """k6's virtual users: as many as are there by Little's law, at most those of sessions with the slowest answers."""
    turns, think = users.turns.mean, users.think_s.mean
    usual = spread + turns * answer_s + (turns - 1) * think
    slowest = spread + turns * (worst_s + think)
    return {
        "preAllocatedVUs": min(_MOST_USERS, math.ceil(rate * usual) + 1),
        "maxVUs": min(_MOST_USERS, math.ceil(rate * _LONG_SESSIONS * slowest) + 1),
    }


def _multiplied(arrivals: Arrivals, times: float) -> Arrivals:
    """`times` the rate; of a population the size."""
    if isinstance(arrivals, Population):
        return msgspec.structs.replace(arrivals, size=max(1, round(arrivals.size * times)))
    return scaled_arrivals(arrivals, times)


def _executor(phase: LoadPhase) -> dict[str, Any]:
    arrivals = phase.arrivals
    if isinstance(arrivals, Ramp | OnOff | Replay):
        rates = _stages(phase)
        if len(rates) > _MAX_STAGES:
            raise UsageError(f"phase {phase.name}: {len(rates)} changes of the rate", next_step="shorten the phase")
        unit, whole = _whole([rate for rate, _ in rates])
        return {
            "executor": "ramping-arrival-rate",
            "startRate": whole[0],
            "timeUnit": unit,
            "stages": [
                {"target": target, "duration": duration}
                for target, duration in zip(whole, _durations([held for _, held in rates]), strict=True)
            ],
        }
    unit, (rate,) = _whole([highest_rate(phase)])
    return {
        "executor": "constant-arrival-rate",
        "rate": max(1, rate),
        "timeUnit": unit,
        "duration": _duration(phase.seconds),
    }


def _stages(phase: LoadPhase) -> list[tuple[float, float]]:
    """Target rate and seconds of each stage; a stage of 0 s is a jump."""
    arrivals, seconds = phase.arrivals, phase.seconds
    if isinstance(arrivals, Ramp):
        return [(arrivals.from_rate, 0.0), (arrivals.to_rate, seconds)]
    if isinstance(arrivals, OnOff):
        pieces = [(arrivals.off_rate, arrivals.start_s)]
        while sum(length for _, length in pieces) < seconds and len(pieces) <= _MAX_STAGES:
            pieces += [(arrivals.on_rate, arrivals.on_s), (arrivals.off_rate, arrivals.off_s)]
    elif isinstance(arrivals, Replay):
        pieces = [(float(count), 1.0) for count in replayed_per_second(arrivals, seconds)]
    else:
        raise TypeError(f"{type(arrivals).__name__} has no stages")
    return _steps(pieces, seconds)


def _steps(pieces: list[tuple[float, float]], seconds: float) -> list[tuple[float, float]]:
    """Pieces of a constant rate as jumps and holds, cut off after `seconds`."""
    stages, left = [], seconds
    for rate, length in pieces:
        held = min(length, left)
        if held > 0:
            stages += [(rate, 0.0), (rate, held)]
            left -= held
    return stages


def _whole(rates: list[float]) -> tuple[str, list[int]]:
    """k6's time unit, and the rates as whole numbers of it."""
    if all(rate == round(rate) for rate in rates):
        return "1s", [round(rate) for rate in rates]
    return f"{_PER_LONG_UNIT}s", [round(rate * _PER_LONG_UNIT) for rate in rates]


def _spread(phase: LoadPhase) -> float:
    """The longest random wait of an iteration before it sends, in seconds; 0 for evenly spaced arrivals."""
    if isinstance(phase.arrivals, Constant | Replay | Population):
        return 0.0
    rate = highest_rate(phase)
    return round(min(_MAX_SPREAD_S, _SPREAD_ARRIVALS / rate, phase.seconds / 10), 4) if rate else 0.0


def _durations(seconds: list[float]) -> list[str]:
    """Whole milliseconds of each stage; rounded at their ends, so that many stages do not drift."""
    ends = [round(end * 1000) for end in accumulate(seconds)]
    return [f"{end - begin}ms" for begin, end in pairwise([0, *ends])]


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
