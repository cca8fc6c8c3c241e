"""Whether a forecast is a basis for starting replicas: what it says must be better than doing without it."""

from __future__ import annotations

from enum import StrEnum

from latdoctor.planning.forecast.result import Forecast, Method

LEAST_COVERAGE = 0.75  # share of the rates within the .9 quantile in the scored part


class NoBasis(StrEnum):
    """Why no replicas are started for a forecast."""

    NO_FORECAST = "no-forecast"
    PAST = "past"  # its time has passed
    NO_REPLICAS = "no-replicas"  # what one replica can take was not given
    NOT_BETTER = "not-better"  # no method is better than the last value, so that no rise is foreseen
    MISSES = "misses"  # the rate was beyond its .9 quantile too often


def no_basis(found: Forecast, now: float) -> NoBasis | None:
    """The first reason; None for a forecast that may be acted on. `now` in unix seconds."""
    if found.no_forecast is not None or found.planning_value is None or found.at is None:
        return NoBasis.NO_FORECAST
    if found.at <= now:
        return NoBasis.PAST
    if found.plan is None:
        return NoBasis.NO_REPLICAS
    if not _is_better(found):
        return NoBasis.NOT_BETTER
    if found.coverage is not None and found.coverage < LEAST_COVERAGE:
        return NoBasis.MISSES
    return None


def _is_better(found: Forecast) -> bool:
    """Whether the chosen method had a smaller error than the last value, in the part that it was not chosen by."""
    own = next((one for one in found.methods if one.method is found.method), None)
    if own is None or own.method is Method.LAST_VALUE or own.relative_to_last_value is None:
        return False
    return own.relative_to_last_value < 1
