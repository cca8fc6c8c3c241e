"""Compute per request against the server's past, by counters alone, after a change; and what proves nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from latdoctor.detectors.change_by_counters import changes_by_counters
from latdoctor.detectors.change_effect import EFFECT, LOAD, RATIO
from latdoctor.detectors.derived_readings import STARTED
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Window

START, END = 1_795_400_000.0, 1_795_400_010.0
WINDOW = Window(START, END)
BEGAN = START - 600  # of the process
OWN = "model/chat@a:8000"
# 7 × the past's compute at its load: 4 000 batches of 3 requests in 600 s, and 20 requests/s.
SLOWER: Mapping[str, float] = {
    "compute.time.mean": 0.14,
    "compute.past_mean": 0.02,
    "forward.calls": 4000,
    "batch.past_mean": 3,
    "arrival.rate": 20,
}


def event(signal: str, at: float, what: str = "chat") -> Event:
    return Event(signal, "service", Origin("notes"), {"what": what}, at, "deployed v1.9")


PROCESS = event(STARTED, BEGAN)


def effects(values: Mapping[str, float], *events: Event, window: Window = WINDOW) -> Mapping[str, object]:
    readings = tuple(Reading(name, OWN, value, Origin("page"), window) for name, value in values.items())
    return {one.signal: one.value for one in changes_by_counters(Evidence(readings=readings, events=events)).readings}


def test_a_change_before_the_window_is_joined_with_the_growth() -> None:
    found = effects(SLOWER, PROCESS, event("change.deployment", START - 20))
    assert found[RATIO] == pytest.approx(7)
    assert found[LOAD] == pytest.approx((20 - 2**0.5) / 20)
    assert str(found[EFFECT]).endswith("deployed v1.9; load flat")


@pytest.mark.parametrize("change", ["change.deployment", "change.version", "change.model"])
def test_without_a_past_load_the_growth_alone_is_derived(change: str) -> None:
    alone = {name: SLOWER[name] for name in ("compute.time.mean", "compute.past_mean")}
    found = effects(alone, event("change.model", START - 500), event(change, START - 20))
    assert found.keys() == {RATIO, EFFECT}


@pytest.mark.parametrize(
    ("values", "events"),
    [
        pytest.param(SLOWER, (), id="no-change"),
        pytest.param(SLOWER, (event("change.deployment", START - 4000),), id="a-change-long-before"),
        pytest.param(SLOWER, (event("change.deployment", END + 1),), id="a-change-afterwards"),
        pytest.param(SLOWER, (PROCESS, event("change.version", BEGAN + 5)), id="what-the-start-of-a-process-brings"),
        pytest.param(SLOWER, (event("change.model", START - 20),), id="the-first-loading-of-a-model"),
        pytest.param(
            {name: value for name, value in SLOWER.items() if name != "compute.past_mean"},
            (event("change.deployment", START - 20),),
            id="no-past",
        ),
        pytest.param({**SLOWER, RATIO: 3.0}, (event("change.deployment", START - 20),), id="dated-by-its-course"),
    ],
)
def test_nothing_is_claimed(values: Mapping[str, float], events: tuple[Event, ...]) -> None:
    assert effects(values, *events) == {}


def test_pages_without_times_claim_nothing() -> None:
    assert effects(SLOWER, event("change.deployment", START - 20), window=Window(None, None)) == {}
