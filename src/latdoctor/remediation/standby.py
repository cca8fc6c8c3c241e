"""Standby replicas: the forecast that justifies them, until when they are kept, and whether fewer carry the load."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from msgspec import Struct, field

from latdoctor.remediation.observation import Observation

KEPT_AFTER = 600.0  # seconds from the time of the forecast until its replicas may be released
_RATE = "/s"  # the unit in which arrivals are measured


class ForecastRef(Struct, frozen=True):
    """The forecast behind a plan. Times in unix seconds, rates in `unit` (empty where its history does not state one).

    With probability .9 the rate is at most `rate` at `at`, which `replicas` carry at `per_replica` less the `reserve`.
    """

    source: str
    at: float
    evidence_end: float = field(name="seen")
    replicas: int
    rate: float
    per_replica: float
    reserve: float
    unit: str = ""
    method: str = ""

    @property
    def released_after(self) -> float:
        """Unix seconds."""
        return self.at + KEPT_AFTER

    @property
    def share_to_use(self) -> float:
        """The rate that one replica may carry."""
        return self.per_replica * (1 - self.reserve)


def clock(at: float) -> str:
    """`20:40 UTC`."""
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%H:%M} UTC"


def arriving(windows: Sequence[Observation]) -> float | None:
    """Requests a second in the busiest window, at the router where that is known; None where none shows them."""
    rates = [rate for one in windows if (rate := _arriving(one)) is not None]
    return max(rates) if rates else None


def _arriving(window: Observation) -> float | None:
    by_signal: dict[str, list[float]] = {}
    for (signal, _), value in window.values.items():
        if signal in ("router.arrival_rate", "arrival.rate"):
            by_signal.setdefault(signal, []).append(value)
    return next((sum(by_signal[one]) for one in ("router.arrival_rate", "arrival.rate") if one in by_signal), None)


def too_much_for(forecast: ForecastRef, replicas: int, windows: Sequence[Observation]) -> str:
    """Why `replicas` must not carry the load of `windows` alone; empty where each keeps its reserve.

    The load of each replica rises by N/(N-1) when one of N goes: it is judged as it will be, not as it is.
    """
    if forecast.unit != _RATE:
        return "the forecast does not state that its rates are per second, so the load cannot be compared with them"
    rate = arriving(windows)
    if rate is None:
        return "the rate of arrivals is not measured"
    each = rate / max(1, replicas)
    if each <= forecast.share_to_use:
        return ""
    return f"{rate:.4g}/s arrive, {each:.3g}/s for each of {replicas}; one may carry {forecast.share_to_use:.3g}/s"
