"""Plans fitted to recorded requests, and their replay: what is recovered, and what is said to be missing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.load import plan as plans
from latdoctor.load.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Population, Ramp, Renewal, Replay
from latdoctor.load.distributions import (
    ConstantValue,
    Distribution,
    Exponential,
    Geometric,
    LogNormal,
    Quantiles,
)
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy, schedule
from latdoctor.load.plan_file import plan_yaml
from latdoctor.load.recording.distribution_fit import distance, fit, quantiles
from latdoctor.load.recording.phase_fit import fit_phases
from latdoctor.load.recording.plan_fit import NotShown, fit_plan
from latdoctor.load.recording.replay_plan import cut, replay_plan
from latdoctor.load.recording.requests import RecordedRequest, Recording, sessions_of, think_times
from latdoctor.load.users import Users

TWO_PEAKS = [1.0 + index / 1000 for index in range(500)] + [50.0 + index / 1000 for index in range(500)]


def drawn(one: Distribution, count: int = 2000, *, whole: bool = False) -> list[float]:
    rng = Random(7)
    values = [one.draw(rng) for _ in range(count)]
    return [float(max(1, round(value))) for value in values] if whole else values


@pytest.mark.parametrize(
    ("one", "whole"),
    [(Exponential(4), False), (LogNormal(5, 1.2), False), (ConstantValue(3), False), (Geometric(4), True)],
    ids=repr,
)
def test_a_simple_distribution_is_recovered(one: Distribution, whole: bool) -> None:
    found = fit(drawn(one, whole=whole), whole=whole)
    assert type(found.distribution) is type(one)
    assert found.distribution.mean == pytest.approx(one.mean, rel=0.08)
    assert found.distance < 0.03


def test_what_is_not_simple_keeps_its_quantiles_and_its_mean() -> None:
    found = fit(TWO_PEAKS)
    assert isinstance(found.distribution, Quantiles)
    assert found.distance < 0.02
    assert found.distribution.mean == pytest.approx(25.5, rel=0.02)
    extreme = quantiles([1.0] * 999 + [1e5])
    assert extreme.mean == pytest.approx(101, rel=0.25)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=300))
def test_every_sample_has_a_fit(values: list[float]) -> None:
    found = fit(values)
    assert 0 <= found.distance <= 1
    assert list(quantiles(values).at) == sorted(quantiles(values).at)


def test_a_distance_is_0_of_itself_and_1_of_what_is_apart() -> None:
    assert distance([1, 2, 3], [3, 2, 1]) == 0
    assert distance([1, 2], [5, 6]) == 1
    assert distance([1, 2, 3, 4], [3, 4]) == pytest.approx(0.5)


def times_of(*parts: tuple[Arrivals, float]) -> tuple[list[float], float]:
    times: list[float] = []
    start = 0.0
    for arrivals, seconds in parts:
        times += [start + at for at in arrivals.times(seconds, Random(3))]
        start += seconds
    return times, start


@pytest.mark.parametrize(
    ("arrivals", "kind"), [(Poisson(20), Poisson), (Gamma(20, 2.5), Gamma), (Constant(20), Constant)], ids=repr
)
def test_a_process_is_recovered(arrivals: Arrivals, kind: type[Arrivals]) -> None:
    (found,) = fit_phases(*times_of((arrivals, 200.0)), coarse=False)
    assert type(found.arrivals) is kind
    assert found.count / found.seconds == pytest.approx(20, rel=0.1)
    assert (found.distance or 0) < 0.05
    if isinstance(found.arrivals, Gamma):
        assert found.arrivals.cv == pytest.approx(2.5, rel=0.1)


def test_gaps_of_no_known_process_are_kept_as_they_are() -> None:
    rng = Random(1)
    steps = [rng.choice((0.001, 0.001, 0.1)) * rng.uniform(0.9, 1.1) for _ in range(3000)]
    times = list(itertools.accumulate(steps))
    (found,) = fit_phases(times, times[-1] + 0.01, coarse=False)
    assert isinstance(found.arrivals, Renewal)
    again = list(found.arrivals.times(found.seconds, Random(2)))
    gaps = [later - sooner for sooner, later in itertools.pairwise(again)]
    assert distance(gaps, steps) < 0.05
    assert len(again) == pytest.approx(3000, rel=0.1)


def test_a_change_of_rate_is_a_phase_and_bursts_are_none() -> None:
    found = fit_phases(*times_of((Poisson(5), 100), (Poisson(25), 100), (Poisson(5), 100)), coarse=False)
    assert [round(phase.start, -1) for phase in found] == [0, 100, 200]
    assert [phase.count / phase.seconds for phase in found] == pytest.approx([5, 25, 5], rel=0.15)
    assert len(fit_phases(*times_of((Gamma(20, 3), 300)), coarse=False)) <= 3
    assert len(fit_phases(*times_of((Ramp(1, 60), 300)), coarse=False, most=4)) == 4


def recording(users: int = 400, *, ends: bool = True, sessions: bool = True, tokens: bool = True) -> Recording:
    """Poisson users with geometric turns and lognormal times to think."""
    rng = Random(5)
    rows = []
    turns, think = Geometric(3), LogNormal(4, 0.7)
    for number, arrived in enumerate(Poisson(2).times(users / 2, rng)):
        at = arrived
        for _ in range(round(turns.draw(rng))):
            ended = at + rng.uniform(0.05, 0.5)
            length = rng.randint(10, 90) if tokens else None
            name = f"u{number}" if sessions else ""
            rows.append(RecordedRequest(at, ended if ends else None, 200, name, length, "/v1/intent"))
            at = ended + think.draw(rng)
    rows.sort(key=lambda one: one.at)
    return Recording(tuple(rows), rows[-1].at)


def codes(found: Recording) -> set[NotShown]:
    return {note.code for note in fit_plan(found).notes}


def test_users_are_recovered_from_their_requests() -> None:
    fitted = fit_plan(recording())
    assert isinstance(fitted.phases[0].arrivals, Poisson)
    assert fitted.turns is not None
    assert fitted.think_s is not None
    assert isinstance(fitted.turns.distribution, Geometric)
    assert fitted.turns.distribution.mean == pytest.approx(3, rel=0.1)
    assert isinstance(fitted.think_s.distribution, LogNormal)
    assert fitted.think_s.distribution.median == pytest.approx(4, rel=0.1)
    mix = fitted.plan.phases[0].mix
    assert mix.tokens is not None
    assert mix.tokens.mean == pytest.approx(50, rel=0.05)
    assert fitted.plan.phases[0].users == Users(fitted.turns.distribution, fitted.think_s.distribution)
    assert {note.code for note in fitted.notes} == {NotShown.CUT_SESSIONS}


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (recording(sessions=False), NotShown.SESSIONS),
        (recording(ends=False), NotShown.ENDS),
        (recording(tokens=False), NotShown.LENGTHS),
        (Recording(recording().requests, 500.0, coarse=True), NotShown.FINE_TIMES),
    ],
    ids=["sessions", "ends", "lengths", "fine times"],
)
def test_what_a_recording_lacks_is_said_and_not_invented(found: Recording, missing: NotShown) -> None:
    assert missing in codes(found)
    fitted = fit_plan(found)
    assert (fitted.turns is None) == (missing is NotShown.SESSIONS)
    assert all((phase.users is None) == (missing is NotShown.SESSIONS) for phase in fitted.plan.phases)
    assert all((phase.mix == Mix()) == (missing is NotShown.LENGTHS) for phase in fitted.plan.phases)


def request(at: float, session: str = "", **others: object) -> RecordedRequest:
    return RecordedRequest(at, at + 1.0, **{"status": 200, "session": session, **others})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("requests", "missing"),
    [
        ((request(0, "a"), request(5, "a"), request(6)), NotShown.SOME_SESSIONS),
        ((request(0, "a"), request(0.5, "a"), request(5, "a")), NotShown.OVERLAPPING),
        ((request(0, "a", tokens=10), request(5, "a", tokens=100)), NotShown.HISTORY),
        ((request(0, status=499), request(5)), NotShown.PATIENCE),
        ((request(0, status=503), request(5)), NotShown.FAILURES),
        ((request(0, route="/a"), request(5, route="/b")), NotShown.ROUTES),
        ((request(0, "a"), request(5, "b")), NotShown.SESSIONS),
    ],
)
def test_what_is_shown_in_part_is_said(requests: tuple[RecordedRequest, ...], missing: NotShown) -> None:
    assert missing in codes(Recording(requests, 10.0))


def test_a_long_pause_ends_a_session() -> None:
    requests = (request(0, "a"), request(10, "a"), request(5000, "a"), request(5001))
    found = sessions_of(requests)
    assert [[turn.at for turn in one.turns] for one in found] == [[0, 10], [5000], [5001]]
    assert think_times(found) == ([9.0], 0)
    assert len(sessions_of(requests, idle_s=math.inf)) == 2


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 100), st.sampled_from(["", "a", "b"]), st.sampled_from([None, 5, 400])),
        min_size=1,
        max_size=40,
    ),
    speed=st.sampled_from([0.5, 1.0, 2.0, 10.0]),
)
def test_a_replay_has_the_order_gaps_and_sessions_at_its_speed(
    rows: list[tuple[float, str, int | None]], speed: float
) -> None:
    requests = tuple(
        RecordedRequest(at, session=session, tokens=tokens)
        for at, session, tokens in sorted(rows, key=lambda row: row[0])
    )
    planned = schedule(replay_plan(Recording(requests, 100.0), speed, 1000).plan)
    assert [one.at for one in planned] == [one.at / speed for one in requests]
    numbers = {one.session for one in requests if one.session}
    assert len({one.ask.session for one in planned} - {None}) == len(numbers)
    assert all((one.ask.session is None) == (not row.session) for one, row in zip(planned, requests, strict=True))
    assert all(one.ask.tokens == row.tokens for one, row in zip(planned, requests, strict=True) if row.tokens)


def test_a_replay_is_bounded_and_says_so() -> None:
    requests = tuple(request(float(at)) for at in range(100))
    made = replay_plan(cut(Recording(requests, 99.0), 10, 50), 2.0, 15)
    assert (made.requests, made.left_out, made.sessions) == (15, 25, 0)
    assert made.plan.seconds == pytest.approx(7.0)
    with pytest.raises(UsageError, match="no request from 200 s"):
        cut(Recording(requests, 99.0), 200, 300)


PLANS = [
    LoadPlan((LoadPhase("a", 10, Poisson(2)),)),
    LoadPlan(
        (
            LoadPhase("a", 10.5, Gamma(2, 3), Mix(tokens=Quantiles((1.0, 2.5)), audio_share=0.0)),
            LoadPhase("b", 1, OnOff(2, 1, 1), users=Users(Geometric(4), LogNormal(8, 1), ConstantValue(3), 0.5)),
            LoadPhase("c", 1, Population(3, 1), users=Users(Quantiles((1.0, 4.0)), Exponential(2))),
            LoadPhase("d", 1, Renewal(5, Quantiles((0.0, 2.0)))),
            LoadPhase("e", 1, Replay((0.0, 0.5), 2.0, (1, -1), (7, 0))),
        ),
        seed=4,
        retry=RetryPolicy(RetryKind.BACKOFF, 5),
        slo_s=0.3,
    ),
    fit_plan(recording()).plan,
]


@pytest.mark.parametrize("plan", PLANS, ids=["plain", "everything", "fitted"])
def test_a_written_plan_is_read_again(tmp_path: Path, plan: LoadPlan) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(plan_yaml(plan, ("Fitted to a log:", "a: b\nc")))
    first = plans.read(file)
    file.write_text(plan_yaml(first))
    assert plans.read(file) == first
    assert first.seconds == pytest.approx(plan.seconds)
    if plan is not PLANS[2]:  # its numbers are rounded
        assert first == plan
