"""Whether the second of two observations is faster: which latency shows it, and whether a change is for the better."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.diff import Difference


class Pace(StrEnum):
    """The second observation against the first."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # within a fifth
    UNKNOWN = "unknown"  # no latency is in both


class Trend(StrEnum):
    """What a change means for the users of the service."""

    BETTER = "better"
    WORSE = "worse"
    NEUTRAL = "neutral"  # depends on the load, or on something else


class SpeedChange(Struct, frozen=True):
    """Faster, slower or the same, by the first latency that both observations have."""

    pace: Pace
    signal: str = ""  # empty where the pace is unknown
    subject: str = ""
    before: float | None = None
    after: float | None = None

    @property
    def factor(self) -> float:
        """How many times as large the quantity is; 1 where that is unknown."""
        return self.after / self.before if self.before and self.after else 1.0


# Which quantity decides: the first that both have. The clock of a GPU only where neither has a latency.
SPEED_SIGNALS = (
    "latency.p99",
    "client.latency.p99",
    "http.latency.p99",
    "latency.mean",
    "client.latency.mean",
    "http.latency.mean",
    "client.latency.p95",
    "client.latency.p50",
    "ttft.p99",
    "ttft.mean",
    "tpot.p99",
    "tpot.mean",
    "itl.p99",
    "itl.mean",
    "compute.time.mean",
    "engine.compute.median",
    "step.duration.mean",
    "gpu.sm_clock",
)
_OF_USERS = frozenset(SPEED_SIGNALS[: SPEED_SIGNALS.index("compute.time.mean")])
_BETTER_WHEN_LARGER = re.compile(
    r".*hit_ratio|gpu\.(sm_clock|sm_clock_ratio|clock_to_others|clock\..*|temperature_margin)"
    r"|host\.memory\.available.*|.*free_ratio|speculation\.acceptance_ratio|server\.(answering|replicas_healthy)"
    r"|gpu\.pcie\.(width|generation)(_ratio)?|copy\.bandwidth|replica\.up"
)
_WORSE_WHEN_LARGER = re.compile(
    r".*error.*|queue\..*|.*preemption.*|.*throttle[d.].*|gpu\.temperature|gpu\.memory_temperature|.*oom.*|.*retr(y|ies).*"
    r"|.*psi\..*|.*fault_rate|alloc\.faults.*|gc\.time_share|compile\.time_share|lock\..*|loop\.lag.*|.*idle_share"
    r"|gap\.(share|longest)|.*padding.*|reject\..*|shed\.rate|cancel\.rate|.*drop_rate|.*steal_ratio|.*iowait_ratio"
    r"|.*growth(_share)?|alloc\.inactive.*|engine\..*time_share|kv\.usage|.*reject(ed)?(_rate)?|alloc\..*time_share"
    r"|sync\..*share|copy\..*share|launch\.api_share|kernel\.tiny_ratio|gpu\.ecc\..*|gpu\.xid\..*|.*replay_rate"
)
_NEITHER = re.compile(r"trace\.span|.*uptime|.*load_time|alloc\.history_span|latency\.(pulse|mode|dip).*|start\..*")


def trend(one: Difference) -> Trend:
    """What the change means for users; neutral where the load alone may explain it, or it is within a fifth."""
    if isinstance(one.before, str) or isinstance(one.after, str) or one.before is None or one.after is None:
        return Trend.NEUTRAL
    if not one.is_one or one.before == one.after or _NEITHER.fullmatch(one.signal):
        return Trend.NEUTRAL
    grew = one.after > one.before
    if _BETTER_WHEN_LARGER.fullmatch(one.signal):
        return Trend.BETTER if grew else Trend.WORSE
    known = catalogue().get(one.signal)
    if _WORSE_WHEN_LARGER.fullmatch(one.signal) or (known is not None and known.dimension == "time"):
        return Trend.WORSE if grew else Trend.BETTER
    return Trend.NEUTRAL


def speed_change(found: Iterable[Difference]) -> SpeedChange:
    """The pace by the first of SPEED_SIGNALS that both observations have; of several subjects the slowest decides.

    Where that is the same and another latency of users is not, the other decides: a summary may keep an old P99.
    """
    by_signal: dict[str, list[Difference]] = {}
    for one in found:
        if one.factor is not None:
            by_signal.setdefault(one.signal, []).append(one)
    paces = [_pace_of(_slowest(by_signal[signal])) for signal in SPEED_SIGNALS if signal in by_signal]
    if not paces:
        return SpeedChange(Pace.UNKNOWN)
    users = [one for one in paces if one.signal in _OF_USERS]
    return next((one for one in users if one.pace != Pace.SAME), paces[0])


def _slowest(several: Sequence[Difference]) -> Difference:
    larger_is_better = _BETTER_WHEN_LARGER.fullmatch(several[0].signal)
    if larger_is_better:
        return min(several, key=lambda one: min(_number(one.before), _number(one.after)))
    return max(several, key=lambda one: max(_number(one.before), _number(one.after)))


def _pace_of(one: Difference) -> SpeedChange:
    meaning = trend(one)
    pace = {Trend.BETTER: Pace.FASTER, Trend.WORSE: Pace.SLOWER}.get(meaning, Pace.SAME)
    return SpeedChange(pace, one.signal, one.subject, _number(one.before), _number(one.after))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
