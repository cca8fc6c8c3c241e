"""Ratios of two readings."""

from __future__ import annotations

import math

import pytest

from latdoctor.detectors.derived_readings import QUOTIENTS, Quotient, quotients
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence, Labels, Origin, Reading, Subject, Window

ORIGIN = Origin("nvml/0.json", "clocks")


def reading(
    signal: str, value: float, subject: str = "gpu/0", end: float | None = None, labels: Labels = ()
) -> Reading:
    return Reading(signal, subject, value, ORIGIN, Window(None, end), labels)


@pytest.mark.parametrize("quotient", QUOTIENTS, ids=lambda quotient: quotient.signal)
def test_every_ratio_is_computed(quotient: Quotient) -> None:
    found = quotients(Evidence(readings=(reading(quotient.over, 3.0), reading(quotient.under, 4.0))))
    assert [(one.signal, one.subject, one.value) for one in found.readings] == [(quotient.signal, "gpu/0", 0.75)]
    assert found.readings[0].origin == Origin("nvml/0.json", f"{quotient.over} over {quotient.under}")


@pytest.mark.parametrize("quotient", QUOTIENTS, ids=lambda quotient: quotient.signal)
def test_every_ratio_has_catalogued_sides_of_one_dimension(quotient: Quotient) -> None:
    signal, over, under = (catalogue()[name] for name in (quotient.signal, quotient.over, quotient.under))
    growth = (over.dimension, under.dimension) == ("throughput", "bytes")  # of something over itself
    assert growth or over.dimension == under.dimension
    assert signal.dimension == ("rate" if growth else "ratio")


def test_the_note_tells_both_sides() -> None:
    found = quotients(Evidence(readings=(reading("gpu.sm_clock", 1.2e9), reading("gpu.sm_clock_max", 1.98e9))))
    assert found.readings[0].note == "gpu.sm_clock 1.2 GHz over gpu.sm_clock_max 1.98 GHz"


def test_a_ratio_that_was_told_is_left_alone() -> None:
    told = (reading("gpu.power", 1.0), reading("gpu.power_limit", 2.0), reading("gpu.power_ratio", 0.9))
    assert quotients(Evidence(readings=told)) == Evidence()


@pytest.mark.parametrize("under", [0.0, -1.0, 5e-324])
def test_a_denominator_that_cannot_divide_is_a_gap(under: float) -> None:
    found = quotients(Evidence(readings=(reading("gpu.power", 300.0), reading("gpu.power_limit", under))))
    assert not found.readings
    assert [(gap.signals, gap.subject) for gap in found.gaps] == [(("gpu.power_ratio",), "gpu/0")]


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_unknown_sides_give_nothing(unknown: float) -> None:
    for pair in ((unknown, 1.0), (1.0, unknown)):
        found = quotients(Evidence(readings=(reading("gpu.power", pair[0]), reading("gpu.power_limit", pair[1]))))
        assert found == Evidence()


def test_sides_of_different_subjects_do_not_meet() -> None:
    mixed = (reading("gpu.power", 1.0, "gpu/0"), reading("gpu.power_limit", 2.0, "gpu/1"))
    parent = (Subject("gpu/0", "gpu/1"), Subject("gpu/1"))
    assert quotients(Evidence(subjects=parent, readings=mixed)) == Evidence()


def test_threads_meet_the_processors_of_their_machine() -> None:
    subjects = (Subject("process/7", "node/local"), Subject("node/local"))
    sides = (reading("process.runnable_threads", 48.0, "process/7"), reading("host.cpus", 4.0, "node/local"))
    found = quotients(Evidence(subjects=subjects, readings=sides))
    assert [(one.signal, one.subject, one.value) for one in found.readings] == [
        ("process.threads_per_cpu", "process/7", 12.0)
    ]
    assert quotients(Evidence(readings=sides)) == Evidence()


def test_the_latest_window_is_divided_by_the_same_window() -> None:
    sides = (
        reading("queue.time.mean", 1.0, end=10),
        reading("queue.time.mean", 2.0, end=20),
        reading("latency.mean", 4.0, end=20),
        reading("latency.mean", 8.0, end=30),
    )
    assert [one.value for one in quotients(Evidence(readings=sides)).readings] == [0.5]


def test_labels_stay_apart() -> None:
    labels = (("route", "/a"),)
    sides = (reading("queue.time.mean", 1.0, labels=labels), reading("latency.mean", 4.0))
    assert quotients(Evidence(readings=sides)) == Evidence()
    both = (*sides, reading("latency.mean", 2.0, labels=labels))
    assert [(one.labels, one.value) for one in quotients(Evidence(readings=both)).readings] == [(labels, 0.5)]


@pytest.mark.parametrize(
    ("over", "under", "bound"),
    [("", "", ""), ("at least", "", "at least"), ("", "at least", "at most"), ("at least", "at least", None)],
)
def test_of_a_bound_only_a_bound_is_told(over: str, under: str, bound: str | None) -> None:
    sides = (
        Reading("gpu.power", "gpu/0", 350.0, ORIGIN, bound=over),
        Reading("gpu.power_limit", "gpu/0", 700.0, ORIGIN, bound=under),
    )
    found = quotients(Evidence(readings=sides))
    assert [one.bound for one in found.readings] == ([] if bound is None else [bound])
    assert [gap.signals for gap in found.gaps] == ([("gpu.power_ratio",)] if bound is None else [])
    if over == "at least" and bound:
        assert found.readings[0].note == "gpu.power at least 350 W over gpu.power_limit 700 W"
