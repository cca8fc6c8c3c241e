"""The detectors together."""

from __future__ import annotations

from latdoctor import detectors
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Bucket, Distribution, Evidence, Origin, Reading, Subject

ORIGIN = Origin("m/last.prom")
GIVEN = Evidence(
    subjects=(Subject("model/m"),),
    readings=(Reading("queue.time.mean", "model/m", 0.3, ORIGIN),),
    distributions=(
        Distribution("latency", "model/m", (Bucket(0, 1, 150),), ORIGIN, total=90.0),
        Distribution("batch.size", "model/m", (Bucket(1, 1, 60), Bucket(5, 5, 40)), ORIGIN),
    ),
)


def test_later_detectors_see_what_earlier_ones_derived() -> None:
    found = {reading.signal: reading.value for reading in detectors.derive(GIVEN).readings}
    assert found["latency.mean"] == 0.6
    assert found["queue.time_share"] == 0.5
    assert found["batch.size.modes"] == "1 and 5"


def test_what_was_given_stays_and_deriving_twice_adds_nothing() -> None:
    once = detectors.derive(GIVEN)
    assert once.readings[: len(GIVEN.readings)] == GIVEN.readings
    assert (once.subjects, once.distributions) == (GIVEN.subjects, GIVEN.distributions)
    assert detectors.derive(once) == once


def test_nothing_gives_nothing() -> None:
    assert detectors.derive(Evidence()) == Evidence()


def test_every_derived_signal_is_catalogued() -> None:
    assert {reading.signal for reading in detectors.derive(GIVEN).readings} <= catalogue().keys()
