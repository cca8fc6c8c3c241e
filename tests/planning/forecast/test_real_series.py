"""Real request rates: the accuracy that is stated of them, with every method in the contest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latdoctor.collectors.time_value_csv import read_series
from latdoctor.planning.forecast.forecaster import ForecastRequest, forecast
from latdoctor.planning.forecast.result import Forecast, Method, Standing

ROOT = Path(__file__).parents[3]


def answer(path: Path, ahead: float) -> Forecast:
    return forecast([read_series(path)], ForecastRequest(path.name, ahead))


def test_the_last_value_is_taken_for_requests_to_a_large_language_model() -> None:
    found = answer(ROOT / "fixtures" / "forecast" / "servegen-m-large.csv", 600)
    assert found.method is Method.LAST_VALUE
    assert found.mase is not None
    assert found.mase <= 0.31
    assert found.methods[-1].standing is Standing.NOT_BETTER, "the LSTM was tried"


def test_calls_to_a_bank_are_forecast_with_half_the_error_of_the_day_before() -> None:
    """Where `python -m bench.forecast_series` has fetched them, or the samples contain them."""
    folders = [ROOT / ".cache" / "forecast", Path(os.environ.get("LATDOCTOR_SAMPLES", "")) / "forecast"]
    path = next((folder / "bank_calls.csv" for folder in folders if (folder / "bank_calls.csv").is_file()), None)
    if path is None:
        pytest.skip("bank_calls.csv is not here: python -m bench.forecast_series")
    found = answer(path, 900)
    assert found.method in (Method.ETS, Method.RIDGE, Method.LSTM)
    assert found.mase is not None
    assert found.mase <= 0.53
    assert found.pinball is not None
    assert found.pinball <= 3.18
    assert found.coverage == pytest.approx(0.9, abs=0.02)
