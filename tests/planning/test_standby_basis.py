"""Which forecasts replicas are started for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from latdoctor.planning.forecast.result import Forecast, Method, MethodScore, NoForecast, ReplicaPlan, Standing
from latdoctor.planning.standby_basis import NoBasis, no_basis

AT = 1_790_000_000.0


def scored(method: Method, relative: float | None) -> MethodScore:
    return MethodScore(method, Standing.CHOSEN, mase=0.5, coverage=0.9, relative_to_last_value=relative)


GOOD = Forecast(
    source="test",
    unit="/s",
    ahead=900.0,
    at=AT,
    value=200.0,
    planning_value=250.0,
    method=Method.ETS,
    coverage=0.9,
    methods=(scored(Method.LAST_VALUE, 1.0), scored(Method.ETS, 0.7)),
    plan=ReplicaPlan(100.0, 0.3, 4, 2, 2, AT - 120),
)


@pytest.mark.parametrize(
    ("changed", "now", "reason"),
    [
        ({}, AT - 900, None),
        ({}, AT, NoBasis.PAST),
        ({"no_forecast": NoForecast.SHORT}, AT - 900, NoBasis.NO_FORECAST),
        ({"planning_value": None}, AT - 900, NoBasis.NO_FORECAST),
        ({"plan": None}, AT - 900, NoBasis.NO_REPLICAS),
        ({"method": Method.LAST_VALUE}, AT - 900, NoBasis.NOT_BETTER),
        ({"methods": (scored(Method.ETS, 1.02),)}, AT - 900, NoBasis.NOT_BETTER),  # chosen, but worse when scored
        ({"methods": (scored(Method.ETS, None),)}, AT - 900, NoBasis.NOT_BETTER),
        ({"coverage": 0.6}, AT - 900, NoBasis.MISSES),
        ({"coverage": None}, AT - 900, None),
    ],
)
def test_a_forecast_is_a_basis_only_if_it_is_better_than_none(
    changed: dict[str, object], now: float, reason: NoBasis | None
) -> None:
    assert no_basis(replace(GOOD, **changed), now) is reason
