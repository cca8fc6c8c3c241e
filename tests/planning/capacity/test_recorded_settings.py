"""The queueing model on recorded measurements of real servers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench.capacity import Recorded, Recording, row

from latdoctor.cli.capacity_text import measurement_text, plan_text
from latdoctor.planning.capacity.plan import plan_replicas

FILE = Path(__file__).parents[3] / "fixtures" / "capacity" / "reference-settings.json"
RECORDING = msgspec.json.decode(FILE.read_bytes(), type=Recording)
BISTABLE = (
    "long-alone"  # answers 85 requests/s with two in flight and 39 with 32: which of these it does depends on luck
)


@pytest.mark.parametrize("recorded", RECORDING.settings, ids=lambda one: one.setting)
def test_model_agrees_with_the_measured_limit_and_p99(recorded: Recorded) -> None:
    found = row(recorded)
    assert abs(float(str(found["model_error"]))) < (0.15 if recorded.setting == BISTABLE else 0.1)
    if recorded.setting != BISTABLE:
        assert abs(float(str(found["p99_error"]))) < 0.2


@pytest.mark.parametrize("recorded", RECORDING.settings, ids=lambda one: one.setting)
def test_only_the_server_whose_throughput_collapses_is_called_so(recorded: Recorded) -> None:
    collapses = recorded.setting == BISTABLE
    measurement = recorded.measurement
    assert (measurement.collapse is not None) is collapses
    assert plan_replicas(measurement, 100.0).collapses is collapses
    assert ("throughput collapses under load, 86.9/s with 2 in flight" in measurement_text(measurement)) is collapses
    assert ("collapses" in plan_text(plan_replicas(measurement, 100.0))) is collapses
