"""Reports that there is no GPU are no sign of a fault where a server computes on processors."""

from __future__ import annotations

import pytest

from latdoctor.diagnosis.gpu_vitals import gpu_events
from latdoctor.evidence.gpu_access import ACCESS_ERROR, AccessFailure
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Value

ORIGIN = Origin("logs/x")


def kinds(kind: AccessFailure, *readings: tuple[str, Value]) -> list[str]:
    event = Event(ACCESS_ERROR, "node/x", ORIGIN, {"kind": kind})
    known = tuple(Reading(signal, "server/x", value, ORIGIN) for signal, value in readings)
    return [vital.part for vital in gpu_events(Evidence(readings=known, events=(event,)))]


@pytest.mark.parametrize("readings", [[("server.backend", "cpu")], [("host.accelerators", 0.0)]])
def test_no_driver_is_no_sign_on_a_machine_without_gpu(readings: list[tuple[str, Value]]) -> None:
    assert kinds(AccessFailure.NVML_FAILED, *readings) == []
    assert kinds(AccessFailure.INIT_FAILED, *readings) == ["init-failed"]


@pytest.mark.parametrize("readings", [[], [("server.backend", "cuda")], [("host.accelerators", 2.0)]])
def test_no_driver_is_a_sign_elsewhere(readings: list[tuple[str, Value]]) -> None:
    assert kinds(AccessFailure.NVML_FAILED, *readings) == ["nvml-failed"]
