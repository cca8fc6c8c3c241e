"""Compute per request that rose about the time of a change, at equal load: the change's effect, and what is none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from latdoctor.detectors import derive
from latdoctor.detectors.change_effect import EFFECT, LENGTH, LOAD, RATIO, change_effects
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.model import Event, Evidence, Origin, Series, Window

START, STEP, POINTS, AT = 1_795_400_000.0, 30.0, 120, 80
ROSE = START + STEP * AT  # the first slow point ends one step later
OWN, NEIGHBOUR = "model/chat@a:8000", "model/chat@b:8000"


def series(signal: str, level: float, times: float = 1.0, until: int = POINTS, subject: str = OWN) -> Series:
    """An hour that is at `times` the level from point AT to `until`, with 5 % of noise."""
    random = np.random.default_rng(len(signal))
    values = [
        level * (times if AT <= point < until else 1.0) * float(np.exp(random.normal(0, 0.05)))
        for point in range(POINTS)
    ]
    moments = tuple(START + STEP * (point + 1) for point in range(POINTS))
    return Series(signal, subject, moments, tuple(values), Origin("history"))


def deployed(at: float, subject: str = "service") -> Event:
    return Event("change.deployment", subject, Origin("notes"), {}, at, "deployed v1.9")


def effects(*evidence: Series | Event) -> Mapping[str, object]:
    events = tuple(one for one in evidence if isinstance(one, Event))
    found = change_effects(Evidence(series=tuple(one for one in evidence if isinstance(one, Series)), events=events))
    return {one.signal: one.value for one in found.readings}


SLOWER = series("compute.time.mean", 0.02, 7)
FLAT = series("arrival.rate", 40)


@pytest.mark.parametrize("before", [-20.0, 4.0, 60.0, 140.0])
@pytest.mark.parametrize("subject", ["service", "server/a:8000", OWN])
def test_a_change_about_the_time_of_the_rise_is_joined_with_it(before: float, subject: str) -> None:
    found = effects(SLOWER, FLAT, series("input.length.mean", 300), deployed(ROSE - before, subject))
    assert found[RATIO] == pytest.approx(7, rel=0.1)
    assert found[LOAD] == pytest.approx(1, abs=0.1)
    assert found[LENGTH] == pytest.approx(1, abs=0.1)
    assert "× that before since 02:53:20 UTC, " in str(found[EFFECT])
    assert str(found[EFFECT]).endswith("deployed v1.9; load flat")


@pytest.mark.parametrize(
    ("compute", "change"),
    [
        (SLOWER, deployed(ROSE - 900)),  # long before
        (SLOWER, deployed(ROSE + 300)),  # after it
        (SLOWER, deployed(ROSE - 4, "server/b:8000")),  # of a neighbour
        (SLOWER, deployed(ROSE - 4, NEIGHBOUR)),
        (series("compute.time.mean", 0.02, 7, until=100), deployed(ROSE - 4)),  # it is over
        (series("compute.time.mean", 0.02, 1.1), deployed(ROSE - 4)),  # nothing rose
        (SLOWER, Event("change.replicas", "service", Origin("x"), {}, ROSE - 4)),  # no version
    ],
)
def test_another_change_or_no_rise_is_no_effect(compute: Series, change: Event) -> None:
    assert effects(compute, FLAT, change) == {}


def test_unknown_load_and_lengths_stay_unknown() -> None:
    assert effects(SLOWER, deployed(ROSE)).keys() == {RATIO, EFFECT}


def answer(*evidence: Series | Event) -> tuple[str, ...]:
    whole = Evidence(
        series=tuple(one for one in evidence if isinstance(one, Series)),
        events=tuple(one for one in evidence if isinstance(one, Event)),
    )
    case = Case(Context("chat"), Window(START, START + STEP * POINTS), derive(whole), {})
    return diagnose(case, shipped(), Stamp("run", "")).answer.causes


ROLLOUT = ("framework.model.bad-rollout",)


def test_a_full_cut_over_to_a_slower_version_is_named() -> None:
    assert answer(SLOWER, FLAT, deployed(ROSE - 4)) == ROLLOUT
    assert answer(SLOWER, FLAT, series("output.length.mean", 200), deployed(ROSE - 4)) == ROLLOUT


@pytest.mark.parametrize(
    "evidence",
    [
        (SLOWER, series("arrival.rate", 40, 3), deployed(ROSE - 4)),  # more load
        (SLOWER, FLAT, series("input.length.mean", 300, 5), deployed(ROSE - 4)),  # longer inputs
        (SLOWER, FLAT, series("output.length.mean", 300, 5), deployed(ROSE - 4)),
        (SLOWER, deployed(ROSE - 4)),  # load unknown
        (SLOWER, FLAT),  # no change
    ],
)
def test_what_explains_the_rise_otherwise_or_is_unknown_names_no_rollout(evidence: tuple[Series | Event, ...]) -> None:
    assert answer(*evidence) != ROLLOUT
