"""Replicas compared with their siblings, and versions of a model with each other."""

from __future__ import annotations

import pytest

from latdoctor.detectors.replica_outliers import compare_replicas
from latdoctor.evidence.model import Evidence, Origin, Reading


def readings(signal: str, values: dict[str, float]) -> tuple[Reading, ...]:
    return tuple(Reading(signal, subject, value, Origin("page")) for subject, value in values.items())


def versions(rows: list[tuple[str, str, float, float]]) -> Evidence:
    return Evidence(
        readings=tuple(
            Reading(f"version.latency.{name}", subject, value, Origin("page"), labels=(("model_version", version),))
            for subject, version, *both in rows
            for name, value in zip(("p50", "p95"), both, strict=True)
        )
    )


def told(evidence: Evidence) -> dict[tuple[str, str], float | str]:
    return {(one.signal, one.subject): one.value for one in compare_replicas(evidence).readings}


@pytest.mark.parametrize(
    ("rates", "ratios"),
    [
        ({"replica/0": 90.0, "replica/1": 20.0}, {"replica/0": 4.5, "replica/1": 20 / 90}),
        ({"replica/0": 90.0, "replica/1": 20.0, "replica/2": 30.0}, {"replica/0": 3.6, "replica/1": 1 / 3}),
        ({"replica/0": 90.0}, {}),
        ({"replica/0": 90.0, "replica/1": 0.0}, {"replica/1": 0.0}),  # what an idle sibling would make is no multiple
        ({"replica/0": 90.0, "model/a": 20.0}, {}),
        ({"replica/0": 90.0, "replica/1": float("nan")}, {}),
    ],
)
def test_load_against_the_median_of_the_others(rates: dict[str, float], ratios: dict[str, float]) -> None:
    found = told(Evidence(readings=readings("arrival.rate", rates)))
    for subject, ratio in ratios.items():
        assert found["replica.load_ratio", subject] == pytest.approx(ratio)
    assert ratios or not found


@pytest.mark.parametrize(
    ("signal", "value", "counts"),
    [
        ("replica.up", 0.0, False),
        ("replica.up", 1.0, True),
        ("replica.loss_rate", 0.1, False),
        ("replica.loss_rate", 0.0, True),
        ("replica.weight_share", 0.6, False),
        ("replica.weight_share", 1.0, True),
        ("replica.weight_share", float("nan"), True),
    ],
)
def test_one_that_cannot_take_its_share_is_no_measure_for_the_others(signal: str, value: float, counts: bool) -> None:
    rates = readings("arrival.rate", {"replica/0": 90.0, "replica/1": 20.0, "replica/2": 60.0})
    found = told(Evidence(readings=(*rates, *readings(signal, {"replica/1": value}))))
    assert found["replica.load_ratio", "replica/0"] == pytest.approx(90 / 40 if counts else 90 / 60)
    assert found["replica.load_ratio", "replica/1"] == pytest.approx(20 / 75)
    pair = told(Evidence(readings=(*rates[:2], *readings(signal, {"replica/1": value}))))
    assert (("replica.load_ratio", "replica/0") in pair) is counts


def test_a_routers_page_and_the_replicas_own_pages_are_not_mixed() -> None:
    own = {"replica/0@r0": 90.0, "replica/1@r1": 20.0, "replica/2@r2": 30.0}
    routed = {"replica/0@router": 80.0, "replica/1@router": 10.0}
    found = told(Evidence(readings=readings("arrival.rate", own | routed)))
    assert found["replica.load_ratio", "replica/0@router"] == pytest.approx(8)
    assert found["replica.load_ratio", "replica/0@r0"] == pytest.approx(90 / 25)
    # One that the router eases in is no measure on its own page either.
    eased = readings("replica.weight_share", {"replica/1@router": 0.5})
    found = told(Evidence(readings=(*readings("arrival.rate", own | routed), *eased)))
    assert ("replica.load_ratio", "replica/0@router") not in found
    assert found["replica.load_ratio", "replica/0@r0"] == pytest.approx(3)


def test_latency_ratios() -> None:
    found = told(Evidence(readings=readings("latency.mean", {"replica/0": 0.7, "replica/1": 0.05})))
    assert found["replica.latency_ratio", "replica/0"] == pytest.approx(14)


def test_versions_of_one_server() -> None:
    found = told(
        versions([("replica/0", "v1", 0.1, 0.2), ("replica/0", "v2", 0.3, 0.8), ("replica/1", "v1", 9.0, 9.0)])
    )
    assert found == {
        ("version.slowest", "replica/0"): "v2",
        ("version.median_ratio", "replica/0"): pytest.approx(3.0),
        ("version.tail_ratio", "replica/0"): pytest.approx(4.0),
    }


def test_versions_of_two_servers() -> None:
    found = told(versions([("replica/0", "v1", 0.1, 0.2), ("replica/1", "v2", 0.3, 0.8)]))
    assert found["version.median_ratio", "replica/1"] == pytest.approx(3.0)


def test_one_version_is_compared_with_nothing() -> None:
    assert not told(versions([("replica/0", "v1", 0.1, 0.2), ("replica/1", "v1", 0.3, 0.8)]))


def test_twice_adds_nothing() -> None:
    given = Evidence(
        readings=(
            *readings("arrival.rate", {"replica/0": 90.0, "replica/1": 20.0}),
            *versions([("replica/0", "v1", 0.1, 0.2), ("replica/0", "v2", 0.3, 0.8)]).readings,
        )
    )
    assert not compare_replicas(Evidence.merge([given, compare_replicas(given)])).readings


def test_a_gpu_against_the_others_beside_it() -> None:
    clocks = readings("gpu.sm_clock", {"gpu/0": 1.7e9, "gpu/1": 0.85e9, "gpu/2": 1.7e9})
    found = told(Evidence(readings=clocks))
    assert found["gpu.clock_to_others", "gpu/1"] == pytest.approx(0.5)
    assert found["gpu.clock_to_others", "gpu/0"] == pytest.approx(1.7 / 1.275)
